"""Writes NAME.json of tiny encoders: how to make their files, and the rows that transformers computes.

usage: record.py

The oracle is the published implementation (transformers' BertModel and NomicBertModel) in float64 with the
values that tests/golden/families/tiny_models.py makes from a seed; nothing of it is written here.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel, NomicBertConfig, NomicBertModel

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "families"))

from tiny_models import Tensor, TinyModel, power_of_two  # noqa: E402

VOCAB, WIDTH, LAYERS, HEADS, FFN, CONTEXT = 96, 64, 3, 4, 96, 80
LENGTHS = [1, 2, 17, 80]
RANK = 4  # pooling: a score, by a classifier of the first row


def tiny(name: str, nomic: bool, pooling: int, types: int = 2) -> TinyModel:
    metadata = {
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "block_count": LAYERS,
        "feed_forward_length": FFN,
        "attention.head_count": HEADS,
        "attention.layer_norm_epsilon": 1e-12,
        "attention.causal": False,
        "pooling_type": pooling,
    }
    if nomic:
        metadata["rope.freq_base"] = 1000.0
    model = TinyModel(name, "nomic-bert" if nomic else "bert", metadata, seed=3, context=CONTEXT)

    def matrix(tensor: str, cols: int, rows: int, gain: float = 1.0) -> None:
        model.tensors.append(Tensor(tensor, [cols, rows], 0.0, power_of_two(gain * math.sqrt(3.0 / cols))))

    def vector(tensor: str, size: int, mean: float, amplitude: float) -> None:
        model.tensors.append(Tensor(tensor, [size], mean, amplitude))

    def norm(tensor: str) -> None:
        vector(tensor + ".weight", WIDTH, 1.0, 0.25)
        vector(tensor + ".bias", WIDTH, 0.0, 0.25)

    model.tensors.append(Tensor("token_embd.weight", [WIDTH, VOCAB], 0.0, 1.0))
    model.tensors.append(Tensor("token_types.weight", [WIDTH, types], 0.0, 0.5))
    if not nomic:
        model.tensors.append(Tensor("position_embd.weight", [WIDTH, CONTEXT], 0.0, 1.0))
    norm("token_embd_norm")
    for i in range(LAYERS):
        blk = f"blk.{i}."
        if nomic:
            matrix(blk + "attn_qkv.weight", WIDTH, 3 * WIDTH, 2.0)
        else:
            for part in "qkv":
                matrix(f"{blk}attn_{part}.weight", WIDTH, WIDTH, 2.0)
                vector(f"{blk}attn_{part}.bias", WIDTH, 0.0, 0.5)
        matrix(blk + "attn_output.weight", WIDTH, WIDTH)
        if not nomic:
            vector(blk + "attn_output.bias", WIDTH, 0.0, 0.5)
        norm(blk + "attn_output_norm")
        if nomic:
            matrix(blk + "ffn_gate.weight", WIDTH, FFN, 2.0)
        matrix(blk + "ffn_up.weight", WIDTH, FFN, 2.0)
        if not nomic:
            vector(blk + "ffn_up.bias", FFN, 0.0, 0.5)
        matrix(blk + "ffn_down.weight", FFN, WIDTH)
        if not nomic:
            vector(blk + "ffn_down.bias", WIDTH, 0.0, 0.5)
        norm(blk + "layer_output_norm")
    if pooling == RANK:
        matrix("cls.weight", WIDTH, WIDTH)
        vector("cls.bias", WIDTH, 0.0, 0.5)
        matrix("cls.output.weight", WIDTH, 1, 4.0)
        vector("cls.output.bias", 1, 0.5, 0.25)
    return model


def oracle(model: TinyModel) -> torch.nn.Module:
    nomic = model.architecture == "nomic-bert"
    shared = dict(vocab_size=VOCAB, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                  intermediate_size=FFN, max_position_embeddings=CONTEXT,
                  type_vocab_size=model.values()["token_types.weight"].shape[0],
                  layer_norm_eps=1e-12, attn_implementation="eager")
    if nomic:
        config = NomicBertConfig(**shared, rope_parameters={"rope_type": "default", "rope_theta": 1000.0})
        net = NomicBertModel(config, add_pooling_layer=False)
    else:
        net = BertModel(BertConfig(**shared, hidden_act="gelu"), add_pooling_layer=False)
    net = net.double().eval()
    values = {name: torch.from_numpy(value) for name, value in model.values().items()}
    state = {}

    def put(theirs: str, ours: str) -> None:
        state[theirs] = values[ours]

    put("embeddings.word_embeddings.weight", "token_embd.weight")
    put("embeddings.token_type_embeddings.weight", "token_types.weight")
    if not nomic:
        put("embeddings.position_embeddings.weight", "position_embd.weight")
    for part in ("weight", "bias"):
        put(f"embeddings.LayerNorm.{part}", f"token_embd_norm.{part}")
    names = sorted(net.state_dict())
    for i in range(LAYERS):
        blk = f"blk.{i}."
        if nomic:
            q, k, v = values[blk + "attn_qkv.weight"].chunk(3)
            layer = f"layers.{i}."
            state[layer + "self_attn.q_proj.weight"] = q
            state[layer + "self_attn.k_proj.weight"] = k
            state[layer + "self_attn.v_proj.weight"] = v
            put(layer + "self_attn.o_proj.weight", blk + "attn_output.weight")
            for part in ("weight", "bias"):
                put(f"{layer}post_attention_layernorm.{part}", f"{blk}attn_output_norm.{part}")
                put(f"{layer}post_mlp_layernorm.{part}", f"{blk}layer_output_norm.{part}")
            put(layer + "mlp.gate_proj.weight", blk + "ffn_gate.weight")
            put(layer + "mlp.up_proj.weight", blk + "ffn_up.weight")
            put(layer + "mlp.down_proj.weight", blk + "ffn_down.weight")
        else:
            layer = f"encoder.layer.{i}."
            for part in ("weight", "bias"):
                for theirs, ours in (("query", "q"), ("key", "k"), ("value", "v")):
                    put(f"{layer}attention.self.{theirs}.{part}", f"{blk}attn_{ours}.{part}")
                put(f"{layer}attention.output.dense.{part}", f"{blk}attn_output.{part}")
                put(f"{layer}attention.output.LayerNorm.{part}", f"{blk}attn_output_norm.{part}")
                put(f"{layer}intermediate.dense.{part}", f"{blk}ffn_up.{part}")
                put(f"{layer}output.dense.{part}", f"{blk}ffn_down.{part}")
                put(f"{layer}output.LayerNorm.{part}", f"{blk}layer_output_norm.{part}")
    missing, unexpected = net.load_state_dict(state, strict=False)
    missing = [name for name in missing if not name.endswith(("position_ids", "token_type_ids", "inv_freq"))]
    assert not missing and not unexpected, (missing, unexpected, names)
    return net


def scorer(model: TinyModel, net: torch.nn.Module) -> torch.nn.Module:
    """The published model with its pooler and classifier, over the weights of `net`."""
    whole = BertForSequenceClassification(BertConfig(**net.config.to_diff_dict() | {"num_labels": 1})).double().eval()
    state = {f"bert.{name}": value for name, value in net.state_dict().items()}
    values = {name: torch.from_numpy(value) for name, value in model.values().items()}
    for part in ("weight", "bias"):
        state[f"bert.pooler.dense.{part}"] = values[f"cls.{part}"]
        state[f"classifier.{part}"] = values[f"cls.output.{part}"].reshape((1, -1) if part == "weight" else -1)
    missing, unexpected = whole.load_state_dict(state, strict=False)
    assert not [m for m in missing if not m.endswith("ids")] and not unexpected, (missing, unexpected)
    return whole


def ids_of(length: int) -> list[int]:
    state, ids = 7 * length, []
    for _ in range(length):
        state = (state * 1103515245 + 12345) % (1 << 31)
        ids.append((state >> 16) % VOCAB)
    return ids


def record(model: TinyModel) -> dict:
    net = oracle(model)
    texts = []
    whole = scorer(model, net) if model.metadata["pooling_type"] == RANK else None
    for length in LENGTHS:
        ids = ids_of(length)
        with torch.no_grad():
            rows = net(input_ids=torch.tensor([ids])).last_hidden_state[0]
        kept = sorted({0, length // 2, length - 1})
        mean = torch.nn.functional.normalize(rows.mean(0), dim=0)
        texts.append({
            "ids": ids,
            "rows": {str(i): [round(float(v), 6) for v in rows[i]] for i in kept},
            "mean": [round(float(v), 7) for v in mean],
            "cls": [round(float(v), 7) for v in torch.nn.functional.normalize(rows[0], dim=0)],
        })
        if whole is not None:
            with torch.no_grad():
                texts[-1]["score"] = round(float(whole(input_ids=torch.tensor([ids])).logits), 7)
    return {
        "name": model.name,
        "architecture": model.architecture,
        "context": model.context,
        "seed": model.seed,
        "metadata": model.full_metadata(),
        "tensors": [[t.name, t.dims, t.mean, t.amplitude] for t in model.tensors],
        "texts": texts,
    }


if __name__ == "__main__":
    for made in (tiny("bert", False, 2), tiny("nomic-bert", True, 1), tiny("bert-rank", False, RANK, 1)):
        (HERE / f"{made.name}.json").write_text(json.dumps(record(made)) + "\n")
        print(made.name)
