"""What explanations and edits of heads claim, checked in the models: ``python -m benchmarks.explain --part PART``.

Parts, each with a file results/explain_PART.json, all draws with seed 0:

- ``why``: random (head, query) pairs of four models. Do the sums add up to the gap? Run through the model in float64,
  does 1.001 of a stated change flip the choice, and .9 not?
- ``ablate``: one earlier part is taken out. The change of the gap that its share predicts, against the change in the
  model: with all other parts held as they were, so that only norms react, and with everything computed anew.
- ``swap``: random heads, layers and all heads of four models run with W_mm, random weights of the same spectrum, or
  nothing; what the model does then, on texts that were used for nothing else.
- ``edit``: random demands on random heads of MiniLM and SmolLM2, alone and with the choices on some texts to keep:
  met or proved impossible; choices on other texts that change, and the loss, beside gradient descent on the same
  projection to equal success.
- ``watch``: what `heads.watch` costs every 200 steps while a small GPT learns the bundled sentences.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attsvm.heads import Edit, Reading, Sentence, edit, load, sample_reactions, sample_texts, swap, watch
from attsvm.heads.explain.edit import _Reader
from attsvm.heads.explain.places import head_place
from attsvm.heads.explain.swap import KINDS, candidates, compared, interval, outcome
from attsvm.heads.explain.trace import BIASES, Trace, in_float64, trace
from attsvm.heads.explain.why import Why
from attsvm.heads.loading.transformers_model import TransformersModel
from benchmarks.heads_atoms import atom_checks
from benchmarks.record import RESULTS, publish

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


def earlier(part: str, names: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows and notes of other models that are written already."""
    path = RESULTS / f"explain_{part}.json"
    found = json.loads(path.read_text()) if path.exists() else {"rows": [], "notes": []}
    notes = [note for note in found["notes"] if note.partition(":")[0] in set(MODELS) - set(names)]
    return [row for row in found["rows"] if row["model"] not in names], notes


def part_why(names: list[str], count: int) -> None:
    """Sums of `count` pairs of each model, and stated changes of them, of 30 where a run takes long."""
    rows, _ = earlier("why", names)
    for name in names:
        model, texts = loaded(name)
        run = 30 if name in ("Whisper", "SmolLM2") else count
        errors, flips, stays, tiny = [], [], [], []
        with in_float64(model):
            for reading, query in readings(model, texts, count, 10):
                found = reading.why(query)
                errors.append(found.error)
                tiny.append(found.gap)
                if len(errors) > run:
                    continue
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
        notes = [f"texts of 2 to {LONGEST} tokens, seed 0, three stated changes for each pair that was run"]
        publish("explain_why", rows, COMMAND.format("why"), notes)


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
    rows, _ = earlier("ablate", names)
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


def embeddings(model: TransformersModel, sentences: list[Sentence]) -> Tensor:
    """What MiniLM gives: the mean of the last hidden states, of length 1."""
    return torch.stack([nn.functional.normalize(outcome(model, one).states.mean(0), dim=0) for one in sentences])


def neighbours(vectors: Tensor) -> Tensor:
    """The nearest other text of each."""
    products = vectors @ vectors.T
    return products.fill_diagonal_(-torch.inf).argmax(-1)


def task_of(name: str, model: TransformersModel, sentences: list[Sentence]) -> Callable[[], dict[str, float | None]]:
    """What to measure of a model that may have swapped heads, against the model as it is now."""
    if name == "MiniLM":
        before = embeddings(model, sentences)

        def measured() -> dict[str, float | None]:
            now = embeddings(model, sentences)
            same = (neighbours(now) == neighbours(before)).double()
            return {"embedding_cosine": float((now * before).sum(-1).mean()), "same_neighbour": float(same.mean())}

    elif name == "rxnmapper":
        own = atom_checks(model)
        best = max(own, key=lambda head: own[head].right)

        def measured() -> dict[str, float | None]:
            found = atom_checks(model)
            return {"atoms_right": found[best].right, "atoms_right_before": own[best].right}

    else:
        words = (
            model._core.get_input_embeddings().weight if name == "SmolLM2" else model._core.decoder.embed_tokens.weight
        )

        def guesses() -> list[Tensor]:
            return [(outcome(model, one).states @ words.T).argmax(-1) for one in sentences]

        old = guesses()

        def measured() -> dict[str, float | None]:
            same = torch.cat([a == b for a, b in zip(guesses(), old, strict=True)])
            return {"same_next_token": float(same.double().mean())}

    return measured


