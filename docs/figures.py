"""Pictures that no experiment makes: ``python docs/figures.py`` writes them to docs/images.

They are those of "The idea in ten minutes" and "What a layer learns from text", the moving one of the README, and small
ones of all experiments.
"""

import io
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from PIL import Image

import attsvm
from attsvm.plots import PALETTE, house_style
from attsvm.plots.plane import DecadePlane
from attsvm.plots.style import DISC, FAINT, HAIRLINE, INK, colour_of, marker_of, new_figure

IMAGES = Path(__file__).resolve().parent / "images"
FOLDER = IMAGES / "idea"
THUMBNAIL = (360, 200)
PLACES = [[0.35, 1.0], [1.15, 0.45], [0.75, -0.55], [-0.85, 0.35], [-0.5, -0.8]]
SCORES = [1.0, 0.6, 0.3, 0.2, 0.0]
BEST, OTHER = PALETTE[0], FAINT


def one_input() -> attsvm.TokenDataset:
    """Five tokens in the plane; the third coordinate carries the score."""
    tokens = torch.tensor([[[*place, score] for place, score in zip(PLACES, SCORES, strict=True)]], dtype=torch.float64)
    keys = torch.eye(2, 3, dtype=torch.float64)
    return attsvm.TokenDataset.prompt(tokens, [1], keys, head=torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))


def plane(axes: Axes) -> None:
    """A bare plane with its origin."""
    axes.set(xlim=(-1.35, 1.75), ylim=(-1.25, 1.75), aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.plot(0, 0, "+", color=FAINT)


def arrow(axes: Axes, tip: np.ndarray, colour: str, name: str) -> None:
    """An arrow from the origin with a name at its tip."""
    axes.annotate("", tip, (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 2.2})
    axes.annotate(name, tip, xytext=(-14, -2), textcoords="offset points", color=colour)


def draw_softmax(limit: torch.Tensor) -> Figure:
    """One direction, four lengths: attention goes from even to all on one token."""
    unit = (limit / limit.norm()).flatten()
    figure = new_figure(9.6, 2.7, layout="constrained")
    for axes, norm in zip(figure.subplots(1, 4), (0.0, 1.0, 4.0, 16.0), strict=True):
        plane(axes)
        attention = attsvm.attention.evaluate(one_input(), norm * unit[:, None]).attention[0]
        for place, share, score in zip(PLACES, attention.tolist(), SCORES, strict=True):
            colour = BEST if score == 1 else OTHER
            axes.plot(*place, "o", color=colour, markersize=3 + 26 * share**0.5, alpha=0.75, markeredgewidth=0)
            beside = (0, 0) if share > 0.15 else (0, 10)
            axes.annotate(f"{share:.0%}", place, xytext=beside, textcoords="offset points", ha="center", va="center",
                          fontsize=7.5, color=INK)  # fmt: skip
        if norm:
            arrow(axes, 0.75 * unit.numpy(), PALETTE[1], "$p$")
        axes.set_title(rf"$\|p\| = {norm:g}$", fontsize=10.5, fontweight="normal")
    return figure


def draw_margin(limit: torch.Tensor) -> Figure:
    """Two directions that both pick the best token, and how far ahead it is along each."""
    widest = (limit / limit.norm()).flatten().numpy()
    turned = np.array([np.cos(1.2), np.sin(1.2)])
    figure = new_figure(8.2, 3.7, layout="constrained")
    for axes, direction, title in zip(
        figure.subplots(1, 2), (turned, widest), ("a direction that works", "the max-margin direction"), strict=True
    ):
        plane(axes)
        ahead = np.array(PLACES) @ direction
        across = np.array([-direction[1], direction[0]])
        first, second = ahead[0], np.sort(ahead)[-2]
        for height in (first, second):
            ends = np.array([height * direction - 1.5 * across, height * direction + 1.5 * across])
            axes.plot(*ends.T, color=HAIRLINE, linewidth=1.2)
        foot = second * direction - 0.95 * across
        axes.annotate("", foot + (first - second) * direction, foot,
                      arrowprops={"arrowstyle": "<->", "color": PALETTE[2], "shrinkA": 0, "shrinkB": 0})  # fmt: skip
        axes.annotate(f"{first - second:.2f}", foot + (first - second) / 2 * direction, xytext=(5, 0),
                      textcoords="offset points", color=PALETTE[2], va="center")  # fmt: skip
        for place, score in zip(PLACES, SCORES, strict=True):
            axes.plot(*place, "*" if score == 1 else "o", color=BEST if score == 1 else OTHER,
                      markersize=15 if score == 1 else 8)  # fmt: skip
        arrow(axes, 0.75 * direction, PALETTE[1], "$p$")
        axes.set_title(title, fontsize=10.5)
    return figure


def draw_descent(run: attsvm.Run, limit: torch.Tensor) -> Figure:
    """Attention saturates, the norm grows on, the direction settles."""
    history = run.history
    steps = history.step[1:].numpy()
    curves = (
        ("attention on the best token", history.attention[1:, 0, 0], None),
        (r"norm $\|p\|$", history.norm[1:], "log"),
        ("1 - cosine to max-margin", 1 - attsvm.direction_cosine(history.weights, limit)[1:], "log"),
    )
    figure = new_figure(9.6, 2.8, layout="constrained")
    for axes, (label, values, scale) in zip(figure.subplots(1, 3), curves, strict=True):
        axes.plot(steps, values, color=PALETTE[0])
        axes.set(xscale="log", xlabel="step")
        axes.set_title(label, fontsize=10.5, fontweight="normal")
        if scale:
            axes.set_yscale(scale)
    return figure


def draw_training(data: attsvm.TokenDataset, run: attsvm.Run, limit: torch.Tensor, record: int) -> Figure:
    """One frame: the paths of W z_i up to a record, tokens as large as their attention, and four numbers."""
    history, queries = run.history, data.queries.numpy()
    walked = history.weights.numpy() @ queries.T  # [records, 2, n]
    plane = DecadePlane.around(data.tokens.numpy(), np.moveaxis(walked, 1, -1).reshape(-1, 2))
    ends = np.concatenate([plane.shown(walked[-1].T), plane.radius * np.array([[-1.0, -1.0], [1.0, 1.0]])])
    (left, low), (right, high) = ends.min(0) - 0.1 * plane.radius, ends.max(0) + 0.1 * plane.radius
    figure = new_figure(6.4, 3.6)
    axes = figure.add_axes((0.01, 0.01, 0.56, 0.98))
    axes.set(xlim=(left, right), ylim=(low, high), aspect="equal")
    axes.axis("off")
    axes.add_patch(Circle((0, 0), plane.radius, facecolor=DISC, edgecolor=HAIRLINE, zorder=0))
    for i, query in enumerate(queries):
        far = limit.numpy() @ query
        ray = plane.shown(
            np.outer(np.linspace(0, 1, 100), far / np.linalg.norm(far) * np.linalg.norm(walked[-1, :, i]))
        )
        axes.plot(*ray.T, color=colour_of(i), linewidth=5, alpha=0.22, solid_capstyle="butt")
        shown = plane.shown(walked[: record + 1, :, i])
        axes.plot(*shown.T, color=colour_of(i), linewidth=2.2)
        axes.plot(*shown[-1], "o", color=colour_of(i), markersize=5)
        for place, share in zip(data.tokens[i].tolist(), history.attention[record, i].tolist(), strict=True):
            axes.plot(
                *place, marker_of(i), color=colour_of(i), markersize=4 + 17 * share**0.5, alpha=0.8, markeredgewidth=0
            )
    cosine = float(attsvm.direction_cosine(history.weights[record], limit))
    said = (
        ("step", f"{int(history.step[record]):,}"),
        ("least attention on a selected token", f"{100 * float(history.attention[record].amax(-1).min()):.1f} %"),
        ("norm of $W$", f"{float(history.norm[record]):.1f}"),
        ("cosine with max-margin", f"{cosine:.5f}" if record else "–"),  # noqa: RUF001
    )
    for line, (label, value) in enumerate(said):
        figure.text(0.6, 0.83 - 0.2 * line, label, fontsize=9.5, color=FAINT)
        figure.text(0.6, 0.74 - 0.2 * line, value, fontsize=17, color=INK)
    return figure


def write_training(path: Path) -> None:
    """The moving picture: normalized gradient descent on two inputs, a frame for each of some steps."""
    data = attsvm.data.example("two-inputs")
    record = sorted({0, *np.geomspace(1, 2000, 44).round().astype(int).tolist()})
    run = attsvm.fit(data, initial="zeros", steps=2000, record=record, engine=attsvm.descent.TorchEngine())
    limit = attsvm.solve(attsvm.AttentionSVM(data, run.selected)).require_solved().weights
    frames = []
    for place in range(len(record)):
        content = io.BytesIO()
        draw_training(data, run, limit, place).savefig(content, format="png", dpi=100)
        frames.append(Image.open(content).convert("RGB").quantize(48, dither=Image.Dither.NONE))
    times = [900, *[110] * (len(frames) - 2), 4000]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=times, loop=0, optimize=True)


