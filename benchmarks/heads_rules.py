"""Honest rules beside W_mm of many queries: ``python -m benchmarks.heads_rules``.

The study has 60 queries per head. W_mm of 500 (MiniLM) and 250 (rxnmapper) was measured earlier and is kept in
results/heads_minilm_500.json and heads_rxnmapper_250.json; this computes, on the same held-out queries, how often the
best rule without weights agrees with the head, and writes results/heads_rules.json.
"""

from __future__ import annotations

import json
from typing import Any

import torch

from attsvm.heads import Settings, sample_reactions, sample_texts
from attsvm.heads.analysis.analyze import _held_out
from attsvm.heads.analysis.head import HeadTask
from attsvm.heads.analysis.rules import MOST_QUERIES, best_rule
from attsvm.heads.analysis.selections import choices, layers_of
from benchmarks.heads import loaded
from benchmarks.record import RESULTS, machine

COMMAND = "python -m benchmarks.heads_rules"


def compared(name: str, queries: int, texts: list[str]) -> list[dict[str, Any]]:
    """W_mm and the best rule of every head."""
    earlier = json.loads((RESULTS / f"heads_{name}_{queries}.json").read_text())
    known = {row["head"]: row for row in earlier["rows"]}
    model, settings = loaded(name), Settings(queries=queries)
    sentences = model.encode(texts)
    apart = _held_out(len(sentences), settings)
    rows = []
    for layer in layers_of(model, sentences, range(model.layers), ()):
        for head in range(model.heads):
            form = model.weights(layer.index, head)
            confident = choices(layer.views, form).confident(settings.confidence)
            task = HeadTask((layer.index, head), form, layer.views, (), apart, 0.0, settings)
            training, tested = confident.within(~apart), task.draw(confident, "own", queries)[1]
            if len(training) == 0 or len(tested) == 0:
                continue
            rule, share = best_rule(layer.views, training.draw(MOST_QUERIES, task.stream("rules")), tested)
            before = known[f"L{layer.index}H{head}"]
            rows.append({
                "head": before["head"], "rule": rule, "agreement_rule": share, "agreement": before["agreement"],
                "earlier_rule": earlier["heads"][before["head"]]["rule"],
                "agreement_earlier_rule": before["agreement_rule"],
            })  # fmt: skip
            print(name, rows[-1], flush=True)
    return rows


def main() -> None:
    """Both models."""
    torch.set_num_threads(1)
    record = {"command": COMMAND, "machine": machine()}
    record["minilm"] = compared("minilm", 500, sample_texts())
    record["rxnmapper"] = compared("rxnmapper", 250, sample_reactions())
    (RESULTS / "heads_rules.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
