"""GGUF version 3, the part our models need: a writer, and a reader of what it wrote.

    magic "GGUF" | u32 version | u64 tensors | u64 metadata pairs
    pair:    string key | u32 type | value          string: u64 bytes, UTF-8
    tensor:  string name | u32 dims | u64 size of each dim, the row length first | u32 type | u64 offset
    padding to the alignment | tensor data, each tensor padded to the alignment, offsets from here

All little-endian. An array value is u32 type, u64 count, items. A q8_0 row is blocks of 32 values: an f16 scale,
then 32 signed bytes.
"""

import struct
from pathlib import Path

import numpy as np

ALIGNMENT = 32
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
SCALARS = {UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}
F32, F16, Q8_0 = 0, 1, 8
Q8_BLOCK = np.dtype([("scale", "<f2"), ("values", "i1", 32)])


def pack_string(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def pack_value(kind: int, value) -> bytes:
    if kind == STRING:
        return pack_string(value)
    if kind == ARRAY:
        item_kind, items = value
        return struct.pack("<IQ", item_kind, len(items)) + b"".join(pack_value(item_kind, i) for i in items)
    return struct.pack(SCALARS[kind], value)


def quantize_q8_0(x: np.ndarray) -> bytes:
    blocks = x.astype(np.float32).reshape(-1, 32)
    scale = np.abs(blocks).max(axis=1) / 127
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    out = np.empty(len(blocks), dtype=Q8_BLOCK)
    out["scale"] = scale
    out["values"] = np.rint(blocks * inverse[:, None])
    return out.tobytes()


def encode_tensor(x: np.ndarray, weight_type: str) -> tuple[int, bytes]:
    """Matrices in the type asked for, the norms' vectors in f32."""
    if x.ndim == 1 or weight_type == "f32":
        return F32, x.astype("<f4").tobytes()
    if weight_type == "q8_0":
        return Q8_0, quantize_q8_0(x)
    return F16, x.astype("<f2").tobytes()


def padding(length: int) -> bytes:
    return b"\0" * (-length % ALIGNMENT)


def write(path: Path, metadata: dict, tensors: dict[str, np.ndarray], weight_type: str, f32: tuple = ()) -> None:
    """metadata: key -> (type, value); an array's value is (item type, items). f32: tensors that stay so."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, (kind, value) in metadata.items():
        head += pack_string(key) + struct.pack("<I", kind) + pack_value(kind, value)
    body = bytearray()
    for name, x in tensors.items():
        kind, data = encode_tensor(x, "f32" if name in f32 else weight_type)
        dims = x.shape[::-1]
        head += pack_string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(body))
        body += data + padding(len(data))
    path.write_bytes(head + padding(len(head)) + body)


class Reader:
    """metadata: key -> value; tensors: name -> f32 array, a matrix's rows being its outputs."""

    def __init__(self, path: Path):
        self.data = path.read_bytes()
        self.at = 0
        if self.take("<4sI") != (b"GGUF", 3):
            raise ValueError(f"{path}: not a GGUF file of version 3")
        num_tensors, num_pairs = self.take("<QQ")
        self.metadata = {}
        for _ in range(num_pairs):
            key = self.string()
            self.metadata[key] = self.value(self.take("<I")[0])
        infos = []
        for _ in range(num_tensors):
            name = self.string()
            dims = self.take(f"<{self.take('<I')[0]}Q")
            infos.append((name, dims[::-1], *self.take("<IQ")))
        start = self.at + len(padding(self.at))
        self.tensors = {name: self.tensor(shape, kind, start + offset) for name, shape, kind, offset in infos}

    def take(self, layout: str) -> tuple:
        values = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return values

    def string(self) -> str:
        (length,) = self.take("<Q")
        self.at += length
        return self.data[self.at - length:self.at].decode("utf-8")

    def value(self, kind: int):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            item_kind, count = self.take("<IQ")
            return [self.value(item_kind) for _ in range(count)]
        return self.take(SCALARS[kind])[0]

    def tensor(self, shape: tuple, kind: int, offset: int) -> np.ndarray:
        count = int(np.prod(shape))
        if kind == Q8_0:
            blocks = np.frombuffer(self.data, Q8_BLOCK, count // 32, offset)
            return (blocks["values"] * blocks["scale"].astype(np.float32)[:, None]).reshape(shape)
        return np.frombuffer(self.data, {F32: "<f4", F16: "<f2"}[kind], count, offset).astype(np.float32).reshape(shape)
