"""What explanations and edits of heads claim, checked in the models: ``python -m benchmarks.explain --part PART``.

Every part writes a table, results/explain_PART.json, whose rows name the command that made them. What it is made of
lies in results/explain, one line for each choice, demand or run: a part that is started again continues from there.

- ``why``: random (head, query) pairs of four models. Do the sums add up to the gap? Run through the model in float64,
  does 1.001 of a stated change flip the choice, and .9 not? How much processor time does one answer take, on one
  thread? (Wall time says more about who else computes on the machine.)
- ``ablate``: one earlier part is taken out. The change of the gap that its share predicts, against the change in the
  model: with all other parts held as they were, so that only norms react, and with everything computed anew.
- ``swap``: random heads, layers and all heads of four models run with W_mm, random weights of the same spectrum, or
  nothing; what the model does then, on texts that were used for nothing else. Whisper hears synthetic speech.
- ``edit``: random demands on random heads of MiniLM and SmolLM2, alone and with the choices on some texts to keep:
  met or proved impossible; choices on other texts that change, and the loss, beside gradient descent on the same
  projection to equal success.
- ``watch``: what `heads.watch` costs at its default cadence while a small GPT learns the bundled sentences.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attsvm.heads import Edit, Reading, Sentence, edit, load, sample_reactions, sample_texts, swap, watch, why
from attsvm.heads.explain.edit import _Reader
from attsvm.heads.explain.swap import KINDS, Outcome, candidates, differences, interval, outcome
from attsvm.heads.explain.trace import BIASES, Trace, in_float64, trace
from attsvm.heads.explain.why import Why
from attsvm.heads.loading.transformers_model import ListeningModel, TransformersModel
from attsvm.heads.model import head_place
from benchmarks.heads_atoms import reaction_checks
from benchmarks.record import RESULTS, publish
from benchmarks.synthetic_speech import RATE, utterance

WEIGHTS = Path(".weights")
MODELS: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "MiniLM": ("minilm", sample_texts),
    "rxnmapper": ("rxnmapper", sample_reactions),
    "SmolLM2": ("smollm/SmolLM2-135M-Instruct.Q4_1.gguf", sample_texts),
    "Whisper": ("whisper/tiny.en.pt", sample_texts),
}
LONGEST = 60  # tokens of a text
SPOKEN, FRAMES = 24, 500  # tokens of what is heard, and frames of it: ten seconds
Sample = dict[str, Any]


def loaded(name: str) -> tuple[TransformersModel, list[str]]:
    """A model and texts for it."""
    model = load(WEIGHTS / MODELS[name][0])
    assert isinstance(model, TransformersModel)
    return model, MODELS[name][1]()


class Draw:
    """Random numbers of one unit of a measurement, the same whatever was measured before."""

    def __init__(self, seed: int, unit: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(1_000_003 * seed + unit)

    def below(self, size: int) -> int:
        return int(torch.randint(size, (1,), generator=self.generator))

    def some(self, values: Sequence[Any], count: int | None = None) -> list[Any]:
        """`count` of the values, all by default, in random order."""
        return [values[k] for k in torch.randperm(len(values), generator=self.generator)[:count].tolist()]

    def reading(self, model: TransformersModel, sentence: Sentence, found: Trace) -> tuple[Reading, int]:
        """A head, and a query that chooses."""
        reading = Reading(model, sentence, f"L{self.below(model.layers)}H{self.below(model.heads)}", traced=found)
        return reading, reading.choosing[self.below(len(reading.choosing))]


def stored(part: str, name: str, seed: int) -> list[Sample]:
    """What was measured already, in the order of measuring."""
    path = RESULTS / "explain" / f"{part}_{name}.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line for line in lines if line["seed"] == seed]


def keep(part: str, name: str, samples: list[Sample]) -> None:
    """Write samples behind those that are there."""
    path = RESULTS / "explain" / f"{part}_{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in samples)


def grown(part: str, name: str, seed: int, count: int, unit: Callable[[Draw], list[Sample]]) -> list[Sample]:
    """`count` samples: those that are stored, and more of them, unit by unit."""
    found = stored(part, name, seed)
    number = found[-1]["unit"] + 1 if found else 0
    while len(found) < count:
        made = [{"seed": seed, "unit": number, **one} for one in unit(Draw(seed, number))]
        keep(part, name, made)
        found, number = found + made, number + 1
    return found[:count]


def tabulate(part: str, rows: list[Sample], notes: list[str], **asked: Any) -> None:
    """Put the rows of one model, and the command that makes them, into the table of a part."""
    options = " ".join(f"--{option} {value}" for option, value in asked.items())
    command = f"python -m benchmarks.explain --part {part}"
    path = RESULTS / f"explain_{part}.json"
    names = {row["model"] for row in rows}
    earlier = json.loads(path.read_text()) if path.exists() else {"rows": [], "notes": []}
    rows = [row | {"command": f"{command} {options}"} for row in rows]
    rows += [row for row in earlier["rows"] if row["model"] not in names and "command" in row]
    rows.sort(key=lambda row: (*MODELS, row["model"]).index(row["model"]))
    notes = list(dict.fromkeys([*(note for note in earlier["notes"] if note.partition(":")[0] not in names), *notes]))
    publish(f"explain_{part}", rows, command, notes)


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
        attention = model._architecture.run(model._core, inputs).attentions[reading.layer]
    chosen = attention[:, reading.number, found.query].argmax(-1)
    other = (chosen != found.chosen).reshape(len(found.flips), len(factors))
    return other.tolist()


def part_why(name: str, count: int, seed: int) -> None:
    """Sums of pairs, stated changes run through the model, and the processor time of answers."""
    model, texts = loaded(name)

    def pairs(draw: Draw) -> list[Sample]:
        (sentence,) = model.encode(draw.some(texts, 1))
        if not 2 <= len(sentence) <= LONGEST:
            return []
        found, made = trace(model, sentence), []
        for _ in range(10):
            reading, query = draw.reading(model, sentence, found)
            one = reading.why(query)
            stays, flips = zip(*flipped(model, reading, one, (0.9, 1.001)), strict=True)
            made.append({"head": one.head, "query": query, "tokens": len(sentence), "gap": one.gap, "error": one.error,
                         "stayed": [not other for other in stays], "flipped": flips})  # fmt: skip
        return made

    with in_float64(model):
        samples = grown("why", name, seed, count, pairs)
    seconds, draw = [], Draw(seed)
    for text in draw.some(texts, 10):
        began = time.process_time()
        why(model, text, f"L{draw.below(model.layers)}H{draw.below(model.heads)}")
        seconds.append(time.process_time() - began)
    row = {"model": name, "pairs": len(samples), "largest_error": max(one["error"] for one in samples),
           "smallest_gap": min(one["gap"] for one in samples), "changes": sum(len(one["flipped"]) for one in samples),
           "flipped_at_1.001": sum(sum(one["flipped"]) for one in samples),
           "stayed_at_0.9": sum(sum(one["stayed"]) for one in samples),
           "median_seconds": round(sorted(seconds)[5], 2), "largest_seconds": round(max(seconds), 2)}  # fmt: skip
    notes = [f"texts of 2 to {LONGEST} tokens, ten pairs on each; processor seconds of ten answers about random texts"]
    tabulate("why", [row], notes, models=name, count=count, seed=seed)


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


def part_ablate(name: str, count: int, seed: int) -> None:
    """Predicted and actual changes of the gap."""
    model, texts = loaded(name)

    def choices(draw: Draw) -> list[Sample]:
        (sentence,) = model.encode(draw.some(texts, 1))
        if not 2 <= len(sentence) <= LONGEST:
            return []
        traced, made = trace(model, sentence), []
        for _ in range(5):
            reading, query = draw.reading(model, sentence, traced)
            if reading.parts is None or reading.layer == 0:
                continue  # before the first layer there are embeddings only
            found = reading.why(query)
            known = [n for n in reading.parts.names if n != BIASES and "encoder_attn" not in n]
            part = known[draw.below(len(known))]
            index = reading.parts.names.index(part)
            keys, queries = reading._sides
            s, r, i = found.chosen, found.other, found.query
            less = [keys[t] - reading.parts.keys[index, t] for t in (s, r)]
            predicted = float((less[0] - less[1]) @ (queries[i] - reading.parts.queries[index, i]))
            predicted -= float((keys[s] - keys[r]) @ queries[i])
            norms, anew = (
                ablated_gap(model, reading.trace, reading, found, part, held) - found.gap for held in (True, False)
            )
            made.append({"head": found.head, "query": query, "part": part, "gap": found.gap,
                         "predicted": predicted, "norms_react": norms, "everything_reacts": anew})  # fmt: skip
        return made

    with in_float64(model):
        samples = grown("ablate", name, seed, count, choices)
    row: Sample = {"model": name, "choices": len(samples)}
    for label in ("norms_react", "everything_reacts"):
        both = torch.tensor([[one[key] for one in samples] for key in ("predicted", label)], dtype=torch.float64)
        row |= {
            f"{label}: correlation": float(torch.corrcoef(both)[0, 1]),
            f"{label}: rank correlation": float(torch.corrcoef(both.argsort().argsort().double())[0, 1]),
            f"{label}: median error": float((both[0] - both[1]).abs().median()),
            f"{label}: median change": float(both[1].abs().median()),
            f"{label}: same sign": float((both[0].sign() == both[1].sign()).double().mean()),
        }
    notes = ["heads of layer 0, before which nothing is computed, left out"]
    tabulate("ablate", [row], notes, models=name, count=count, seed=seed)


class Hearing(ListeningModel):
    """Whisper's decoder, which hears its own sound with every sentence."""

    heard: dict[tuple[int, ...], Tensor]

    def _inputs(self, sentence: Sentence) -> dict[str, Any]:
        heard = self.heard[tuple(sentence.ids.tolist())]
        return {"input_ids": sentence.ids[None], "encoder_hidden_states": heard[None]}


