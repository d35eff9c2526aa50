"""Heads while a model is trained: how selective they are, their margins, and how close to max-margin they are."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet
import torch
from torch import nn

from attsvm.data.checks import check_count
from attsvm.data.files import replacing
from attsvm.heads.analysis.lifted import solve_lifted
from attsvm.heads.analysis.selections import Views, choices, layers_of, selectivity
from attsvm.heads.form import HeadWeights
from attsvm.heads.loading.load import load
from attsvm.heads.loading.transformers_model import TransformersModel
from attsvm.heads.model import Text, named_heads
from attsvm.heads.report.records import Settings

COLUMNS = {
    "confident": "share of confident queries",
    "smallest_margin": "smallest margin of confident queries",
    "efficiency": "margin efficiency",
    "largest_logit": "largest logit, in size",
}


class Watch:
    """The heads of a live transformers model while it is trained, in a plain loop or by a Trainer (`callback`).

    Arguments:
        model: of an architecture that `load` reads; it is never changed, its weights are copied at each measurement.
        texts: to measure on, texts or lists of token numbers; the same at every step.
        every: measure at multiples of this many steps.
        heads: such as ``["L3H7"]``; None means all.
        out: a Parquet file, written anew after every measurement; a run that goes on adds to it.
        queries: confident queries of each head whose margins, and max-margin problem, are measured.
        tokenizer: as that of `load`.

    Attributes:
        rows: a dictionary for each measured step and head: ``step``, ``head``, the columns of the plot, the median
            margin, mean mass and entropy.
        seconds: spent on measuring so far.

    Raises:
        ValueError: as `load`; or if `every` is no whole number.
    """

    def __init__(
        self,
        model: nn.Module,
        texts: Sequence[Text],
        every: int = 500,
        *,
        heads: Sequence[str] | None = None,
        out: str | os.PathLike[str] | None = None,
        queries: int = 30,
        tokenizer: object = None,
    ) -> None:
        check_count(every, "every")
        if not hasattr(model, "base_model"):
            raise ValueError(f"model must be a live model of the transformers library; got {type(model).__name__}")
        copied = load(model, tokenizer=tokenizer)
        assert isinstance(copied, TransformersModel)  # as load makes of such a model
        self._live, self._model = model, copied
        self.sentences = copied.encode(list(texts))
        self.places = named_heads(copied, heads)
        self.every, self.settings, self.seconds = every, Settings(queries=queries, accuracy=1e-2), 0.0
        self._path = None if out is None else Path(out)
        self.rows: list[dict[str, Any]] = []
        if self._path is not None and self._path.exists():
            try:
                self.rows = pyarrow.parquet.read_table(self._path).to_pylist()
            except (OSError, pyarrow.ArrowException) as error:
                raise ValueError(f"out {self._path} is no Parquet file that can be added to: {error}") from None
            if not all({"step", "head", *COLUMNS} <= row.keys() for row in self.rows):
                raise ValueError(f"out {self._path} holds something else than the rows of a watch; name another file")

    def __call__(self, step: int) -> None:
        """To be called after every step of training; measures where `step` is a multiple of `every`."""
        if step % self.every == 0:
            self.measure(step)

    def measure(self, step: int) -> None:
        """Measure now; rows of this step and of later ones, from a run that was stopped, are replaced."""
        began = time.perf_counter()
        core: Any = self._live
        self._model._core.load_state_dict(core.base_model.state_dict(), strict=False)
        self._model._attach(self._model._core, self._model.name)  # nothing that it remembers is up to date
        self.rows = [row for row in self.rows if row["step"] < step]
        for view in layers_of(self._model, self.sentences, sorted({layer for layer, _ in self.places}), ()):
            for layer, head in (place for place in self.places if place[0] == view.index):
                form = self._model.weights(layer, head)
                found = self._measured(form, [own.of(form) for own in view.views])
                self.rows.append({"step": step, "head": f"L{layer}H{head}", **found})
        if self._path is not None:
            with replacing(self._path) as temporary:
                pyarrow.parquet.write_table(pyarrow.Table.from_pylist(self.rows), temporary)
        self.seconds += time.perf_counter() - began

    def _measured(self, form: HeadWeights, views: Views) -> dict[str, float]:
        every = choices(views, form)
        sharp = selectivity(every, views, self.settings.confidence)
        made = {"confident": sharp.confident, "top_mass": sharp.top_mass, "entropy": sharp.entropy}
        finite = [logits[logits.isfinite()].abs().max() for logits in (view.logits(form) for view in views)]
        made["largest_logit"] = float(torch.stack(finite).max())
        sure = every.confident(self.settings.confidence)
        made |= dict.fromkeys(("smallest_margin", "median_margin", "efficiency"), math.nan)
        if len(sure):
            drawn = sure.draw(self.settings.queries, torch.Generator().manual_seed(self.settings.seed))
            tops = torch.stack([views[n].logits(form)[i].topk(2).values for n, i, _ in drawn.triples])
            gaps = tops[:, 0] - tops[:, 1]
            made |= {"smallest_margin": float(gaps.min()), "median_margin": float(gaps.median())}
            if not form.slope:
                value = solve_lifted(form, views, drawn, self.settings).value
                made["efficiency"] = float(gaps.min()) * value / form.size
        return made

    def callback(self) -> Any:
        """The same for ``transformers.Trainer(callbacks=[...])``."""
        from transformers import TrainerCallback

        watch = self

        class Watching(TrainerCallback):  # type: ignore[misc]
            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                watch(int(state.global_step))

        return Watching()

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """A figure with a panel for each column and a line for each head, by layer; saved where `path` says."""
        if not self.rows:
            raise ValueError("there is nothing to plot: no step was measured yet")
        from matplotlib import colormaps
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D

        figure = Figure(figsize=(9, 6), layout="constrained")
        layers = sorted({layer for layer, _ in self.places})
        colours = {layer: colormaps["viridis"](0.8 * k / max(1, len(layers) - 1)) for k, layer in enumerate(layers)}
        for axes, (column, title) in zip(figure.subplots(2, 2, sharex=True).flat, COLUMNS.items(), strict=True):
            for layer, head in self.places:
                own = [row for row in self.rows if row["head"] == f"L{layer}H{head}"]
                steps, values = [row["step"] for row in own], [row[column] for row in own]
                axes.plot(steps, values, color=colours[layer], linewidth=1.2)
            axes.set_title(title, loc="left", fontsize=10)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.25)
        for axes in figure.axes[2:]:
            axes.set_xlabel("step")
        lines = [Line2D([], [], color=colour, label=f"layer {layer}") for layer, colour in colours.items()]
        figure.legend(handles=lines, loc="outside right upper", frameon=False)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure


watch = Watch  # called as the other functions of this room are
