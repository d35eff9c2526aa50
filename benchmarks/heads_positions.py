"""Heads with positions inside their logits: ``python -m benchmarks.heads_positions``.

Writes results/heads_positions.json: on 50 small rotary heads, the value of the max-margin problem through the kernel
beside that of the problem of lifted tokens, written out; with ``--smollm FILE``, how far the attention recomputed from
the weights is from the model's own in all heads of a GGUF file.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaModel

from attsvm import AttentionSVM, TokenDataset, solve
from attsvm.heads import HeadModel, Settings, load, sample_texts
from attsvm.heads.analysis.lifted import Pairs, solve_lifted
from attsvm.heads.analysis.selections import choices, layers_of
from attsvm.heads.model import form_errors
from benchmarks.record import RESULTS, machine

COMMAND = "python -m benchmarks.heads_positions"
HEADS = 50
WIDTH, LENGTH, VOCABULARY = 24, 9, 50


def small_model(seed: int) -> HeadModel:
    """Two layers of four query heads and two key heads, with weights large enough for peaked attention."""
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=32, max_position_embeddings=64, pad_token_id=0,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    live = LlamaModel(config)
    with torch.no_grad():
        for parameter in live.parameters():
            around = 1.0 if parameter.ndim == 1 else 0.0
            parameter.copy_(around + 0.4 * torch.randn(parameter.shape, generator=generator))
    return load(live)


def written_out(pairs: Pairs, selected: torch.Tensor) -> AttentionSVM:
    """The problem of the lifted tokens ``[cos x ; sin x]`` of every frequency; each query has tokens of its own."""
    assert pairs.phases is not None
    features = torch.view_as_real(pairs.phases).flatten(1)
    lifted = (features[:, :, None] * pairs.keys[:, None]).flatten(1)
    n = len(pairs.queries)
    place = torch.cat([torch.arange(size) for size in torch.bincount(pairs.query).tolist()])
    tokens = torch.zeros(n, int(place.max()) + 1, lifted.shape[1], dtype=torch.float64)
    mask = torch.zeros(tokens.shape[:2], dtype=torch.bool)
    tokens[pairs.query, place], mask[pairs.query, place] = lifted, True
    data = TokenDataset(tokens, pairs.queries, torch.ones(n, dtype=torch.float64), mask=mask)
    return AttentionSVM(data, place[selected])


def small_heads() -> list[dict[str, Any]]:
    """Kernel and lifted problem of `HEADS` heads, each with at most 40 confident queries."""
    found: list[dict[str, Any]] = []
    seed = 0
    while len(found) < HEADS:
        model, seed = small_model(seed), seed + 1
        generator = torch.Generator().manual_seed(seed)
        texts = [torch.randint(1, VOCABULARY, (LENGTH,), generator=generator).tolist() for _ in range(12)]
        for layer in layers_of(model, model.encode(texts), range(model.layers), ()):
            for head in range(model.heads):
                form = model.weights(layer.index, head)
                drawn = choices(layer.views, form).confident(0.5).draw(40, generator)
                if len(drawn) == 0 or len(found) == HEADS:
                    continue
                began = time.perf_counter()
                ours = solve_lifted(form, layer.views, drawn, Settings(accuracy=1e-8))
                between = time.perf_counter()
                other = solve(written_out(ours.pairs, ours.selected))
                found.append({
                    "seed": seed - 1, "head": f"L{layer.index}H{head}", "queries": len(drawn),
                    "kernel": ours.value, "kernel gap": ours.gap, "kernel seconds": round(between - began, 4),
                    "written out": float(other.weights.norm()),
                    "written out gap": float(other.certificate.relative_gap),
                    "written out seconds": round(time.perf_counter() - between, 4),
                })  # fmt: skip
    return found


def exactness(path: Path, texts: int) -> dict[str, Any]:
    """How far recomputed attention is from the model's own in every head, over some texts."""
    model = load(path)
    forms = [model.forms(layer) for layer in range(model.layers)]
    worst = torch.zeros(model.layers, model.heads, dtype=torch.float64)
    for sentence in model.encode(sample_texts()[:texts]):
        worst = worst.maximum(form_errors(model.states(sentence), forms))
    return {
        "model": model.name, "notes": model.notes, "heads": worst.numel(), "texts": texts,
        "largest error": float(worst.max()), "median error": float(worst.median()),
        "gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }  # fmt: skip


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--smollm", type=Path, help="a GGUF file, for the exactness of all its heads")
    parser.add_argument("--texts", type=int, default=10)
    given = parser.parse_args()
    target = RESULTS / "heads_positions.json"
    record = json.loads(target.read_text()) if target.exists() else {}
    record |= {"command": COMMAND, "machine": machine()}
    if given.smollm is not None:
        record["exactness"] = exactness(given.smollm, given.texts)
        print(record["exactness"])
    else:
        heads = small_heads()
        apart = max(abs(head["kernel"] / head["written out"] - 1) for head in heads)
        gap = max(max(head["kernel gap"], head["written out gap"]) for head in heads)
        record["small heads"] = {"largest relative difference": apart, "largest gap": gap, "heads": heads}
        print(f"{len(heads)} heads: values differ by at most {apart:.1e}, gaps at most {gap:.1e}")
    target.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