def write_graph(folder: Path) -> None:
    """Two priority graphs of the bundled text, for "What a layer learns from text"."""
    from attsvm.next_token import from_text, priority_graph, village, words

    graph = priority_graph(from_text(" ".join(words(village())[:1000]), window=8))
    folder.mkdir(exist_ok=True)
    attsvm.plots.plot_priority_graph(graph, ["greta", "dan"]).savefig(
        folder / "graph.png", dpi=130, metadata={"Software": "attsvm"}
    )


def write_thumbnails(folder: Path) -> None:
    """A small picture of each experiment: as much of its picture, from the left, as has the shape."""
    folder.mkdir(exist_ok=True)
    for path in sorted((IMAGES / "experiments").glob("*.png")):
        picture = Image.open(path).convert("RGB")
        width, height = THUMBNAIL
        shown = min(picture.width, round(picture.height * width / height))
        part = picture.crop((0, 0, shown, min(picture.height, round(shown * height / width))))
        part.thumbnail(THUMBNAIL, Image.Resampling.LANCZOS)
        small = Image.new("RGB", THUMBNAIL, "white")
        small.paste(part, ((width - part.width) // 2, (height - part.height) // 2))
        small.quantize(64, dither=Image.Dither.NONE).save(folder / path.name, optimize=True)


def main() -> None:
    """Train, solve, draw."""
    data = one_input()
    record = sorted({0, *np.geomspace(1, 10_000, 120).astype(int).tolist()})
    run = attsvm.fit(data, initial="zeros", steps=10_000, record=record, engine=attsvm.descent.TorchEngine())
    solution = attsvm.solve(attsvm.AttentionSVM(data, run.selected)).require_solved()
    assert run.selected.tolist() == [0]
    FOLDER.mkdir(parents=True, exist_ok=True)
    with house_style():
        pictures = {
            "softmax": draw_softmax(solution.weights),
            "margin": draw_margin(solution.weights),
            "descent": draw_descent(run, solution.weights),
        }
        for name, figure in pictures.items():
            figure.savefig(FOLDER / f"{name}.png", dpi=160, metadata={"Software": "attsvm"})
        write_training(IMAGES / "training.gif")
    write_graph(IMAGES / "text")
    write_thumbnails(IMAGES / "thumbnails")


if __name__ == "__main__":
    main()