def hearing(count: int) -> tuple[Hearing, list[Sentence]]:
    """Whisper, and what it takes synthetic speech for, greedily; utterances that it takes for the same once.

    Words in brackets, such as [Music], are not allowed, as when its authors transcribe.
    """
    from transformers import WhisperFeatureExtractor

    plain, _ = loaded("Whisper")
    model = Hearing(plain._core, plain._architecture, plain._tokenizer, plain.name, plain.notes)
    model.heard, core, extract = {}, model._core, WhisperFeatureExtractor()
    (empty,) = model.encode(["a"])
    start, end = empty.ids[:2].tolist(), int(empty.ids[-1])
    names = [model.encode([[number]])[0].tokens[0] for number in range(end)]
    barred = torch.tensor(
        [number >= end or any(c in names[number] for c in "[]()*♪{}<>") for number in range(core.config.vocab_size)]
    )
    barred[end] = False
    for seed in range(count):
        mel = extract(utterance(seed), sampling_rate=RATE, return_tensors="pt").input_features.float()
        ids = list(start)
        with torch.no_grad():
            heard = core.encoder(mel).last_hidden_state[:, :FRAMES]
            while len(ids) < SPOKEN and ids[-1] != end:
                states = core.decoder(torch.tensor([ids]), encoder_hidden_states=heard, use_cache=False)
                scores = states.last_hidden_state[0, -1] @ core.decoder.embed_tokens.weight.T
                ids.append(int(scores.masked_fill(barred, -torch.inf).argmax()))
        model.heard.setdefault(tuple(ids), heard[0])
    return model, model.encode([list(ids) for ids in model.heard])


