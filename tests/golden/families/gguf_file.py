"""Writes a tiny model as a GGUF file with a vocabulary, through the gguf package."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from tiny_models import VOCAB, TinyModel, tensor_values


def write_gguf(model: TinyModel, path: Path, draft_tokens: list[int] | None = None, mask: int | None = None) -> None:
    """`draft_tokens`: those that an EAGLE-3 head drafts, if not all. `mask`: the mask token of a DFlash drafter."""
    writer = gguf.GGUFWriter(path, model.architecture)
    for key, value in model.full_metadata().items():
        if key == "plamo2.attention.head_count":
            value = max(value)  # see README.md
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    # Ids are given and taken as numbers: any vocabulary does that has VOCAB tokens.
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(["<unk>", "<s>", "\n"] + [f"\u2581t{i}" for i in range(3, VOCAB - 1)] + ["</s>"])
    writer.add_token_scores([0.0] * VOCAB)
    writer.add_token_types([2, 3] + [1] * (VOCAB - 3) + [3])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(VOCAB - 1)
    if mask is not None:
        writer.add_mask_token_id(mask)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    for tensor in model.tensors:
        values = tensor_values(tensor, model.seed).astype(np.float32)
        writer.add_tensor(tensor.name, values.reshape(tensor.dims[::-1]))
    if draft_tokens:
        writer.add_tensor("d2t", np.array(draft_tokens, dtype=np.int64))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
