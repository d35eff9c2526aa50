"""`attsvm edit`: change what a head attends to, by the smallest change of its query projection."""

from __future__ import annotations

import json as reading
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from typer import echo

import attsvm
from attsvm.cli.common.options import Json, option
from attsvm.cli.common.registry import svm_norm_named
from attsvm.cli.common.report import print_json
from attsvm.cli.heads import Model, ModelType, Tokenizer, _texts
from attsvm.cli.why import Head

_LINES = 'Lines such as ["The cat sat", "sat", "cat"]: a text, a query in it, and the token that it is to choose.'
Demands = Annotated[Path, option("--demands", "FILE", _LINES)]
Keep = Annotated[str | None, option("--keep", "FILE", "Texts, or sample: on them every other choice is to stay.")]
NormName = Annotated[str, option("--norm", "NAME", "Of the change; nuclear asks for low rank.")]
Margin = Annotated[float, option("--margin", "X", "By how much a demanded token is to win, in logits.")]
Folder = Annotated[Path | None, option("--out", "FOLDER", "A new folder for the edited model, as safetensors.")]


def edit(
    model: Model, head: Head, demands: Demands, keep: Keep = None, norm: NormName = "frobenius", margin: Margin = 1.0,
    out: Folder = None, tokenizer: Tokenizer = None, model_type: ModelType = None, json: Json = False,
) -> None:  # fmt: skip
    """Make an attention head of MODEL choose the tokens demanded, and keep its other choices.

    Finds the smallest change of the head's query projection, with a certificate; or names the demands that no change of
    it can meet together. The edited model has the same architecture.
    """
    from attsvm.heads.explain.edit import new_folder

    out = None if out is None else new_folder(out, "--out")
    asked = _demands(demands)
    texts = () if keep is None else _texts(keep, 1000, "--keep").lines
    kind = svm_norm_named(norm, None)
    loaded = attsvm.heads.load(model, tokenizer=tokenizer, model_type=model_type)
    found = attsvm.heads.edit(loaded, head, asked, keep=texts, norm=kind, margin=margin)
    written = [] if out is None or not found.possible else [found.save(loaded, out)]
    if json:
        lists = {name: list(map(str, getattr(found, name))) for name in ("demands", "binding", "moved", "clash")}
        told = {name: getattr(found, name) for name in ("head", "possible", "sentence", "rank")}
        proof = {name: float(value) for name, value in vars(found.solution.certificate).items()}
        print_json({**told, "kept": len(found.kept), "certificate": proof, **lists, "files": list(map(str, written))})
        return
    for line in (str(found), *(f"Written: {folder}" for folder in written)):
        echo(line)


def _demands(path: Path) -> list[Any]:
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"--demands {path} cannot be read: {reason}") from None
    found = []
    for number, line in enumerate(lines, 1):
        one = None
        with suppress(ValueError):
            one = reading.loads(line)
        if not isinstance(one, list) or len(one) != 3 or not isinstance(one[0], str):
            raise ValueError(f"--demands: line {number} of {path} must be [text, query, token]; got {line!r}")
        found.append(tuple(one))
    return found
