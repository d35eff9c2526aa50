"""What earlier parts of a model add to the keys and queries of a head: embeddings, every earlier head, every MLP.

The residual stream is a sum, which normalizations scale. With their scales as they are in this run (frozen), what a
layer reads is linear in what earlier parts have written, so that keys and queries are sums over parts. No table of
architectures is needed: every linear layer inside a block reads a state that is cut from the graph, and what it writes
is a leaf of the graph; whatever then still reaches the head is a part. That nothing is missing is checked, every time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attsvm.heads.form import HeadWeights, LayerStates
from attsvm.heads.loading.architectures import Reads
from attsvm.heads.loading.folder import quiet
from attsvm.heads.loading.transformers_model import TransformersModel
from attsvm.heads.model import HeadModel, Sentence

_AT_ONCE = 500  # tokens times columns of a head that are followed back together
_ADDS_UP = 1e-6  # relative to the largest key or query
BIASES = "biases"


@dataclass(frozen=True, eq=False)
class Parts:
    """Keys and queries of a head, turned by their positions, as sums over `names`; queries hold the scale."""

    names: tuple[str, ...]
    keys: Float[Tensor, "P T m"]
    queries: Float[Tensor, "P T m"]


@dataclass(eq=False)
class _Write:
    """What one call of a module added to the stream of some token, a leaf of the graph."""

    leaf: Tensor
    layer: int  # -1 before the first
    name: str
    given: Tensor | None = None  # what a linear layer read
    module: Any = None


@dataclass(eq=False)
class Trace:
    """One sentence read by a model in float64: what every layer sees, and the graph of the residual stream."""

    model: HeadModel
    seen: list[LayerStates]  # by the heads of each layer
    _inputs: list[tuple[Tensor, Tensor]]
    _writes: list[_Write]

    def parts(self, layer: int, form: HeadWeights) -> Parts | None:
        """What earlier parts give the keys and queries of a head; None where the model does not show it."""
        if not self._inputs or form.part is not None:
            return None
        found = [self._followed(self._inputs[layer][side], (form.key, form.query)[side]) for side in (0, 1)]
        names = tuple(dict.fromkeys([*found[0], *found[1]]))
        seen, sides = self.seen[layer], []
        for own, whole in zip(found, (seen.keys @ form.key, seen.queries @ form.query), strict=True):
            made = [own.get(name, torch.zeros_like(whole)) for name in names]
            if not bool((sum(made) - whole).abs().max() <= _ADDS_UP * whole.abs().max()):
                raise ValueError(
                    f"what reaches layer {layer} of {self.model.name} is not a sum of what its linear layers write;"
                    " upstream parts of this architecture cannot be read (upstream=False leaves them out)"
                )
            sides.append(torch.stack([form.turned(part, seen.phases) for part in made]))
        return Parts(names, *sides)

    def _followed(self, state: Tensor, factor: Tensor) -> dict[str, Tensor]:
        """``state @ factor`` by parts, ``[T, m]`` each."""
        width, heads = state.shape[-1], self.model.heads
        leaves = [write.leaf for write in self._writes]
        made: dict[str, Tensor] = {}
        if len(factor) > width:  # the constant coordinate
            made[BIASES] = factor[width].expand(len(state), -1).clone()
        several = max(1, _AT_ONCE // len(state))
        for first in range(0, factor.shape[1], several):
            columns = slice(first, first + several)
            asked = factor[:width, columns].T[:, None].expand(-1, len(state), -1)
            options = {"retain_graph": True, "is_grads_batched": True, "allow_unused": True}
            slopes = torch.autograd.grad(state, leaves, asked, **options)
            reached = [(write, slope) for write, slope in zip(self._writes, slopes, strict=True) if slope is not None]
            for name, written, slope in _named(reached, heads):
                part = made.setdefault(name, torch.zeros(len(state), factor.shape[1], dtype=torch.float64))
                part[:, columns] += (slope.reshape(-1, *written.shape) * written).sum(-1).T
        return made


def _named(reached: list[tuple[_Write, Tensor]], heads: int) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Name, what was written ``[T, d]`` and its slopes; of every layer the first linear layer is that of its heads."""
    layers: dict[int, list[_Write]] = {}
    for write, _ in reached:
        if write.module is not None:
            layers.setdefault(write.layer, []).append(write)
    for write, slope in reached:
        written = write.leaf.detach().reshape(-1, write.leaf.shape[-1])
        if write.module is None or write.given is None:
            yield write.name, written, slope
            continue
        others = layers[write.layer]
        weight = write.module.weight.T if isinstance(write.module, nn.Linear) else write.module.weight
        if write is others[0] and weight.shape[0] % heads == 0:
            read = write.given.reshape(len(written), heads, -1)
            apart = torch.einsum("thm,hmd->htd", read, weight.detach().to(read).reshape(heads, -1, weight.shape[1]))
            for head in range(heads):
                yield f"L{write.layer}H{head}", apart[head], slope
            yield BIASES, written - apart.sum(0), slope
        else:
            yield (f"L{write.layer} MLP" if write is others[-1] else f"L{write.layer} {write.name}"), written, slope