def task_of(name: str, model: TransformersModel, before: list[Outcome]) -> Callable[[list[Outcome]], list[float]]:
    """What to measure for each text of a model that has swapped heads now, against the model `before`."""
    if name == "MiniLM":  # the nearest other text by the mean of the last hidden states

        def nearest(runs: list[Outcome]) -> Tensor:
            vectors = torch.stack([nn.functional.normalize(run.states.mean(0), dim=0) for run in runs])
            return (vectors @ vectors.T).fill_diagonal_(-torch.inf).argmax(-1)

        return lambda after: (nearest(after) == nearest(before)).double().tolist()
    if name == "rxnmapper":  # atoms of a reaction that the best head maps right
        own = [right for _, right, *_ in reaction_checks(model)]
        best = int(torch.stack(own).sum(0).argmax())
        return lambda _: [float(right.flatten()[best]) / atoms for atoms, right, *_ in reaction_checks(model)]
    words = (model._core.decoder.embed_tokens if name == "Whisper" else model._core.get_input_embeddings()).weight

    def guesses(runs: list[Outcome]) -> list[Tensor]:
        return [(run.states @ words.T).argmax(-1) for run in runs]

    old = guesses(before)
    return lambda after: [float((a == b).double().mean()) for a, b in zip(guesses(after), old, strict=True)]


