"""The figures of the experiments, drawn from stored results alone, and the files they become."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from matplotlib.figure import Figure

from attsvm.data.files import write_atomically
from attsvm.plots.figures import dimensions, factors, next_token, parameters, plane, steps
from attsvm.plots.style import house_style
from attsvm.sweep.result import SweepResult

__all__ = ["FIGURES", "FORMATS", "draw"]

FIGURES: Mapping[str, Callable[[SweepResult], Mapping[str, Figure]]] = MappingProxyType(
    {
        "single-input": plane.draw_single_input,
        "multi-input": plane.draw_multi_input,
        "descent-vs-normalized": steps.draw_descent_vs_normalized,
        "joint-training": plane.draw_joint_training,
        "loss-comparison": plane.draw_loss_comparison,
        "attention-sparsity": steps.draw_attention_sparsity,
        "trajectories": plane.draw_trajectories,
        "hyperplanes": plane.draw_hyperplanes,
        "convergence-types": dimensions.draw_convergence_types,
        "local-convergence": steps.draw_local_convergence,
        "rank": dimensions.draw_rank,
        "multi-token": dimensions.draw_multi_token,
        "quadratic-head": parameters.draw_quadratic_head,
        "regularization-path": parameters.draw_regularization,
        "first-gradient": dimensions.draw_first_gradient,
        "cones": parameters.draw_cones,
        "causal": steps.draw_causal,
        "optimizer-geometry": parameters.draw_geometry,
        "factor-geometry": parameters.draw_geometry,
        "adam": parameters.draw_geometry,
        "next-token-acyclic": next_token.draw_random_samples,
        "next-token-cyclic": next_token.draw_random_samples,
        "next-token-text": next_token.draw_text,
        "logit-growth": factors.draw_logit_growth,
        "weight-decay": factors.draw_weight_decay,
        "fused-heads": factors.draw_fused_heads,
    }
)
"""By experiment: a function from its stored result to pictures by name; the first one is the experiment's own."""

FORMATS = ("png", "pdf", "svg")
# Pictures of one result are the same bytes whenever they are drawn.
_METADATA = {"png": {"Software": "attsvm"}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}


def draw(
    result: SweepResult, folder: Path | str | None = None, formats: Sequence[str] = FORMATS
) -> dict[str, list[Path]]:
    """Draw a stored result into `folder`, by default its own; nothing is computed.

    Returns:
        The files by picture, those of the first picture first.

    Raises:
        ValueError: if a format is unknown, or the result is none of an experiment with a picture.
    """
    unknown = [each for each in formats if each not in FORMATS]
    if unknown or not formats:
        raise ValueError(f"formats must be of {', '.join(FORMATS)}; got {', '.join(unknown) or 'none'}")
    if result.id not in FIGURES:
        raise ValueError(f"there is no picture of {result.id!r}; there are pictures of {', '.join(FIGURES)}")
    target = Path(folder) if folder is not None else result.folder
    target.mkdir(parents=True, exist_ok=True)
    with house_style():
        figures = FIGURES[result.id](result)
        return {name: [_save(figure, target / f"{name}.{each}", each) for each in formats]
                for name, figure in figures.items()}  # fmt: skip


def _save(figure: Figure, path: Path, kind: str) -> Path:
    content = io.BytesIO()
    figure.savefig(content, format=kind, metadata=_METADATA[kind])
    return write_atomically(path, content.getvalue())
