"""From trained weights to a GGUF file of arch `llama`, and from the file back to a model."""

from pathlib import Path

import numpy as np
import torch

import gguf_file as gguf
import tokenizer
from model import Llama, Shape

FILE_TYPES = {"f16": 1, "q8_0": 7}


def export(model: Llama, sp, name: str, description: str, weight_type: str, path: Path) -> None:
    s = model.shape
    pieces, scores, types = tokenizer.vocabulary(sp)
    metadata = {
        "general.architecture": (gguf.STRING, "llama"),
        "general.type": (gguf.STRING, "model"),
        "general.name": (gguf.STRING, name),
        "general.description": (gguf.STRING, description),
        "general.license": (gguf.STRING, "apache-2.0"),
        "general.languages": (gguf.ARRAY, (gguf.STRING, ["en"])),
        "general.file_type": (gguf.UINT32, FILE_TYPES[weight_type]),
        "general.quantization_version": (gguf.UINT32, 2),
        "general.alignment": (gguf.UINT32, gguf.ALIGNMENT),
        "llama.block_count": (gguf.UINT32, s.layers),
        "llama.context_length": (gguf.UINT32, s.context),
        "llama.embedding_length": (gguf.UINT32, s.width),
        "llama.feed_forward_length": (gguf.UINT32, s.ffn),
        "llama.attention.head_count": (gguf.UINT32, s.heads),
        "llama.attention.head_count_kv": (gguf.UINT32, s.kv_heads),
        "llama.attention.layer_norm_rms_epsilon": (gguf.FLOAT32, s.norm_eps),
        "llama.rope.dimension_count": (gguf.UINT32, s.head_dim),
        "llama.rope.freq_base": (gguf.FLOAT32, s.rope_base),
        "llama.vocab_size": (gguf.UINT32, s.vocab),
        "tokenizer.ggml.model": (gguf.STRING, "llama"),
        "tokenizer.ggml.tokens": (gguf.ARRAY, (gguf.STRING, pieces)),
        "tokenizer.ggml.scores": (gguf.ARRAY, (gguf.FLOAT32, scores)),
        "tokenizer.ggml.token_type": (gguf.ARRAY, (gguf.INT32, types)),
        "tokenizer.ggml.bos_token_id": (gguf.UINT32, sp.bos_id()),
        "tokenizer.ggml.eos_token_id": (gguf.UINT32, sp.eos_id()),
        "tokenizer.ggml.unknown_token_id": (gguf.UINT32, sp.unk_id()),
        "tokenizer.ggml.add_bos_token": (gguf.BOOL, True),
        "tokenizer.ggml.add_eos_token": (gguf.BOOL, False),
        "tokenizer.ggml.add_space_prefix": (gguf.BOOL, False),
        "tokenizer.chat_template": (gguf.STRING, tokenizer.CHAT_TEMPLATE),
    }
    tensors = {name: p.float().cpu().numpy() for name, p in model.gguf_tensors().items()}
    gguf.write(path, metadata, tensors, weight_type)


def export_canvas(model: Llama, like: Path, mask: int, path: Path) -> None:
    """As arch `llada`, with the vocabulary and the shape of the file `like`, of arch `llama`; Q8_0."""
    kinds = {bool: gguf.BOOL, int: gguf.UINT32, float: gguf.FLOAT32, str: gguf.STRING}
    metadata = {}
    for key, value in gguf.Reader(like).metadata.items():
        key = key.replace("llama.", "llada.", 1)
        if isinstance(value, list):
            item = gguf.INT32 if key.endswith("token_type") else kinds[type(value[0])]
            metadata[key] = (gguf.ARRAY, (item, value))
        else:
            metadata[key] = (kinds[type(value)], value)
    metadata.update({
        "general.architecture": (gguf.STRING, "llada"),
        "general.name": (gguf.STRING, "tales-canvas"),
        "general.description": (gguf.STRING, "Denoises a canvas of a tale; trained by models/demo/canvas.py."),
        "llada.attention.causal": (gguf.BOOL, False),
        "tokenizer.ggml.mask_token_id": (gguf.UINT32, mask),
        "diffusion.shift_logits": (gguf.BOOL, True),
        "diffusion.block_length": (gguf.UINT32, 16),
    })
    tensors = {name: p.float().cpu().numpy() for name, p in model.gguf_tensors().items()}
    gguf.write(path, metadata, tensors, "q8_0")


def load(path: Path) -> Llama:
    """The model as the file has it, its weights rounded as there."""
    file = gguf.Reader(path)
    m = file.metadata
    model = Llama(Shape(
        width=m["llama.embedding_length"], layers=m["llama.block_count"], ffn=m["llama.feed_forward_length"],
        heads=m["llama.attention.head_count"], kv_heads=m["llama.attention.head_count_kv"],
        head_dim=m["llama.rope.dimension_count"], vocab=m["llama.vocab_size"], context=m["llama.context_length"],
        rope_base=m["llama.rope.freq_base"], norm_eps=m["llama.attention.layer_norm_rms_epsilon"]))
    for name, p in model.gguf_tensors().items():
        p.copy_(torch.from_numpy(np.array(file.tensors[name])))
    return model.eval()
