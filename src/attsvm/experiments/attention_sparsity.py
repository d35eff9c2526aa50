"""[MMTS; talk] a small vision transformer on real images: [CLS] attention sparsifies as its key-query weights grow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from attsvm.experiments.base import Check, Study, claim
from attsvm.experiments.common import stacked
from attsvm.sweep import Piece, SweepResult, Task

_CLASSES, _SIDE = 10, 8


@dataclass(frozen=True, kw_only=True)
class AttentionSparsity(Study, identity="attention-sparsity"):
    """scikit-learn's 1,797 digits of 8 x 8 pixels; Adam without weight decay, from PyTorch's default start."""

    patch: int = 2
    width: int = 64
    layers: int = 2
    heads: int = 4
    models: int = 3  # trained from different seeds, on different splits
    epochs: int = 100
    recorded: tuple[int, ...] = (0, 1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 60, 80, 100)  # epochs to measure after
    batch_size: int = 64
    learning_rate: float = 1e-3
    test_share: float = 0.2
    kept_images: int = 60  # test images whose hidden states are stored, for the first model (`attsvm.heads` reads them)

    runs_field = "models"
    smaller: ClassVar = {"models": 1, "epochs": 30, "recorded": (0, 1, 2, 5, 10, 20, 30), "kept_images": 20}
    imports = ("sklearn.datasets", "torch._dynamo")

    def tasks(self) -> Sequence[Task]:
        return [Task(f"model-{number:03d}", {"model": number}) for number in range(self.models)]

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Train one model, and measure the attention of [CLS] on the test images as training goes on."""
        number = task.values["model"]
        draw = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        train, test = self._split(draw, device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (), generator=draw)))
            patches = (_SIDE // self.patch) ** 2
            model = VisionTransformer(patches, self.patch**2, _CLASSES, self.width, self.layers, self.heads).to(device)
        rows: list[dict[str, float | int]] = []
        moments: list[dict[str, Tensor]] = []
        for epoch in self._trained(model, train, draw):
            rows += [{"model": number, "epoch": epoch, **row} for row in _measured(model, *test)]
            moments += [_kept(model, test[0][: self.kept_images])] if number == 0 else []
        stored = {name: torch.stack([moment[name] for moment in moments]) for name in (moments[0] if moments else ())}
        if number == 0:
            stored |= {"images": test[0][: self.kept_images], "digits": test[1][: self.kept_images]}
        return Piece({"heads": stacked(rows)}, stored)

    def _split(self, draw: torch.Generator, device: torch.device) -> list[tuple[Tensor, Tensor]]:
        """Patches ``[images, patches, pixels]`` in [0, 1] and classes, for training and for testing."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        pixels = torch.from_numpy(digits.images).float().unsqueeze(1) / 16
        patches = nn.functional.unfold(pixels, self.patch, stride=self.patch).mT.contiguous()
        classes = torch.from_numpy(digits.target)
        order = torch.randperm(len(patches), generator=draw)
        tested = int(len(order) * self.test_share)
        return [(patches[part].to(device), classes[part].to(device)) for part in (order[tested:], order[:tested])]

    def _trained(self, model: VisionTransformer, train: tuple[Tensor, Tensor], draw: torch.Generator) -> Iterator[int]:
        """Train the model; yields the number of every recorded epoch once it is done, 0 before the first."""
        optimizer = torch.optim.Adam(model.parameters(), self.learning_rate)
        loss = nn.CrossEntropyLoss()
        for epoch in range(self.epochs + 1):
            if epoch:
                for part in torch.randperm(len(train[0]), generator=draw).split(self.batch_size):
                    index = part.to(train[0].device)
                    optimizer.zero_grad()
                    loss(model(train[0][index]), train[1][index]).backward()
                    optimizer.step()
            if epoch in self.recorded:
                yield epoch

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """Accuracy, and that attention sparsifies while norms grow, in every layer of every model."""
        first, last = min(self.recorded), max(self.recorded)
        cells = [(model, layer) for model in range(self.models) for layer in range(self.layers)]

        def means(column: str, epoch: int) -> np.ndarray:
            """Over the heads, for every layer of every model."""
            return np.array([result.column("heads", column, epoch=epoch, model=m, layer=k).mean() for m, k in cells])

        least = float(result.column("heads", "accuracy", epoch=last).min())
        norm, mass = ((means(column, first), means(column, last)) for column in ("norm", "top_mass"))
        tokens = (_SIDE // self.patch) ** 2 + 1
        spread = [tokens ** means("entropy", epoch) for epoch in (first, last)]  # exp(entropy)
        return [
            claim("test accuracy of the worst model", "above 90 %, so that it has learnt", f"{least:.1%}",
                  least > 0.9, "it is at most 90 %"),
            claim("norm of the key-query weights, every layer of every model", "grows (paper)",
                  f"{norm[0].mean():.2f}, in the end {norm[1].mean():.2f}; least {(norm[1] / norm[0]).min():.2f} times",
                  (norm[1] > norm[0]).all(), "the mean over the heads of a layer does not grow"),
            claim("number of tokens that [CLS] spreads over (exp of the entropy)", "falls (paper: sparsifies)",
                  f"{spread[0].mean():.1f}, in the end {spread[1].mean():.1f};"
                  f" worst {(spread[1] / spread[0]).max():.2f} times",
                  (spread[1] < spread[0] / 2).all(), "it is not halved in a layer of a model"),
            claim("mass on the top token", "rises (paper: sparsifies)",
                  f"{mass[0].mean():.2f}, in the end {mass[1].mean():.2f}; least {(mass[1] / mass[0]).min():.2f} times",
                  (mass[1] > 2 * mass[0]).all(), "it is not doubled in a layer of a model"),
        ]  # fmt: skip


@torch.no_grad()
def _measured(model: VisionTransformer, images: Tensor, digits: Tensor) -> list[dict[str, float | int]]:
    """A row for each head: how sparse [CLS] attends, how large K Q^T is, how wide the margins of its choices."""
    accuracy = float((model(images).argmax(-1) == digits).double().mean())
    rows: list[dict[str, float | int]] = []
    for layer, own in enumerate(model.attentions):
        keys, queries = (part.double() for part in own.key_query())
        states = torch.cat([own.seen, torch.ones_like(own.seen[..., :1])], -1).double()
        for head in range(own.heads):
            of_cls = own.attention[:, head, 0].double()
            entropy = torch.special.entr(of_cls).sum(-1).mean() / np.log(of_cls.shape[-1])
            weights = keys[head] @ queries[head].mT
            best = torch.einsum("bti,ij,bj->bt", states, weights, states[:, 0]).topk(2, -1).values
            norm = torch.linalg.matrix_norm(weights)
            margin = (best[:, 0] - best[:, 1]) / norm
            rows.append({
                "layer": layer, "head": head, "accuracy": accuracy, "entropy": float(entropy),
                "top_mass": float(of_cls.amax(-1).mean()), "norm": float(norm),
                "nuclear_norm": float(torch.linalg.matrix_norm(weights, "nuc")),
                "margin_low": float(margin.quantile(0.1)), "margin_median": float(margin.median()),
            })  # fmt: skip
    return rows


@torch.no_grad()
def _kept(model: VisionTransformer, images: Tensor) -> dict[str, Tensor]:
    """The states, attention and key-query weights for these images as they are now, by layer."""
    model(images)
    moments = [
        {"states": each.seen, "attention": each.attention, **dict(zip(("key", "query"), each.key_query(), strict=True))}
        for each in model.attentions
    ]
    return {name: torch.stack([moment[name] for moment in moments]).float().cpu() for name in moments[0]}


class Attention(nn.Module):
    """Multi-head self-attention that keeps its last attention, whose rows are queries, and the states it read."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.seen, self.attention = torch.empty(0), torch.empty(0)

    def forward(self, states: Float[Tensor, "batch T width"]) -> Float[Tensor, "batch T width"]:
        projected = (each(states) for each in (self.query, self.key, self.value))
        query, key, value = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in projected)
        weights = torch.softmax(query @ key.mT / math.sqrt(key.shape[-1]), -1)
        self.seen, self.attention = states, weights
        return self.out((weights @ value).transpose(1, 2).flatten(2))

    def key_query(self) -> tuple[Float[Tensor, "heads D m"], Float[Tensor, "heads D m"]]:
        """K and Q of each head in homogeneous coordinates, biases last, the scale inside Q: logits x^T K Q^T z."""

        def form(layer: nn.Linear) -> Tensor:
            return torch.cat([layer.weight.mT, layer.bias[None]]).unflatten(-1, (self.heads, -1)).movedim(1, 0)

        return form(self.key), form(self.query) / math.sqrt(self.query.out_features / self.heads)


class Block(nn.Module):
    """Normalize, attend, add; normalize, two layers with GELU, add."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, states: Float[Tensor, "batch T width"]) -> Float[Tensor, "batch T width"]:
        states = states + self.attention(self.first(states))
        return states + self.mlp(self.second(states))


class VisionTransformer(nn.Module):
    """Patches of an image, a [CLS] token in front, learned positions; the class is read from [CLS]."""

    def __init__(self, patches: int, pixels: int, classes: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.embed = nn.Linear(pixels, width)
        self.cls = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.position = nn.Parameter(0.02 * torch.randn(1, patches + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.classify = nn.LayerNorm(width), nn.Linear(width, classes)

    @property
    def attentions(self) -> list[Attention]:
        return [module for module in self.modules() if isinstance(module, Attention)]

    def forward(self, patches: Float[Tensor, "batch patches pixels"]) -> Float[Tensor, "batch classes"]:
        states = torch.cat([self.cls.expand(len(patches), -1, -1), self.embed(patches)], 1) + self.position
        return self.classify(self.norm(self.blocks(states)[:, 0]))