def bootstrap(values: list[list[float]], seed: int = 0, draws: int = 2000) -> tuple[float, float, float] | None:
    """Mean of ``[heads][texts]`` and its 95 % interval, heads and texts drawn anew, each where there are several."""
    table = torch.tensor(values, dtype=torch.float64)
    if not bool(table.isfinite().all()):
        return None
    generator = torch.Generator().manual_seed(seed)
    heads, texts = (torch.randint(size, (draws, size), generator=generator) for size in table.shape)
    means = table[heads[:, :, None], texts[:, None, :]].mean((1, 2))
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return float(table.mean()), low, high


def part_swap(name: str, count: int, seed: int) -> None:
    """`count` single heads, three layers and all heads of a model, in three ways."""
    if name == "Whisper":
        model: TransformersModel
        model, sentences = hearing(90)
    else:
        model, texts = loaded(name)
        sentences = [one for one in model.encode(texts) if 4 <= len(one) <= LONGEST][:120]
    places = [(layer, head) for layer in range(model.layers) for head in range(model.heads)]
    made, held_out = candidates(model, sentences, places, queries=60, most=30, seed=seed)
    before, draw = [outcome(model, one) for one in held_out], Draw(seed)
    single, layers = draw.some(sorted(made["W_mm"]), count), draw.some(range(model.layers), 3)
    groups = {f"L{layer}H{head}": [(layer, head)] for layer, head in single}
    groups |= {f"layer {layer}": [place for place in places if place[0] == layer] for layer in sorted(layers)}
    groups["all"] = places
    task, samples = task_of(name, model, before), stored("swap", name, seed)
    for group, own in groups.items():
        for kind in KINDS:
            if any((one["heads"], one["kind"]) == (group, kind) for one in samples):
                continue
            weights = {place: made[kind][place] for place in own if place in made[kind]}
            with swap(model, {f"L{layer}H{head}": kept for (layer, head), kept in weights.items()}):
                after = [outcome(model, one) for one in held_out]
                values = differences(model, weights, before, after) | {"task": task(after)}
            if kind == "removed":
                values["same_choice"] = [math.nan] * len(held_out)
            plain = {key: [round(value, 5) if value == value else None for value in one] for key, one in values.items()}
            samples.append({"seed": seed, "heads": group, "kind": kind, "swapped": len(weights), **plain})
            keep("swap", name, samples[-1:])
    support = sorted(kept.support for kept in made["W_mm"].values())
    notes = [f"{name}: {len(made['W_mm'])} of {len(places)} heads have a W_mm, median {support[len(support) // 2]}"
             f" support tokens; {len(held_out)} texts held out"]  # fmt: skip
    rows = []
    for group in [*dict.fromkeys("single" if one["heads"].startswith("L") else one["heads"] for one in samples)]:
        for kind in KINDS:
            own_ = [one for one in samples if one["kind"] == kind
                    and (one["heads"].startswith("L") if group == "single" else one["heads"] == group)]  # fmt: skip
            row: Sample = {
                "model": name,
                "heads": group,
                "kind": kind,
                "runs": len(own_),
                "swapped": own_[0]["swapped"],
            }
            for key in ("same_choice", "cosine", "loss", "task"):
                found = bootstrap([[math.nan if v is None else v for v in one[key]] for one in own_])
                row[key] = None if found is None else [round(value, 5) for value in found]
            rows.append(row)
    tabulate("swap", rows, notes, models=name, count=count, seed=seed)


