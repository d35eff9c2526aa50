"""`attsvm next-token`: what a layer learns from a text, before and after training."""

from __future__ import annotations

import json as json_format
import time
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from typer import Argument, Option

import attsvm
from attsvm.cli.common.files import new_result, own_folder, write_json, write_result
from attsvm.cli.common.options import Json, Out, Quiet, Seed, flag, option
from attsvm.cli.common.report import number, plural, print_json, print_table, progress_bar, status_line

Limit: TypeAlias = "attsvm.next_token.LimitPrediction"
FILE, PICTURE, ARRAYS = "prediction.json", "graph.png", "weights.npz"
_SHOWN = 6  # words of an answer

Text = Annotated[str, Argument(metavar="[TEXT]", help="A UTF-8 file, or village: stories that come with the package.")]
Window = Annotated[int, Option("--window", metavar="N", min=1, help="Tokens of a sample, the last of them its query.")]
_SIZE = "Of the embeddings; the number of words by default, at most 512."
Dimension = Annotated[int | None, Option("--dimension", metavar="D", min=1, help=_SIZE)]
Steps = Annotated[int, Option("--steps", metavar="N", min=0, help="Steps of training; 0 predicts only.")]
Ask = Annotated[list[str] | None, option("--ask", "TEXT", "A context whose next token to ask for; repeatable.")]
Characters = Annotated[bool, flag("--characters", "Tokens are characters instead of words.")]


def next_token(
    context: typer.Context, text: Text = "village", window: Window = 16, dimension: Dimension = None,
    characters: Characters = False, steps: Steps = 2500, ask: Ask = None,
    out: Out = Path("out/next-token"), seed: Seed = 0, quiet: Quiet = False, json: Json = False,
) -> None:  # fmt: skip
    """Say what one attention layer will learn from TEXT, train it, and compare.

    Reads which word is chosen before which off the text, predicts the limit of training with a proof, or names the
    relations that clash, trains, compares both parts, and answers what is asked. FOLDER holds the numbers, the weights
    and a picture of the order of words.
    """
    began = time.perf_counter()
    room = attsvm.next_token
    whole = room.village() if text == "village" else room.read_text(text)
    data = room.from_text(whole, room.characters if characters else None, window, dimension, seed)
    asked = {question: data.encode(question) for question in ask or ()}  # before anything long begins
    folder = own_folder(out, "next-token")
    silent = quiet or json
    with status_line("Predicting the limit of training", quiet=silent) as line:
        limit = room.predict_limit(data, progress=line)
    predicted = time.perf_counter() - began
    run = None
    if steps:
        with progress_bar("Training", steps, quiet=silent) as bar:
            marks = sorted({*range(0, steps, max(1, steps // 100)), steps})  # so that the bar moves
            run = room.train(limit, steps, seed=seed, progress=lambda done, _: bar(done), record=marks, keep=("norm",))
    comparison = room.verify(limit, run) if run is not None and limit.finite is not None else None
    answers = {question: _answer(limit, run, ids) for question, ids in asked.items()}
    result: dict[str, Any] = {
        "text": text, "window": window, "seconds_to_prediction": predicted, **json_format.loads(limit.to_json()),
        "steps": steps, "risk": None if run is None else float(run.risk),
        "comparison": None if comparison is None else json_format.loads(comparison.to_json()), "answers": answers,
    }  # fmt: skip
    names = [FILE, PICTURE, ARRAYS]
    with new_result(folder) as staging:
        write_json(staging / FILE, result)
        attsvm.plots.plot_priority_graph(limit.graph).savefig(staging / PICTURE, dpi=150)
        attsvm.data.files.write_arrays(staging / ARRAYS, _arrays(limit, run), {"kind": "next-token"})
        write_result(staging, context, names, time.perf_counter() - began, kind="next-token", source=text, seed=seed)
    if json:
        print_json({**result, "files": [str(folder / name) for name in names]})
    elif quiet:
        held = "" if comparison is None else f"; the prediction {'holds' if comparison.holds else 'does not hold yet'}"
        typer.echo(f"{limit.verdict}{held}; everything in {folder}")
    else:
        _print(limit, run, comparison, answers, predicted)
        typer.echo(f"\nEverything is in {folder}: {', '.join(names)}")


def _answer(limit: Limit, run: attsvm.Run | None, ids: list[int]) -> dict[str, Any]:
    found: dict[str, Any] = {"predicted": None, "decided_by": None, "trained": None}
    if limit.finite is not None:
        said = limit.answer(ids)
        shares = zip(said.words, said.probabilities, strict=True) if said.decided else ()
        found |= {"predicted": dict.fromkeys(said.words) | dict(shares), "decided_by": said.reason}
    if run is not None:
        found["trained"] = attsvm.next_token.respond(limit.data, run.weights, ids)
    return found


def _arrays(limit: Limit, run: attsvm.Run | None) -> dict[str, Any]:
    arrays = {"embeddings": limit.data.embeddings}
    if limit.finite is not None:
        arrays |= {"svm_component": limit.svm_component, "finite_component": limit.finite_component}
    if run is not None:
        arrays["trained"] = run.weights
    return {name: value.double() for name, value in arrays.items()}


def _print(limit: Limit, run: attsvm.Run | None, comparison: Any, answers: dict[str, Any], seconds: float) -> None:
    data = limit.data
    left = f"{data.left_out:,} left out, whose next token is not in the window"
    typer.echo(f"{plural(data.n, 'sample')} over {data.K} different tokens in {data.d} dimensions; {left}\n")
    typer.echo(f"{limit.graph}\n\n{limit}\n({seconds:.1f} s from the text to the prediction)")
    if run is not None:
        risk, norm = number(float(run.risk), 4), number(float(run.norm), 4)
        typer.echo(f"\nAfter {run.step:,} steps: risk {risk}, ||W|| = {norm}")
    if comparison is not None:
        typer.echo(str(comparison))
    for question, answer in answers.items():
        shares = [answer[kind] or {} for kind in ("predicted", "trained")]
        words = sorted({*shares[0], *shares[1]}, key=lambda word: -max(each.get(word) or 0 for each in shares))
        values = {word: [each.get(word, 0.0 if each else None) for each in shares] for word in words[:_SHOWN]}
        rows = [[word, *("-" if one is None else f"{one:.4f}" for one in both)] for word, both in values.items()]
        why = f" ({answer['decided_by']})" if answer["decided_by"] else ""
        typer.echo(f"\n{question} \u2026{why}")
        print_table("", [("next", "left"), ("predicted", "right"), ("trained", "right")], rows)
