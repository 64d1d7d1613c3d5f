"""Records what llama.cpp computes of a published model: tokens, greedy ids with their margins, KL divergence of the
published types from F32, likelihoods.

usage: record.py FILE.gguf [NAME]      writes NAME.json (default: the file's name) beside this script

Needs xllamacpp (a wheel with llama.cpp inside), gguf, numpy and jinja2:
    python3 -m venv VENV && VENV/bin/pip install xllamacpp==2026.10.11549 gguf==0.19.0 numpy jinja2
The F32 file that greedy ids and likelihoods come from is made by gguf-py, so it does not depend on `hearth quantize`.
llama.cpp is called through its C API; the structures below are those of llama.h of
2026-10, and `checked` fails where the library's defaults do not have them.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
import tempfile
from ctypes import POINTER, Structure, c_bool, c_char_p, c_float, c_int, c_int8, c_int32, c_size_t, c_uint32, c_void_p
from pathlib import Path

import gguf
import numpy as np
import xllamacpp

HERE = Path(__file__).parent
GREEDY_TOKENS = 48
CONTEXT, STRIDE, TEXT_TOKENS = 512, 256, 1536
F32, F16 = 0, 1  # ggml_type

PROMPTS = [
    "Once upon a time there was a poor woodcutter who lived with his two children",
    "The capital of France is",
    "def fibonacci(n):\n    \"\"\"Returns the n-th Fibonacci number.\"\"\"\n",
    "Water boils at 100 degrees Celsius because",
    "Dear Sir or Madam,\n\nI am writing to",
    "The three primary colours are red,",
    "SELECT name, age FROM people WHERE",
    "In 1969, the first human",
]
TEXTS = [
    "Hello, world! It's 12:30, isn't it?  Two spaces, a\ttab\nand lines.\r\n\r\n",
    "na\u00efve caf\u00e9 \u2014 \u201cquoted\u201d \u2026 \u00bd \u20ac20",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f \u0417\u0434\u0440\u0430\u0432\u0441\u0442\u0432\u0443\u0439 \u0645\u0631\u062d\u0628\u0627",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 emoji \U0001f1eb\U0001f1f7",
    "    for (int i = 0; i < 1000; ++i) { x[i] += 3.14159e-10; }  // comment",
    "1234567890 3.14 0xDEADBEEF v1.2.3-rc4",
]
CHAT = [
    {"role": "system", "content": "You answer in one short sentence."},
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "Paris."},
    {"role": "user", "content": "And of Italy?"},
]


class ModelParams(Structure):
    _fields_ = [("devices", c_void_p), ("overrides", c_void_p), ("n_gpu_layers", c_int32), ("split_mode", c_int),
                ("load_mode", c_int), ("lazy_mode", c_int), ("main_gpu", c_int32), ("tensor_split", c_void_p),
                ("progress", c_void_p), ("progress_data", c_void_p), ("kv_overrides", c_void_p),
                ("vocab_only", c_bool), ("check_tensors", c_bool), ("use_extra_bufts", c_bool), ("no_host", c_bool),
                ("no_alloc", c_bool), ("load_mtp", c_bool)]


class ContextParams(Structure):
    _fields_ = [("n_ctx", c_uint32), ("n_batch", c_uint32), ("n_ubatch", c_uint32), ("n_seq_max", c_uint32),
                ("n_rs_seq", c_uint32), ("n_outputs_max", c_uint32), ("n_outputs_max_per_seq", c_uint32),
                ("n_threads", c_int32), ("n_threads_batch", c_int32), ("ctx_type", c_int), ("rope_scaling", c_int),
                ("pooling", c_int), ("attention", c_int), ("flash_attn", c_int), ("rope_freq_base", c_float),
                ("rope_freq_scale", c_float), ("yarn", c_float * 4), ("yarn_orig_ctx", c_uint32), ("defrag", c_float),
                ("cb_eval", c_void_p), ("cb_eval_data", c_void_p), ("type_k", c_int), ("type_v", c_int),
                ("abort", c_void_p), ("abort_data", c_void_p), ("embeddings", c_bool), ("offload_kqv", c_bool),
                ("no_perf", c_bool), ("op_offload", c_bool), ("swa_full", c_bool), ("kv_unified", c_bool),
                ("samplers", c_void_p), ("n_samplers", c_size_t), ("ctx_other", c_void_p)]


class Batch(Structure):
    _fields_ = [("n_tokens", c_int32), ("token", POINTER(c_int32)), ("embd", POINTER(c_float)),
                ("pos", POINTER(c_int32)), ("n_seq_id", POINTER(c_int32)), ("seq_id", POINTER(POINTER(c_int32))),
                ("logits", POINTER(c_int8))]


def library() -> ctypes.CDLL:
    lib = ctypes.CDLL(next(str(p) for p in Path(xllamacpp.__file__).parent.glob("*.so")))
    for name, result, arguments in [
        ("llama_model_default_params", ModelParams, []), ("llama_context_default_params", ContextParams, []),
        ("llama_backend_init", None, []),
        ("llama_model_load_from_file", c_void_p, [c_char_p, ModelParams]), ("llama_model_free", None, [c_void_p]),
        ("llama_model_get_vocab", c_void_p, [c_void_p]), ("llama_vocab_n_tokens", c_int32, [c_void_p]),
        ("llama_vocab_bos", c_int32, [c_void_p]), ("llama_vocab_get_add_bos", c_bool, [c_void_p]),
        ("llama_model_chat_template", c_char_p, [c_void_p, c_char_p]), ("llama_n_ctx", c_uint32, [c_void_p]),
        ("llama_init_from_model", c_void_p, [c_void_p, ContextParams]), ("llama_free", None, [c_void_p]),
        ("llama_get_memory", c_void_p, [c_void_p]), ("llama_memory_clear", None, [c_void_p, c_bool]),
        ("llama_tokenize", c_int32, [c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32, c_bool, c_bool]),
        ("llama_batch_init", Batch, [c_int32, c_int32, c_int32]), ("llama_decode", c_int32, [c_void_p, Batch]),
        ("llama_get_logits_ith", POINTER(c_float), [c_void_p, c_int32]),
        ("llama_log_set", None, [c_void_p, c_void_p]),
    ]:
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


lib = library()


def checked() -> None:
    defaults = lib.llama_context_default_params()
    met = (defaults.n_ctx, defaults.n_batch, defaults.n_seq_max, defaults.type_k, defaults.type_v,
           defaults.n_samplers, defaults.ctx_other)
    assert met == (512, 2048, 1, F16, F16, 0, None), f"llama_context_params: other fields than expected: {met}"


def write_f32(path: Path, out: Path) -> None:
    """The same model with every tensor in F32."""
    reader = gguf.GGUFReader(path)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(out, architecture)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        value_type = field.types[0]
        writer.add_key_value(field.name, field.contents(), value_type,
                             sub_type=field.types[-1] if value_type == gguf.GGUFValueType.ARRAY else None)
    writer.add_file_type(0)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, values.reshape([int(n) for n in reversed(tensor.shape)]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Engine:
    """One model and one context of CONTEXT tokens."""

    def __init__(self, path: Path, kv_type: int) -> None:
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = lib.llama_model_load_from_file(str(path).encode(), params)
        assert self.model, path
        self.vocab = lib.llama_model_get_vocab(self.model)
        self.size = lib.llama_vocab_n_tokens(self.vocab)
        params = lib.llama_context_default_params()
        params.n_ctx = params.n_batch = CONTEXT
        params.n_threads = params.n_threads_batch = os.cpu_count()
        params.type_k = params.type_v = kv_type
        params.flash_attn = 0 if kv_type == F32 else -1
        params.swa_full = True
        self.context = lib.llama_init_from_model(self.model, params)
        assert self.context and lib.llama_n_ctx(self.context) == CONTEXT
        self.batch = lib.llama_batch_init(CONTEXT, 0, 1)
        self.bos = [lib.llama_vocab_bos(self.vocab)] if lib.llama_vocab_get_add_bos(self.vocab) else []

    def close(self) -> None:
        lib.llama_free(self.context)
        lib.llama_model_free(self.model)

    def encode(self, text: str, special: bool = False, bos: bool = False) -> list[int]:
        data = text.encode()
        ids = (c_int32 * (len(data) + 16))()
        count = lib.llama_tokenize(self.vocab, data, len(data), ids, len(ids), bos, special)
        assert count >= 0
        return list(ids[:count])

    def begin(self) -> None:
        lib.llama_memory_clear(lib.llama_get_memory(self.context), True)
        self.length = 0

    def step(self, ids: list[int], all_rows: bool) -> np.ndarray:
        """Logits after the last of these ids, or after each of them."""
        batch = self.batch
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, self.length + i, 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = 1 if all_rows or i == len(ids) - 1 else 0
        assert lib.llama_decode(self.context, batch) == 0
        self.length += len(ids)
        rows = range(len(ids)) if all_rows else [len(ids) - 1]
        return np.stack([np.ctypeslib.as_array(lib.llama_get_logits_ith(self.context, i), (self.size,)).copy()
                         for i in rows])


def greedy(engine: Engine, prompt: list[int]) -> tuple[list[int], list[float]]:
    """Ids, and by how much each was the best (in logits)."""
    engine.begin()
    row, ids, margins = engine.step(prompt, False)[0], [], []
    while len(ids) < GREEDY_TOKENS:
        best = np.argpartition(row, -2)[-2:]
        second, first = sorted(best, key=lambda i: row[i])
        ids.append(int(first))
        margins.append(round(float(row[first] - row[second]), 4))
        row = engine.step([ids[-1]], False)[0]
    return ids, margins


def log_softmax(logits: np.ndarray) -> np.ndarray:
    x = logits.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def windows(bos: list[int], ids: list[int]):
    """(window, first scored): those of `hearth perplexity --context 512 --stride 256`. Every window begins with BOS where
    the model adds one; the first scores all it holds, each later one the 256 tokens at its end."""
    room = CONTEXT - len(bos)
    scored, first = (0 if bos else 1), True
    while scored < len(ids):
        end = min(len(ids), room if first else scored + STRIDE)
        begin = max(0, end - room)
        yield bos + ids[begin:end], len(bos) + scored - begin
        scored, first = end, False


def llama_perplexity_windows(bos: list[int], ids: list[int]):
    """(window, first scored): those of llama-perplexity -c 512. BOS precedes the text if the model adds one,
    windows follow each other, BOS takes the place of the first token of each, and the second half is scored."""
    ids = bos + ids
    for begin in range(0, len(ids) - CONTEXT + 1, CONTEXT):
        window = ids[begin:begin + CONTEXT]
        if bos:
            window[0] = bos[0]
        yield window, CONTEXT // 2 + 1


def score(engine: Engine, parts) -> tuple[list[np.ndarray], float, int]:
    """Log probabilities of the rows that score, negative log likelihood in nats per token, tokens."""
    kept, nll, count = [], 0.0, 0
    for window, first in parts:
        engine.begin()
        rows = log_softmax(engine.step(window, True)[first - 1:len(window) - 1])
        nll -= sum(rows[i, token] for i, token in enumerate(window[first:]))
        count += len(window) - first
        kept.append(rows.astype(np.float32))
    return kept, nll / count, count


def rendered(template: str) -> str:
    import jinja2.sandbox

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(messages=CHAT, add_generation_prompt=True)


def record(path: Path, f32: Path) -> dict:
    text = (HERE / "text.txt").read_text()
    exact = Engine(f32, F32)
    ids = exact.encode(text)[:TEXT_TOKENS]
    prompts = []
    for prompt in PROMPTS:
        prompt_ids = exact.encode(prompt, bos=True)
        new, margins = greedy(exact, prompt_ids)
        prompts.append({"prompt": prompt, "ids": prompt_ids, "greedy": new, "margins": margins})
    texts = [{"text": t, "ids": exact.encode(t, bos=True)} for t in TEXTS]
    wanted, f32_nll, count = score(exact, windows(exact.bos, ids))
    _, f32_lp_nll, lp_count = score(exact, llama_perplexity_windows(exact.bos, ids))
    out = {
        "file": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "llama_cpp": f"xllamacpp {xllamacpp.__version__}, CPU, {os.cpu_count()} threads",
        "prompts": prompts,
        "texts": texts,
    }
    template = lib.llama_model_chat_template(exact.model, None)
    if template:
        prompt = rendered(template.decode())
        prompt_ids = exact.encode(prompt, special=True)
        new, margins = greedy(exact, prompt_ids)
        out["chat"] = {"messages": CHAT, "prompt": prompt, "ids": prompt_ids, "greedy": new, "margins": margins}
    exact.close()
    published = Engine(path, F16)
    rows, nll, _ = score(published, windows(published.bos, ids))
    _, lp_nll, _ = score(published, llama_perplexity_windows(published.bos, ids))
    published.close()
    kl = same = 0.0
    for p, q in zip(wanted, rows):
        kl += float((np.exp(p) * (p - q)).sum(dtype=np.float64))
        same += int((p.argmax(-1) == q.argmax(-1)).sum())
    out["windows"] = {"context": CONTEXT, "stride": STRIDE, "text_tokens": len(ids), "scored": count,
                      "f32_nll": f32_nll, "nll": nll, "kl": kl / count, "same_best": same / count}
    out["llama_perplexity"] = {"context": CONTEXT, "scored": lp_count, "f32_nll": f32_lp_nll, "nll": lp_nll}
    return out


def main() -> None:
    path = Path(sys.argv[1])
    name = sys.argv[2] if len(sys.argv) > 2 else path.stem
    quiet = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)(lambda *_: None)  # referenced as long as it may be called
    lib.llama_log_set(ctypes.cast(quiet, c_void_p), None)
    lib.llama_backend_init()
    checked()
    with tempfile.TemporaryDirectory() as directory:
        f32 = Path(directory) / "f32.gguf"
        write_f32(path, f32)
        value = record(path, f32)
    lines = [f"  {json.dumps(key)}: {json.dumps(part, separators=(',', ':'))}" for key, part in value.items()]
    (HERE / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    least = sorted(margin for prompt in value["prompts"] for margin in prompt["margins"])
    print(f"{name}: least margins {least[:5]}, windows {value['windows']}")


if __name__ == "__main__":
    main()