def drift(
    model: TransformersModel, changed: TransformersModel, place: tuple[int, int], texts: list[Sentence]
) -> dict[str, float]:
    """On texts that no edit has seen: choices of the head that change, and what is added to the next-token loss."""
    moved, total, loss, cosine = 0, 0, 0.0, 0.0
    for one in texts:
        old, new = outcome(model, one), outcome(changed, one)
        choosing = model._allowed(len(one), [place[0]]).sum(-1) > 1
        here = [found.attention[place[0]][place[1]].argmax(-1)[choosing] for found in (old, new)]
        moved, total = moved + int((here[0] != here[1]).sum()), total + len(here[0])
        loss += new.loss - old.loss
        cosine += float(nn.functional.cosine_similarity(new.states, old.states).mean())
    return {"choices_changed": moved / total, "added_loss": loss / len(texts), "cosine": cosine / len(texts)}


def fine_tuned(model: TransformersModel, found: Edit, steps: int = 400) -> tuple[TransformersModel, bool]:
    """Adam on the same query projection of the same head until every demand has its margin of 1, hinge loss."""
    layer, number = head_place(model, found.head)
    reader = _Reader(model, layer, model.weights(layer, number))
    inputs = []
    for choice in found.demands:
        demand = (choice.sentence.ids.tolist(), choice.query, choice.token)
        inputs.append(reader.asked(reader.demand(demand, 0), 1.0))
    change = torch.zeros(inputs[0].tokens.shape[1], len(inputs[0].query), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([change], lr=1e-3)
    for _ in range(steps):
        gaps = []
        for one in inputs:
            logits = one.logits + one.tokens @ (change @ one.query)
            gaps.append(logits[one.chosen] - logits[~one.chosen].max())
        short = torch.relu(1 - torch.cat(gaps)).sum()
        if not short.detach():
            break
        optimizer.zero_grad()
        short.backward()
        optimizer.step()
    solution, rest = replace(found.solution, weights=change.detach()), found.change.shape[0] - change.shape[1]
    made = replace(found, solution=solution, change=nn.functional.pad(change.detach().T, (0, 0, 0, rest)))
    return made.apply(model), not short.detach()


def part_edit(name: str, count: int, seed: int) -> None:
    """Demands on a model, one head and one demand at a time."""
    model, texts = loaded(name)
    order = Draw(seed, 999_999).some(texts)
    kept, apart, rest = order[:15], model.encode(order[15:23]), order[23:]

    def demand(draw: Draw) -> list[Sample]:
        layer, head = draw.below(model.layers), draw.below(model.heads)
        (sentence,) = model.encode([rest[draw.below(len(rest))]])
        query = 2 + draw.below(len(sentence) - 2)
        seen = model.states(sentence, [layer])
        own = int(seen.attention[0, head, query].argmax())
        others = [t for t in torch.nonzero(seen.layer(0).allowed[query])[:, 0].tolist() if t != own]
        token, place = others[draw.below(len(others))], f"L{layer}H{head}"
        asked = [(sentence.text, query, token)]
        found = edit(model, place, asked, keep=kept)
        made: Sample = {"head": place, "query": query, "token": token, "met": found.possible,
                        "proved_impossible": bool(found.solution.infeasible)}  # fmt: skip
        if not found.possible:
            return [made]
        edited, alone = found.apply(model), edit(model, place, asked)
        plain, reached = fine_tuned(model, alone)
        made |= {"holds": int(edited.states(sentence, [layer]).attention[0, head, query].argmax()) == token,
                 "fine_tuning_met": reached, "moved": len(found.moved), "kept": len(found.kept),
                 "gap": abs(float(found.solution.certificate.relative_gap))}  # fmt: skip
        versions = {"edit": edited, "edit without keep": alone.apply(model), "fine-tuned": plain}
        for label, version in versions.items():
            for key, value in drift(model, version, (layer, head), apart).items():
                made[f"{label}: {key}"] = None if value != value else round(value, 6)
        return [made]

    samples = grown("edit", name, seed, count, demand)
    met = [one for one in samples if one["met"]]
    row: Sample = {"model": name, "demands": count, "met": len(met),
                   "proved_impossible": sum(one["proved_impossible"] for one in samples),
                   "hold_in_the_model": sum(one["holds"] for one in met),
                   "fine_tuning_met": sum(one["fine_tuning_met"] for one in met),
                   "largest_gap": max(one["gap"] for one in met)}  # fmt: skip
    for key in ("moved", "kept", *(key for key in met[0] if ": " in key)):
        values = [one[key] for one in met if one[key] is not None]
        mean, half = interval(values) if values else (None, None)
        row |= {key: mean, f"{key} (half)": half}
    notes = ["15 texts kept, 8 others for drift, margin 1"]
    tabulate("edit", [row], notes, models=name, count=count, seed=seed)


def part_watch(steps: int, seed: int) -> None:
    """A GPT of four layers and four heads, width 128, 48 letters a text, trained for `steps` steps of 16 texts."""
    import transformers

    letters = sorted(set("".join(sample_texts())))
    numbers = [[letters.index(letter) for letter in text[:48]] for text in sample_texts() if len(text) >= 48]
    config = transformers.GPT2Config(
        vocab_size=len(letters), n_positions=48, n_embd=128, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0
    )
    torch.manual_seed(seed)
    model, generator = transformers.GPT2LMHeadModel(config), torch.Generator().manual_seed(seed)
    seen = watch(model, numbers[:10])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seen.measure(0)  # compiles what is compiled once for each machine
    compiling, seen.seconds = seen.seconds, 0.0
    began = time.perf_counter()
    for step in range(1, steps + 1):
        inputs = torch.tensor([numbers[k] for k in torch.randint(len(numbers), (16,), generator=generator).tolist()])
        loss = model(input_ids=inputs, labels=inputs).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen(step)
    whole = time.perf_counter() - began
    training = whole - seen.seconds
    row = {"model": "GPT, 4 layers x 4 heads, width 128", "steps": steps, "every": seen.every,
           "training_seconds": round(training, 1), "watching_seconds": round(seen.seconds, 2),
           "overhead": round(seen.seconds / training, 4), "first_measurement_seconds": round(compiling, 2),
           "loss": round(float(loss), 3)}  # fmt: skip
    tabulate("watch", [row], ["10 texts of 48 letters measured, all 16 heads"], count=steps, seed=seed)


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["why", "ablate", "swap", "edit", "watch"], required=True)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), help="all that a part is for by default")
    parser.add_argument("--count", type=int, help="pairs, choices, demands or single heads of each model, or steps")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if asked.part == "watch":
        part_watch(asked.count or 1000, asked.seed)
        return
    known = ["MiniLM", "SmolLM2"] if asked.part == "edit" else list(MODELS)
    parts = {"why": (part_why, 250), "ablate": (part_ablate, 125), "swap": (part_swap, 8), "edit": (part_edit, 50)}
    run, count = parts[asked.part]
    for name in asked.models or known:
        run(name, asked.count or count, asked.seed)


if __name__ == "__main__":
    main()