def part_swap(names: list[str], count: int) -> None:
    """`count` single heads, two layers and all heads of each model, in three ways."""
    rows, notes = earlier("swap", names)
    for name in names:
        model, texts = loaded(name)
        sentences = [one for one in model.encode(texts) if 4 <= len(one) <= LONGEST][:120]
        places = [(layer, head) for layer in range(model.layers) for head in range(model.heads)]
        generator = torch.Generator().manual_seed(0)

        def drawn(known: list[tuple[int, int]], generator: torch.Generator = generator) -> list[tuple[int, int]]:
            return [known[k] for k in torch.randperm(len(known), generator=generator)[:count].tolist()]

        many = len(places) > 100  # then all heads at once are left out, and texts are fewer
        single = drawn(places) if many else []
        layers = torch.randperm(model.layers, generator=generator)[:2].tolist() if many else []
        wanted = [place for place in places if not many or place in single or place[0] in layers]
        made, held_out = candidates(model, sentences, wanted, queries=60, most=15 if many else 30)
        before = [outcome(model, one) for one in held_out]
        known = sorted(made["W_mm"])
        if not many:
            single = drawn(known)
            layers = torch.randperm(model.layers, generator=generator)[:2].tolist()
        groups = {f"L{layer}H{head}": [(layer, head)] for layer, head in single}
        groups |= {f"layer {layer}": [place for place in places if place[0] == layer] for layer in layers}
        groups |= {} if many else {"all": places}
        task = task_of(name, model, held_out)
        for group, own in groups.items():
            for kind in KINDS:
                weights = {place: made[kind][place] for place in own if place in made[kind]}
                found = compared(model, group, kind, weights, held_out, before)
                with swap(model, {f"L{layer}H{head}": kept for (layer, head), kept in weights.items()}):
                    done = task()
                row: dict[str, Any] = {"model": name, "heads": group, "kind": kind, "swapped": len(weights)}
                for key in ("same_choice", "cosine", "loss"):
                    mean, half = getattr(found, key)
                    row |= {
                        key: None if mean != mean else round(mean, 5),
                        f"{key}_half": None if half != half else round(half, 5),
                    }
                rows.append(row | {key: None if value is None else round(value, 5) for key, value in done.items()})
        support = sorted(kept.support for kept in made["W_mm"].values())
        middle = support[len(support) // 2]
        notes.append(
            f"{name}: {len(known)} of {len(wanted)} heads have a W_mm, median {middle} support tokens;"
            f" {len(held_out)} texts held out"
        )
        publish("explain_swap", rows, COMMAND.format("swap"), notes)


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
        one = reader.input(reader.demand((choice.sentence.ids.tolist(), choice.query, choice.token), 0))
        inputs.append((one, one.places == choice.token))
    change = torch.zeros(inputs[0][0].tokens.shape[1], len(inputs[0][0].query), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([change], lr=1e-3)
    for _ in range(steps):
        gaps = []
        for one, own in inputs:
            logits = one.logits + one.tokens @ (change @ one.query)
            gaps.append(logits[own] - logits[~own].max())
        short = torch.relu(1 - torch.cat(gaps)).sum()
        if not short.detach():
            break
        optimizer.zero_grad()
        short.backward()
        optimizer.step()
    solution, rest = replace(found.solution, weights=change.detach()), found.change.shape[0] - change.shape[1]
    made = replace(found, solution=solution, change=nn.functional.pad(change.detach().T, (0, 0, 0, rest)))
    return made.apply(model), not short.detach()


def part_edit(names: list[str], count: int) -> None:
    """`count` demands on each model, one head and one demand at a time."""
    rows, _ = earlier("edit", names)
    for name in [name for name in names if name in ("MiniLM", "SmolLM2")]:
        model, texts = loaded(name)
        generator = torch.Generator().manual_seed(0)
        order = [texts[k] for k in torch.randperm(len(texts), generator=generator).tolist()]
        kept, apart, rest = order[:15], model.encode(order[15:23]), order[23:]
        tally: dict[str, list[float]] = {}
        met = impossible = holds = tuned = 0
        for _ in range(count):
            layer, head = (int(torch.randint(size, (1,), generator=generator)) for size in (model.layers, model.heads))
            (sentence,) = model.encode([rest[int(torch.randint(len(rest), (1,), generator=generator))]])
            query = int(torch.randint(2, len(sentence), (1,), generator=generator))
            seen = model.states(sentence, [layer])
            allowed = torch.nonzero(seen.layer(0).allowed[query])[:, 0]
            own = int(seen.attention[0, head, query].argmax())
            others = [t for t in allowed.tolist() if t != own]
            token = others[int(torch.randint(len(others), (1,), generator=generator))]
            name_ = f"L{layer}H{head}"
            found = edit(model, name_, [(sentence.text, query, token)], keep=kept)
            if not found.possible:
                impossible += bool(found.solution.infeasible)
                continue
            met += 1
            edited = found.apply(model)
            holds += int(edited.states(sentence, [layer]).attention[0, head, query].argmax()) == token
            alone = edit(model, name_, [(sentence.text, query, token)])
            plain, reached = fine_tuned(model, alone)
            tuned += reached
            versions = {"edit": edited, "edit without keep": alone.apply(model), "fine-tuned": plain}
            for label, version in versions.items():
                for key, value in drift(model, version, (layer, head), apart).items():
                    tally.setdefault(f"{label}: {key}", []).append(value)
            tally.setdefault("moved", []).append(len(found.moved))
            tally.setdefault("kept", []).append(len(found.kept))
            tally.setdefault("gap", []).append(abs(float(found.solution.certificate.relative_gap)))
        row: dict[str, Any] = {"model": name, "demands": count, "met": met, "proved_impossible": impossible,
                               "hold_in_the_model": holds, "fine_tuning_met": tuned,
                               "largest_gap": max(tally.pop("gap"))}  # fmt: skip
        for key, values in tally.items():
            mean, half = interval(values)
            both = {key: mean, f"{key} (half)": half}
            row |= {label: None if value != value else round(value, 6) for label, value in both.items()}
        rows.append(row)
        publish("explain_edit", rows, COMMAND.format("edit"), ["15 texts kept, 8 others for drift, margin 1"])


def part_watch(steps: int) -> None:
    """A GPT of four layers and four heads, width 128, 48 letters a text, trained for `steps` steps of 16 texts."""
    import transformers

    letters = sorted(set("".join(sample_texts())))
    numbers = [[letters.index(letter) for letter in text[:48]] for text in sample_texts() if len(text) >= 48]
    config = transformers.GPT2Config(
        vocab_size=len(letters), n_positions=48, n_embd=128, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0
    )
    torch.manual_seed(0)
    model, generator = transformers.GPT2LMHeadModel(config), torch.Generator().manual_seed(0)
    seen = watch(model, numbers[:10], every=200)
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
    publish("explain_watch", [row], COMMAND.format("watch"), ["10 texts of 48 letters measured, all 16 heads"])


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["why", "ablate", "swap", "edit", "watch"], required=True)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--count", type=int, help="pairs, choices or demands for each model")
    asked = parser.parse_args()
    {"why": lambda: part_why(asked.models, asked.count or 250),
     "ablate": lambda: part_ablate(asked.models, asked.count or 125),
     "swap": lambda: part_swap(asked.models, asked.count or 6),
     "edit": lambda: part_edit(asked.models, asked.count or 50),
     "watch": lambda: part_watch(asked.count or 400)}[asked.part]()  # fmt: skip


if __name__ == "__main__":
    main()
