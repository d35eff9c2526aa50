"""A small causal transformer on a bundled text, trained with Muon and with AdamW: do its logits follow the law?

    python -m benchmarks.logits_of_text

Plain PyTorch; nothing of attsvm but the text. Characters of `village.txt`, two layers, width 64, four heads of 16
columns, RMS norms without gains before attention and MLP (so that ||x|| = 8 for every input of attention). Muon moves
every matrix of a layer by its orthogonalized momentum (Newton-Schulz, published coefficients), keys and queries of each
head by themselves or all heads of a layer fused in one matrix; AdamW moves the rest, or everything.

With step sizes eta_t the law says: reach r(t+1) = (1 - eta_t decay) r(t) + eta_t; the spectral norms of K_h and Q_h are
at most their starts and 1.21 r (Newton-Schulz makes steps of singular values up to 1.21), logits at most
||x||^2 ||K_h|| ||Q_h|| / 4, and, once the direction has settled and each step changes logits little, logits grow like
r^2. Written down is what happens: exponents of the largest logit and of ||K_h|| against r over the last decade of
steps, and the bound beside the largest logit.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import attsvm
from benchmarks.record import publish

WIDTH, HEADS, LAYERS, CONTEXT, BATCH = 64, 4, 2, 64, 32
COLUMNS = WIDTH // HEADS
LONGEST = 1.21  # largest singular value of a step, of Newton-Schulz with the published coefficients


def text() -> Tensor:
    """The characters of the text as numbers."""
    whole = (Path(attsvm.__file__).parent / "next_token" / "village.txt").read_text(encoding="utf-8")
    known = {character: place for place, character in enumerate(sorted(set(whole)))}
    return torch.tensor([known[character] for character in whole])


def normed(x: Tensor) -> Tensor:
    """Every row with length sqrt(WIDTH)."""
    return x * math.sqrt(x.shape[-1]) / x.norm(dim=-1, keepdim=True).clamp(min=1e-6)


class Layer(nn.Module):
    """Causal attention and an MLP, each after a norm, added to the stream."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        bound = 1 / math.sqrt(WIDTH)

        def drawn(*shape: int) -> nn.Parameter:
            return nn.Parameter((2 * torch.rand(*shape) - 1) * bound)

        shape = (1, WIDTH, WIDTH) if fused else (HEADS, WIDTH, COLUMNS)
        self.key, self.query = drawn(*shape), drawn(*shape)
        self.value, self.out = drawn(WIDTH, WIDTH), drawn(WIDTH, WIDTH)
        self.up, self.down = drawn(WIDTH, 4 * WIDTH), drawn(4 * WIDTH, WIDTH)

    def split(self, factor: Tensor) -> Tensor:
        """K_h or Q_h of all heads ``[HEADS, WIDTH, COLUMNS]``."""
        return factor[0].unflatten(-1, (HEADS, COLUMNS)).movedim(1, 0) if len(factor) == 1 else factor

    def logits(self, x: Tensor) -> Tensor:
        """Of all heads ``[batch, HEADS, T, T]``, row t the query."""
        keys, queries = (torch.einsum("btd,hdm->bhtm", x, self.split(each)) for each in (self.key, self.query))
        return queries @ keys.mT / math.sqrt(COLUMNS)

    def forward(self, x: Tensor) -> Tensor:
        inside = normed(x)
        logits = self.logits(inside)
        later = torch.ones(logits.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        attention = logits.masked_fill(later, -math.inf).softmax(-1)
        values = (inside @ self.value).unflatten(-1, (HEADS, COLUMNS)).movedim(-2, 1)
        x = x + (attention @ values).movedim(1, -2).flatten(-2) @ self.out
        return x + torch.relu(normed(x) @ self.up) @ self.down


class Model(nn.Module):
    """Embeddings of characters and places, layers, and an output matrix."""

    def __init__(self, vocabulary: int, fused: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.place = nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList(Layer(fused) for _ in range(LAYERS))
        self.read = nn.Linear(WIDTH, vocabulary, bias=False)

    def streams(self, tokens: Tensor) -> list[Tensor]:
        """The stream before every layer, and after the last."""
        found = [self.embedding(tokens) + self.place.weight]
        for layer in self.layers:
            found.append(layer(found[-1]))
        return found

    def loss(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy of the next character."""
        return nn.functional.cross_entropy(self.read(normed(self.streams(tokens)[-1])).flatten(0, 1), labels.flatten())


def orthogonalized(matrix: Tensor) -> Tensor:
    """Newton-Schulz, five iterations, published coefficients, for matrices ``[..., a, b]``."""
    x = matrix / matrix.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-30)
    wide = x.shape[-2] < x.shape[-1]
    x = x if wide else x.mT
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x if wide else x.mT


def sizes(model: Model, tokens: Tensor) -> dict[str, np.ndarray]:
    """Largest |logit|, gap of the winner, and spectral norms of K_h and Q_h, of every layer and head."""
    found: dict[str, list[Tensor]] = {"logit": [], "key": [], "query": []}
    with torch.no_grad():
        for layer, stream in zip(model.layers, model.streams(tokens), strict=False):
            logits = layer.logits(normed(stream)).tril()
            found["logit"].append(logits.abs().amax((0, 2, 3)))
            for name in ("key", "query"):
                found[name].append(torch.linalg.matrix_norm(layer.split(getattr(layer, name)), 2))
    return {name: torch.cat(each).cpu().numpy() for name, each in found.items()}


def train(name: str, seed: int, steps: int, device: str) -> dict[str, Any]:
    """One run; every number of the report."""
    began = time.perf_counter()
    muon, decay = name.startswith("Muon"), 0.1 if name.endswith("decay") else 0.0
    size = 0.02 if muon else 0.003
    torch.manual_seed(seed)
    whole = text().to(device)
    model = Model(int(whole.max()) + 1, fused="fused" in name).to(device)
    inside = list(model.layers.parameters()) if muon else []
    ids = {id(each) for each in inside}
    others = [each for each in model.parameters() if id(each) not in ids]
    adam = torch.optim.AdamW(others, lr=size if not muon else 0.003, weight_decay=decay if not muon else 0.0)
    momenta = [torch.zeros_like(each) for each in inside]
    marks = sorted({*np.geomspace(10, steps, 60).round().astype(int).tolist(), steps})
    reach, rows, fixed = 0.0, [], whole[: CONTEXT * 16].reshape(16, CONTEXT)
    first = sizes(model, fixed)
    places = torch.Generator().manual_seed(seed)
    for step in range(1, steps + 1):
        eta = size / math.sqrt(1 + step / 200)
        starts = torch.randint(len(whole) - CONTEXT - 1, (BATCH,), generator=places).to(device)
        window = whole[starts[:, None] + torch.arange(CONTEXT + 1, device=device)]
        loss = model.loss(window[:, :-1], window[:, 1:])
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter, momentum in zip(inside, momenta, strict=True):
                assert parameter.grad is not None
                momentum.mul_(0.95).add_(parameter.grad, alpha=0.05)
                parameter.mul_(1 - eta * decay).sub_(eta * orthogonalized(momentum))
        for group in adam.param_groups:
            group["lr"] = eta if not muon else 0.003 / math.sqrt(1 + step / 200)
        adam.step()
        reach = (1 - eta * decay) * reach + eta
        if step in marks:
            rows.append({"step": step, "reach": reach, "loss": loss.item(), **sizes(model, fixed)})
    steps_at, r = (np.array([row[key] for row in rows]) for key in ("step", "reach"))
    late = 10 * steps_at >= steps

    def exponent(key: str) -> list[float]:
        values = np.log(np.stack([row[key] for row in rows])[late])
        return [round(float(each), 3) for each in np.polyfit(np.log(r[late]), values, 1)[0]]

    kept = 1 - decay * reach if decay else 1.0  # of the start
    longest = [first[key] * kept + LONGEST * reach for key in ("key", "query")]
    bound = WIDTH / math.sqrt(COLUMNS) * longest[0] * longest[1]
    every = [
        {
            "step": int(row["step"]), "reach": round(row["reach"], 5), "loss": round(row["loss"], 4),
            **{key: [round(float(each), 4) for each in row[key]] for key in ("logit", "key", "query")},
        }
        for row in rows
    ]  # fmt: skip
    return {
        "run": name, "seed": seed, "steps": steps, "decay": decay, "step_size": size, "device": device,
        "loss": loss.item(), "reach": reach,
        "exponent_of_logits": exponent("logit"), "exponent_of_keys": exponent("key"),
        "largest_logit": float(rows[-1]["logit"].max()), "largest_key": float(rows[-1]["key"].max()),
        "bound_of_logits": float(bound.max()) if muon else None,
        "plateau_of_logits": (WIDTH / math.sqrt(COLUMNS)) * (LONGEST / decay) ** 2 if decay and muon else None,
        "seconds": round(time.perf_counter() - began, 1), "history": every,
    }  # fmt: skip


RUNS = ("Muon per head", "Muon fused", "Muon per head, decay", "AdamW", "AdamW, decay")


def main() -> None:
    """Train all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="a few steps; writes nothing")
    options = parser.parse_args()
    rows = []
    for name in RUNS:
        rows.append(train(name, 0, 40 if options.quick else options.steps, options.device))
        print({key: value for key, value in rows[-1].items() if key != "history"}, flush=True)
        if not options.quick:
            shown = [{key: value for key, value in row.items() if key != "history"} for row in rows]
            path = publish("logits_of_text", shown, "python -m benchmarks.logits_of_text")
            whole = json.loads(path.read_text()) | {"history": {row["run"]: row["history"] for row in rows}}
            path.write_text(json.dumps(whole) + "\n")


if __name__ == "__main__":
    main()
