"""What explanations and edits of heads claim, checked in the models: ``python -m benchmarks.explain --part PART``.

Parts, each with a file results/explain_PART.json, all draws with seed 0:

- ``why``: random (head, query) pairs of four models. Do the sums add up to the gap? Run through the model in float64,
  does 1.001 of a stated change flip the choice, and .9 not?
- ``ablate``: one earlier part is taken out. The change of the gap that its share predicts, against the change in the
  model: with all other parts held as they were, so that only norms react, and with everything computed anew.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attsvm.heads import Reading, load, sample_reactions, sample_texts
from attsvm.heads.explain.trace import BIASES, Trace, in_float64, trace
from attsvm.heads.explain.why import Why
from attsvm.heads.loading.transformers_model import TransformersModel
from benchmarks.record import publish

COMMAND = "python -m benchmarks.explain --part {}"
WEIGHTS = Path(".weights")
MODELS: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "MiniLM": ("minilm", sample_texts),
    "rxnmapper": ("rxnmapper", sample_reactions),
    "Whisper": ("whisper/tiny.en.pt", sample_texts),
    "SmolLM2": ("smollm/SmolLM2-135M-Instruct.Q4_1.gguf", sample_texts),
}
LONGEST = 60  # tokens of a text


def loaded(name: str) -> tuple[TransformersModel, list[str]]:
    """A model and texts for it."""
    model = load(WEIGHTS / MODELS[name][0])
    assert isinstance(model, TransformersModel)
    return model, MODELS[name][1]()


def readings(
    model: TransformersModel, texts: list[str], count: int, each: int, upstream: bool = True
) -> Iterator[tuple[Reading, int]]:
    """`count` random pairs of a head and a query that chooses, `each` of them on one text."""
    generator = torch.Generator().manual_seed(0)

    def drawn(size: int) -> int:
        return int(torch.randint(size, (1,), generator=generator))

    done = 0
    while done < count:
        (sentence,) = model.encode([texts[drawn(len(texts))]])
        if not 2 <= len(sentence) <= LONGEST:
            continue
        found = trace(model, sentence, upstream)
        for _ in range(min(each, count - done)):
            head = f"L{drawn(model.layers)}H{drawn(model.heads)}"
            reading = Reading(model, sentence, head, traced=found)
            yield reading, reading.choosing[drawn(len(reading.choosing))]
            done += 1


def flipped(model: TransformersModel, reading: Reading, found: Why, factors: tuple[float, ...]) -> list[list[bool]]:
    """For every stated change and factor, whether the model chooses another token; one run for all of them."""
    layer, cases = model._layers[reading.layer], [(flip, factor) for flip in found.flips for factor in factors]
    repeats = sum(own.query.module is layer.query.module for own in model._layers) > 1  # one module for all layers
    inputs = {
        name: value.expand(len(cases), *value.shape[1:]).to(torch.float64 if value.is_floating_point() else value.dtype)
        for name, value in model._inputs(reading.sentence).items()
    }
    seen: dict[nn.Module, int] = {}

    def change(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        seen[module] = seen.get(module, -1) + 1
        if seen[module] != (reading.layer if repeats else 0):
            return given
        moved = given[0].clone()
        for row, (flip, factor) in enumerate(cases):
            if module is (layer.query if flip.state == "query" else layer.key).module:
                moved[row, flip.token] += factor * flip.change
        return moved, *given[1:]

    with torch.no_grad(), ExitStack() as hooks:
        for projection in (layer.query, layer.key):
            hooks.callback(projection.module.register_forward_pre_hook(change).remove)
        attention = model._architecture.attentions(model._core, inputs)[reading.layer]
    chosen = attention[:, reading.number, found.query].argmax(-1)
    other = (chosen != found.chosen).reshape(len(found.flips), len(factors))
    return other.tolist()


def part_why(names: list[str], count: int) -> None:
    """Sums, and stated changes, of `count` pairs of each model."""
    rows: list[dict[str, Any]] = []
    for name in names:
        model, texts = loaded(name)
        errors, flips, stays, tiny = [], [], [], []
        with in_float64(model):
            for reading, query in readings(model, texts, count, 10):
                found = reading.why(query)
                errors.append(found.error)
                tiny.append(found.gap)
                for stays_at, flips_at in flipped(model, reading, found, (0.9, 1.001)):
                    stays.append(not stays_at)
                    flips.append(flips_at)
        began = time.perf_counter()
        Reading(model, texts[0], f"L{model.layers - 1}H0").why()
        whole = time.perf_counter() - began
        rows.append({
            "model": name, "pairs": len(errors), "largest_error": max(errors), "smallest_gap": min(tiny),
            "changes": len(flips), "flipped_at_1.001": sum(flips), "stayed_at_0.9": sum(stays),
            "seconds_of_one_answer": round(whole, 2),
        })  # fmt: skip
        publish("explain_why", rows, COMMAND.format("why"), [f"texts of 2 to {LONGEST} tokens, seed 0"])


def ablated_gap(model: TransformersModel, found: Trace, reading: Reading, why: Why, part: str, held: bool) -> float:
    """The gap of the same two tokens when `part` writes nothing; `held`: all other parts write what they wrote."""
    writes = [write for write in found._writes if write.name != BIASES]
    writers: dict[int, list[int]] = {}
    for number, write in enumerate(writes):
        if write.module is not None and write.leaf.shape[-1] == model.width:
            writers.setdefault(write.layer, []).append(number)
    layer, _, head = part.partition("H") if part.startswith("L") and " " not in part else (part, "", "")
    kinds = {"embedding", "positions", "token types"}
    turn = iter(range(len(writes)))

    def rewrite(module: Any, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
        write = writes[next(turn)]
        made = write.leaf.detach() if held else output
        if part in kinds:
            return torch.zeros_like(made) if write.name == part and write.module is None else made
        if module is not write.module or write.layer != int(layer[1:].split()[0]):
            return made
        if head and write is attention_writer(writes, write.layer, model):
            size = given[0].shape[-1] // model.heads
            own = slice(int(head) * size, (int(head) + 1) * size)
            weight = module.weight.T if isinstance(module, nn.Linear) else module.weight
            return made - given[0][..., own] @ weight[own]
        return torch.zeros_like(made) if not head and write is mlp_writer(writes, write.layer, model) else made

    inside = {id(write.module) for write in writes if write.module is not None}
    with ExitStack() as hooks:
        for module in model._core.modules():
            if id(module) in inside or isinstance(module, nn.Embedding):
                hooks.callback(module.register_forward_hook(rewrite).remove)
        states = model.states(reading.sentence, [reading.layer])
    logits = reading.form.logits(states.layer(0).of(reading.form))[why.query]
    return float(logits[why.chosen] - logits[why.other])


def attention_writer(writes: list[Any], layer: int, model: TransformersModel) -> Any:
    """The output projection of the heads: the first linear layer that reads what attention made."""
    own = [write for write in writes if write.layer == layer and write.module is not None]
    projections = {id(part.module) for each in model._layers for part in (each.key, each.query)}
    inner = [w for w in own if id(w.module) not in projections and "value" not in name_of(model, w.module)]
    return next(w for w in inner if "v_proj" not in name_of(model, w.module))


def mlp_writer(writes: list[Any], layer: int, model: TransformersModel) -> Any:
    """The last linear layer of a layer."""
    return [write for write in writes if write.layer == layer and write.leaf.shape[-1] == model.width][-1]


def name_of(model: TransformersModel, module: nn.Module) -> str:
    """Its path in the model."""
    return next(name for name, own in model._core.named_modules() if own is module)


def part_ablate(names: list[str], count: int) -> None:
    """Predicted and actual changes of the gap for `count` choices of each model."""
    rows: list[dict[str, Any]] = []
    generator = torch.Generator().manual_seed(0)
    for name in names:
        model, texts = loaded(name)
        pairs = []
        for reading, query in readings(model, texts, 4 * count, 5):
            if len(pairs) == count:
                break
            if reading.parts is None or reading.layer == 0:
                continue  # before the first layer there are embeddings only
            found = reading.why(query)
            known = [n for n in reading.parts.names if n != BIASES and "encoder_attn" not in n]
            part = known[int(torch.randint(len(known), (1,), generator=generator))]
            index = reading.parts.names.index(part)
            keys, queries = reading._sides
            s, r, i = found.chosen, found.other, found.query
            less = [keys[t] - reading.parts.keys[index, t] for t in (s, r)]
            predicted = float((less[0] - less[1]) @ (queries[i] - reading.parts.queries[index, i]))
            predicted -= float((keys[s] - keys[r]) @ queries[i])
            with in_float64(model):
                actual = [ablated_gap(model, reading.trace, reading, found, part, held) - found.gap
                          for held in (True, False)]  # fmt: skip
            pairs.append((predicted, *actual))
        table = torch.tensor(pairs, dtype=torch.float64)
        row: dict[str, Any] = {"model": name, "choices": len(pairs)}
        for column, label in ((1, "norms_react"), (2, "everything_reacts")):
            both = table[:, [0, column]].T
            row |= {
                f"{label}: correlation": float(torch.corrcoef(both)[0, 1]),
                f"{label}: rank correlation": float(torch.corrcoef(both.argsort().argsort().double())[0, 1]),
                f"{label}: median error": float((both[0] - both[1]).abs().median()),
                f"{label}: median change": float(both[1].abs().median()),
                f"{label}: same sign": float((both[0].sign() == both[1].sign()).double().mean()),
            }
        rows.append(row)
        publish(
            "explain_ablate", rows, COMMAND.format("ablate"), ["layer 0, before which nothing is computed, left out"]
        )


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["why", "ablate"], required=True)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--count", type=int, help="pairs, choices or demands for each model")
    asked = parser.parse_args()
    {"why": lambda: part_why(asked.models, asked.count or 250),
     "ablate": lambda: part_ablate(asked.models, asked.count or 125)}[asked.part]()  # fmt: skip


if __name__ == "__main__":
    main()
