"""Heads with positions inside their logits: ``python -m benchmarks.heads_positions``.

Writes results/heads_positions.json: on 50 small rotary heads, the value of the max-margin problem through the kernel
beside that of the problem of lifted tokens, written out; how far the attention recomputed from the weights is from the
model's own in all heads of a GGUF file (``--part exact``); time, memory and gaps of solving all of them (``--part
scale``); and of the heads of one layer with thousands of queries (``--part states`` writes their states, which
``--part many`` reads, on a GPU).
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attsvm import AttentionSVM, TokenDataset, solve
from attsvm.heads import HeadModel, HeadWeights, Sentence, Settings, load, sample_texts
from attsvm.heads.analysis.comparison import compare_with_max_margin
from attsvm.heads.analysis.lifted import Pairs, solve_lifted
from attsvm.heads.analysis.selections import SentenceView, choices, layers_of
from attsvm.heads.model import allowed_tokens, form_errors
from attsvm.norms import Frobenius
from benchmarks.record import RESULTS, machine

COMMAND = "python -m benchmarks.heads_positions"
HEADS = 50
WIDTH, LENGTH, VOCABULARY = 24, 9, 50


def small_model(seed: int) -> HeadModel:
    """Two layers of four query heads and two key heads, with weights large enough for peaked attention."""
    from transformers import LlamaConfig, LlamaModel  # not needed where only states are read

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
    lifted = (features[:, :, None] * pairs.states[pairs.place][:, None]).flatten(1)
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


def joined(count: int) -> list[str]:
    """The bundled sample, `count` sentences to a text."""
    texts = sample_texts()
    return [" ".join(texts[first : first + count]) for first in range(0, len(texts), count)]


def one_head(form: HeadWeights, views: Sequence[SentenceView], settings: Settings, name: str) -> dict[str, Any]:
    """The problem of at most `settings.queries` confident queries of one head, solved; nothing is held out."""
    began, cpu = time.perf_counter(), time.process_time()
    sure = choices(views, form).confident(settings.confidence)
    drawn = sure.draw(settings.queries, torch.Generator().manual_seed(settings.seed))
    record = {"head": name, "confident": len(sure), "queries": len(drawn)}
    if len(drawn):
        found = compare_with_max_margin(form, views, drawn, drawn[torch.arange(0)], Frobenius(), settings).closeness
        record |= {
            "rows": found.rows, "support": found.support_rows, "solved": found.solved, "gap": found.gap,
            "status": found.status, "max margin": found.max_margin,
            "efficiency": found.efficiency_projected.smallest,
        }  # fmt: skip
    spent = {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    return record | {f"{kind} seconds": round(value, 3) for kind, value in spent.items()}


def summary(heads: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of a list of `one_head`."""
    some = [head for head in heads if head["queries"]]
    return {
        "heads": len(heads), "without confident queries": len(heads) - len(some),
        "not solved": [head["head"] for head in some if not head["solved"]],
        "queries": sum(head["queries"] for head in some), "rows": sum(head["rows"] for head in some),
        "largest gap": max((head["gap"] for head in some if head["solved"]), default=None),
        "cpu seconds": round(sum(head["cpu seconds"] for head in heads), 1),
        "largest cpu seconds": max(head["cpu seconds"] for head in heads),
        "wall seconds": round(sum(head["wall seconds"] for head in heads), 1),
    }  # fmt: skip


def scale(path: Path, layers: Sequence[int] | None, texts: Sequence[str], queries: int, keep: Callable) -> None:
    """The solves of all heads of some layers, controls apart; `keep` is given the record after every layer."""
    torch.set_num_threads(1)
    clock = [time.process_time()]
    model = load(path)
    clock.append(time.process_time())
    sentences = model.encode(texts)
    settings = Settings(queries=queries)
    heads: list[dict[str, Any]] = []
    for layer in layers_of(model, sentences, range(model.layers) if layers is None else layers, ()):
        if not heads:
            clock.append(time.process_time())
        heads += [
            one_head(model.weights(layer.index, head), layer.views, settings, f"L{layer.index}H{head}")
            for head in range(model.heads)
        ]
        keep({
            "model": model.name, "texts": len(texts), "tokens": sum(map(len, sentences)), "queries asked for": queries,
            "cpu seconds of loading": round(clock[1] - clock[0], 1),
            "cpu seconds of running the model": round(clock[2] - clock[1], 1),
            "peak gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
            **summary(heads), "each": heads,
        })  # fmt: skip


