"""Which drawing belongs to which experiment, and the files that it becomes."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from matplotlib.figure import Figure

from attsvm.data.files import write_atomically
from attsvm.experiments import ExperimentResult
from attsvm.plots.figures.attention_sparsity import draw_attention_sparsity
from attsvm.plots.figures.causal import draw_causal
from attsvm.plots.figures.cones import draw_cones
from attsvm.plots.figures.convergence_types import draw_convergence_types
from attsvm.plots.figures.descent_vs_normalized import draw_descent_vs_normalized
from attsvm.plots.figures.first_gradient import draw_first_gradient
from attsvm.plots.figures.joint_training import draw_joint_training
from attsvm.plots.figures.local_convergence import draw_local_convergence
from attsvm.plots.figures.loss_comparison import draw_loss_comparison
from attsvm.plots.figures.multi_input import draw_multi_input
from attsvm.plots.figures.multi_token import draw_multi_token
from attsvm.plots.figures.optimizer_geometry import draw_optimizer_geometry
from attsvm.plots.figures.plane_runs import draw_hyperplanes, draw_trajectories
from attsvm.plots.figures.quadratic_head import draw_quadratic_head
from attsvm.plots.figures.rank import draw_rank
from attsvm.plots.figures.regularization import draw_regularization
from attsvm.plots.figures.single_input import draw_single_input
from attsvm.plots.style import house_style

FIGURES: Mapping[str, Callable[[ExperimentResult], Mapping[str, Figure]]] = MappingProxyType(
    {
        "single-input": draw_single_input,
        "multi-input": draw_multi_input,
        "descent-vs-normalized": draw_descent_vs_normalized,
        "joint-training": draw_joint_training,
        "loss-comparison": draw_loss_comparison,
        "attention-sparsity": draw_attention_sparsity,
        "trajectories": draw_trajectories,
        "hyperplanes": draw_hyperplanes,
        "convergence-types": draw_convergence_types,
        "local-convergence": draw_local_convergence,
        "rank": draw_rank,
        "multi-token": draw_multi_token,
        "quadratic-head": draw_quadratic_head,
        "regularization-path": draw_regularization,
        "first-gradient": draw_first_gradient,
        "cones": draw_cones,
        "causal": draw_causal,
        "optimizer-geometry": draw_optimizer_geometry,
    }
)
"""By experiment: a function from its stored result to pictures by name; the first one is the experiment's own."""

FORMATS = ("png", "pdf", "svg")
# Pictures of one result are the same bytes whenever they are drawn.
_METADATA = {"png": {"Software": "attsvm"}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}


def draw(
    result: ExperimentResult, folder: Path | str | None = None, formats: Sequence[str] = FORMATS
) -> dict[str, list[Path]]:
    """Draw a stored result into `folder`, by default its own; nothing is computed.

    Returns:
        The files by picture, those of the first picture first.

    Raises:
        ValueError: if a format is unknown, or the experiment has no picture.
    """
    unknown = [each for each in formats if each not in FORMATS]
    if unknown or not formats:
        raise ValueError(f"formats must be of {', '.join(FORMATS)}; got {', '.join(unknown) or 'none'}")
    if result.experiment not in FIGURES:
        raise ValueError(f"there is no picture of {result.experiment!r}")
    target = Path(folder) if folder is not None else result.folder
    target.mkdir(parents=True, exist_ok=True)
    with house_style():
        figures = FIGURES[result.experiment](result)
        return {name: [_save(figure, target / f"{name}.{each}", each) for each in formats]
                for name, figure in figures.items()}  # fmt: skip


def _save(figure: Figure, path: Path, kind: str) -> Path:
    content = io.BytesIO()
    figure.savefig(content, format=kind, metadata=_METADATA[kind])
    return write_atomically(path, content.getvalue())