def trace(model: HeadModel, sentence: Sentence, upstream: bool = True) -> Trace:
    """Run `model` on `sentence` in float64; without `upstream`, or where a model reads no texts, without the graph."""
    writes, inputs = list[_Write](), list[tuple[Tensor, Tensor]]()
    if not isinstance(model, TransformersModel) or model._architecture.reads is Reads.IMAGES:
        states = model.states(sentence)
    else:
        try:
            with in_float64(model), ExitStack() as hooks, quiet():
                states = model.states(sentence)
                if upstream and model._layers[0].norms is None:
                    read = _follow(model, writes, hooks)
                    model._architecture.run(model._core, model._inputs(sentence))
                    inputs = list(zip(*read, strict=True))
        except RuntimeError:  # a few models compute nothing in float64
            states = model.states(sentence)
    return Trace(model, [states.layer(row) for row in range(model.layers)], inputs, writes)


@contextmanager
def in_float64(model: TransformersModel) -> Iterator[None]:
    """The weights of `model` in float64, and back, which changes no bit of them."""
    if next(model._core.parameters()).dtype == torch.float64:
        yield
        return
    nn.Module.double(model._core)  # the library refuses its own where weights were read from GGUF
    try:
        yield
    finally:
        nn.Module.float(model._core)


def _follow(model: TransformersModel, writes: list[_Write], hooks: ExitStack) -> tuple[list[Tensor], list[Tensor]]:
    """Hooks that make leaves of what modules write, freeze norms, and keep what key and query projections read."""
    core, architecture = model._core, model._architecture
    blocks = architecture.blocks(core) if callable(architecture.blocks) else attrgetter(architecture.blocks)(core)
    inside = {module for block in blocks for module in block.modules()}
    readers = {layer.key.module for layer in model._layers}, {layer.query.module for layer in model._layers}
    read: tuple[list[Tensor], list[Tensor]] = [], []

    def leaf(tensor: Tensor, name: str, given: Tensor | None = None, module: Any = None) -> Tensor:
        made = tensor.detach().clone().requires_grad_()
        writes.append(_Write(made, len(read[1]) - 1, name, given, module))
        return made

    def before(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        for modules, states in zip(readers, read, strict=True):
            if module in modules:
                states.append(given[0][0])
        return given[0].detach(), *given[1:]

    def freeze(module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
        kind = type(module).__name__
        centred = given[0] if "RMS" in kind or kind == "T5LayerNorm" else given[0] - given[0].mean(-1, keepdim=True)
        bias = getattr(module, "bias", None)
        moved = torch.zeros_like(output) if bias is None else bias.detach().expand_as(output)
        base = centred.detach()
        scale = torch.where(base == 0, 0.0, (output.detach() - moved) / torch.where(base == 0, 1.0, base))
        return centred * scale + (0.0 if bias is None else leaf(moved, BIASES))

    def mapped(module: Any, _: object, output: Tensor) -> Tensor:
        return output - module.bias.detach() + leaf(module.bias.detach().expand_as(output), BIASES)

    for name, module in core.named_modules():
        short = name.rpartition(".")[0].rpartition(".")[2] or name
        if isinstance(module, nn.Embedding):
            kind = "positions" if "pos" in name or "wpe" in name else "token types" if "type" in name else "embedding"
            hooks.enter_context(module.register_forward_hook(lambda _, given, output, kind=kind: leaf(output, kind)))
        elif module in inside and (isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"):
            hooks.callback(module.register_forward_pre_hook(before).remove)
            hook = module.register_forward_hook(
                lambda own, given, output, short=short: leaf(output, short, given[0].detach(), own)
            )
            hooks.callback(hook.remove)
        elif isinstance(module, nn.Linear) and module.bias is not None:  # between embeddings and the first block
            hooks.callback(module.register_forward_hook(mapped).remove)
        elif "Norm" in type(module).__name__ and not list(module.children()):
            hooks.callback(module.register_forward_hook(freeze).remove)
    return read