def write_states(path: Path, layer: int, texts: Sequence[str], target: Path) -> None:
    """States and weights of one layer, for a machine without the model."""
    model = load(path)
    sentences = model.encode(texts)
    (view,) = layers_of(model, sentences, [layer], ())
    forms = [model.weights(layer, head) for head in range(model.heads)]
    longest = max(view.views, key=lambda one: len(one.keys))
    pairs, phases = forms[0].pairs, longest.phases
    assert pairs is not None
    assert phases is not None
    np.savez(
        target, layer=layer, lengths=[len(one.keys) for one in view.views], pairs=pairs.numpy(), phases=phases.numpy(),
        states=torch.cat([one.keys for one in view.views]).float().numpy(),
        key=torch.stack([form.key for form in forms]).float().numpy(),
        query=torch.stack([form.query for form in forms]).float().numpy(),
    )  # fmt: skip


def many_queries(source: Path, device: str, queries: Sequence[int], keep: Callable) -> None:
    """The heads of a layer with more and more queries, from the file of `write_states`."""
    with np.load(source) as stored:
        arrays = {name: torch.from_numpy(stored[name]) for name in stored.files}
    views = []
    for number, states in enumerate(arrays["states"].double().split(arrays["lengths"].tolist())):
        size = len(states)
        sentence = Sentence(str(number), ("",) * size, torch.arange(size), torch.zeros(size, dtype=torch.bool))
        phases, allowed = arrays["phases"][:size], allowed_tokens(size, causal=True)
        views.append(SentenceView(states, states, allowed, phases, sentence=sentence))
    layer, heads = int(arrays["layer"]), []
    for count in queries:
        for head, (key, query) in enumerate(zip(arrays["key"].double(), arrays["query"].double(), strict=True)):
            form = HeadWeights(key, query, arrays["pairs"])
            heads.append(one_head(form, views, Settings(queries=count, device=device), f"L{layer}H{head}"))
            print(heads[-1], flush=True)
            cuda = device != "cpu"
            keep({
                "device": torch.cuda.get_device_name() if cuda else "cpu", "tokens": len(arrays["states"]),
                "peak gigabytes of the device": round(torch.cuda.max_memory_allocated() / 2**30, 2) if cuda else None,
                "by queries": {n: summary(part) for n in queries if (part := [
                    one for k, one in enumerate(heads) if queries[k // len(arrays["key"])] == n])},
                "each": heads,
            })  # fmt: skip


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--part", choices=("small", "exact", "scale", "states", "many"), default="small")
    parser.add_argument("--smollm", type=Path, help="the GGUF file, for exact, scale and states")
    parser.add_argument("--texts", type=int, default=10, help="for exact")
    parser.add_argument("--joined", type=int, default=1, help="sentences to a text, for scale and states")
    parser.add_argument("--layers", type=int, nargs="+", help="for scale (all) and states (the first given)")
    parser.add_argument("--queries", type=int, nargs="+", default=[300], help="for each head, for scale and many")
    parser.add_argument("--states", type=Path, help="what states writes and many reads")
    parser.add_argument("--device", default="cpu", help="for many")
    parser.add_argument("--name", help="of the entry in the file, by default the part")
    parser.add_argument("--out", type=Path, default=RESULTS / "heads_positions.json")
    given = parser.parse_args()

    def keep(entry: dict[str, Any]) -> None:
        record = json.loads(given.out.read_text()) if given.out.exists() else {}
        name = given.name or {"small": "small heads", "exact": "exactness"}.get(given.part, given.part)
        record |= {name: {"command": " ".join([COMMAND, *sys.argv[1:]]), "machine": machine(), **entry}}
        given.out.write_text(json.dumps(record, indent=1) + "\n")
        print({key: value for key, value in entry.items() if not isinstance(value, list)}, flush=True)

    if given.part == "exact":
        keep(exactness(given.smollm, given.texts))
    elif given.part == "scale":
        scale(given.smollm, given.layers, joined(given.joined), given.queries[0], keep)
    elif given.part == "states":
        write_states(given.smollm, given.layers[0], joined(given.joined), given.states)
    elif given.part == "many":
        many_queries(given.states, given.device, given.queries, keep)
    else:
        heads = small_heads()
        apart = max(abs(head["kernel"] / head["written out"] - 1) for head in heads)
        gap = max(max(head["kernel gap"], head["written out gap"]) for head in heads)
        keep({"largest relative difference": apart, "largest gap": gap, "heads": heads})


if __name__ == "__main__":
    main()
