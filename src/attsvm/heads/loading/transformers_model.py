"""Heads of a model of the transformers library, run with hooks on its key and query projections."""

from __future__ import annotations

import copy
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn

from attsvm.data.checks import check_finite
from attsvm.heads.form import HeadWeights
from attsvm.heads.loading.architectures import Architecture, Layer
from attsvm.heads.loading.folder import quiet
from attsvm.heads.loading.tokenizers import Tokenizer, encode_sentences
from attsvm.heads.model import HeadModel, Sentence, SentenceStates, Text, allowed_tokens, counted, with_constant

# Settings that say where and when a model was saved, not what it computes.
_PROVENANCE = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype")
HEAD_SPACE = (
    "keys and queries are normalized inside each head: tokens and queries are the keys and queries of the head after"
    " norm and rotation, and the head's own W is the identity; do not compare these numbers with those of other models"
)
# The log-Mel spectrogram of silence after Whisper's scaling: (log10(1e-10) + 4) / 4 everywhere.
_SILENCE = -1.5


class TransformersModel(HeadModel):
    """A model that reads texts: a float32 copy with eager attention, in evaluation mode; its `core` is its own."""

    def __init__(
        self,
        core: Any,
        architecture: Architecture,
        tokenizer: Tokenizer | None,
        name: str,
        notes: tuple[str, ...] = (),
        extra: tuple[Tensor, ...] = (),  # what the states depend on besides weights, sentence and tokenizer
    ) -> None:
        self._architecture, self._tokenizer, self.notes, self._extra = architecture, tokenizer, notes, extra
        self._attach(core, name)
        first = self._layers[0]
        self.layers, self.heads, self.width = len(self._layers), first.heads, first.query.weight.shape[0]
        self.architecture, self.causal = str(core.config.model_type), architecture.is_causal(core.config)
        if first.norms is not None:
            self.architecture += ", head space"
            self.notes += (HEAD_SPACE,)

    def _attach(self, core: Any, name: str) -> None:
        check_weights(core, name)
        self._core, self.name = core, name
        try:
            self._layers = list(self._architecture.layers(core))
        except AttributeError as error:
            kind = core.config.model_type
            raise ValueError(f"{name} is built differently from other {kind} models: {error}") from None
        self._fingerprint: str | None = None

    def _with_core(self, core: Any, name: str) -> Self:
        """This model with other weights."""
        made = copy.copy(self)
        made._attach(core, name)
        made._verified = False
        return made

    @property
    def _device(self) -> torch.device:
        return next(self._core.parameters()).device

    @property
    def _positions(self) -> int:
        return int(self._architecture.positions(self._core.config))

    def encode(self, texts: Sequence[Text]) -> list[Sentence]:
        return encode_sentences(texts, self._tokenizer, self._positions, int(self._core.config.vocab_size), self.name)

    def states(self, sentence: Sentence, layers: Sequence[int] | None = None) -> SentenceStates:
        chosen = self._chosen_layers(layers)
        with torch.no_grad(), quiet(), recorded(self._layers) as calls:
            attentions = self._architecture.run(self._core, self._inputs(sentence)).attentions
        keys, queries, phases = [], [], []
        for layer in self._layers:  # a shared module ran once for each layer that it serves, in this order
            turns = self._architecture.phases(layer, calls[layer.attention].pop(0)) if layer.turns else None
            own, asking = layer.norms or (layer.key.module, layer.query.module)
            keys.append(calls[own].pop(0)[0])
            queries.append(keys[-1] if own is asking else calls[asking].pop(0)[0])
            phases.append(turns)
            if layer.norms is not None:
                keys[-1] = self._head_space(keys[-1], layer, layer.key_heads, turns)
                queries[-1] = self._head_space(queries[-1], layer, layer.heads, turns)
        wide = self._wide([keys[layer] for layer in chosen])
        same = all(torch.equal(keys[layer], queries[layer]) for layer in chosen)
        turned = [phases[layer] for layer in chosen]
        still = next((torch.ones_like(own) for own in turned if own is not None), None)  # where a layer has none
        found = SentenceStates(
            keys=wide,
            queries=wide if same else self._wide([queries[layer] for layer in chosen]),
            attention=torch.stack([attentions[layer][0] for layer in chosen]).to("cpu", torch.float64),
            allowed=self._allowed(len(sentence), chosen),
            phases=None if still is None else torch.stack([still if own is None else own for own in turned]).cpu(),
            buckets=self._buckets(len(sentence)),
        )
        return self._checked(found, chosen)

    def _head_space(self, states: Tensor, layer: Layer, heads: int, phases: Tensor | None) -> Tensor:
        """Normalized keys or queries of all heads, turned by their positions, side by side, ``[T, heads m]``."""
        states, phases = states.cpu(), None if phases is None else phases.cpu()
        apart = states.transpose(0, 1) if self._architecture.heads_first else states.reshape(len(states), heads, -1)
        one = torch.eye(layer.size)
        turned = HeadWeights(one, one, layer.pairs)
        return torch.cat([turned.turned(apart[:, head].double(), phases) for head in range(heads)], -1)

    def _allowed(self, length: int, layers: Sequence[int]) -> Tensor:
        windows = [self._layers[layer].window for layer in layers]
        masks = [allowed_tokens(length, self.causal, window) for window in windows]
        return masks[0] if len(set(windows)) == 1 else torch.stack(masks)

    def _buckets(self, length: int) -> Tensor | None:
        if self._architecture.relative is None:
            return None
        place = torch.arange(length, device=self._device)
        return self._architecture.relative(self._core)[1](place - place[:, None]).cpu()

    def _wide(self, states: Sequence[Tensor]) -> Tensor:
        """States of some layers in float64, with the constant coordinate where the model has biases."""
        stacked = torch.stack(list(states))
        biased = any(layer.biased for layer in self._layers)  # of a model in head space none is
        return with_constant(stacked) if biased else stacked.detach().to("cpu", torch.float64)

    def _inputs(self, sentence: Sentence) -> Mapping[str, Any]:
        """What the model is called with."""
        self._check_length(sentence, self._positions)
        ids = sentence.ids[None].to(self._device)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def weights(self, layer: int, head: int) -> HeadWeights:
        self._check_head(layer, head)
        return self._layers[layer].form(head)

    def untrained(self, seed: int) -> HeadModel:
        with torch.random.fork_rng(devices=[]), quiet():  # no global seed changes
            torch.manual_seed(seed)
            fresh = type(self._core)(copy.deepcopy(self._core.config))
        return self._with_core(fresh.to(self._device, torch.float32).eval(), f"{self.name}, untrained ({seed})")

    def fingerprint(self) -> str:
        if self._fingerprint is None:
            settings = {k: v for k, v in self._core.config.to_dict().items() if k not in _PROVENANCE}
            told = json.dumps(settings, sort_keys=True, default=str)
            self._fingerprint = model_hash(told, self._core, self._tokenizer, self._extra)
        return self._fingerprint


@contextmanager
def recorded(layers: Sequence[Layer]) -> Iterator[Mapping[nn.Module, list[Any]]]:
    """What modules do while a model runs, call after call: inputs of projections, outputs of norms of keys and queries,
    and named arguments of attention modules.
    """
    calls: defaultdict[nn.Module, list[Any]] = defaultdict(list)
    with ExitStack() as hooks:
        for module in {layer.attention for layer in layers}:
            hook = module.register_forward_pre_hook(lambda own, _, named: calls[own].append(named), with_kwargs=True)
            hooks.enter_context(hook)
        for module in {part.module for layer in layers for part in (layer.key, layer.query)}:
            hooks.enter_context(module.register_forward_pre_hook(lambda own, given: calls[own].append(given[0])))
        for module in {norm for layer in layers for norm in layer.norms or ()}:
            hooks.enter_context(module.register_forward_hook(lambda own, _, output: calls[own].append(output)))
        yield calls


class ListeningModel(TransformersModel):
    """The decoder of Whisper: it reads texts while it listens to `extra`, its encoder's ``[frames, d]``, or silence."""

    def _attach(self, core: Any, name: str) -> None:
        super()._attach(core, name)
        if not self._extra:
            frames = 2 * core.config.max_source_positions  # the second convolution halves the length
            mel = torch.full((1, core.config.num_mel_bins, frames), _SILENCE, device=self._device)
            with torch.no_grad():
                self._heard = core.encoder(mel).last_hidden_state[0]
            return
        (given,), width = self._extra, self._layers[0].query.weight.shape[0]
        if given.ndim != 2 or given.shape[1] != width or not bool(given.isfinite().all()):
            raise ValueError(f"audio_features must be finite and of shape [frames, {width}]; got {list(given.shape)}")
        self._heard = given.to(self._device, torch.float32)

    def _inputs(self, sentence: Sentence) -> Mapping[str, Any]:
        ids, heard = super()._inputs(sentence)["input_ids"], self._heard[None].to(self._core.dtype)
        return {"input_ids": ids, "encoder_hidden_states": heard}


class ImagesModel(TransformersModel):
    """A vision transformer with the images to read, ``[n, channels, height, width]``: each is a sentence of patches."""

    def __init__(
        self, core: Any, architecture: Architecture, images: Tensor, name: str, notes: tuple[str, ...] = ()
    ) -> None:
        super().__init__(core, architecture, None, name, notes)
        shape, patch = image_shape(core.config), image_shape(core.config, "patch_size")
        if images.ndim != 4 or tuple(images.shape[1:]) != shape or not len(images):
            raise ValueError(f"images must have shape [n, {', '.join(map(str, shape))}]; got {list(images.shape)}")
        check_finite(images, "images", ("image", "channel", "row", "column"))
        # The same image twice would lie on both sides of the split into seen and held-out ones.
        plain = images.to("cpu", torch.float32).contiguous()
        hashes = [hashlib.sha256(image.numpy().tobytes()).digest() for image in plain]
        kept = [index for index, digest in enumerate(hashes) if hashes.index(digest) == index]
        if again := len(images) - len(kept):
            self.notes += (f"{counted(again, 'image')} {'repeats' if again == 1 else 'repeat'} others; left out",)
        self._extra = (plain[kept],)
        rows, columns = (range(shape[side] // patch[side]) for side in (1, 2))
        tokens = ("[CLS]", *(f"patch {row},{column}" for row in rows for column in columns))
        ids = torch.arange(len(tokens))
        self.sentences = tuple(Sentence(f"image {i}", tokens, ids, ids == 0) for i in kept)

    def encode(self, texts: Sequence[Text]) -> list[Sentence]:
        raise ValueError(f"{self.name} reads images, not texts; use its own sentences (texts=None)")

    def _inputs(self, sentence: Sentence) -> Mapping[str, Any]:
        index = next((i for i, own in enumerate(self.sentences) if own.text == sentence.text), None)
        if index is None:
            raise ValueError(f"sentence must be one of the {len(self.sentences)} images; got {sentence.text!r}")
        return {"pixel_values": self._extra[0][index : index + 1].to(self._device)}


def image_shape(config: Any, of: str = "image_size") -> tuple[int, int, int]:
    """Channels, height and width of the images that a vision model reads, or of a patch of them."""
    size = getattr(config, of)
    height, width = (size, size) if isinstance(size, int) else size
    return int(config.num_channels), int(height), int(width)


def check_weights(module: nn.Module, name: str) -> None:
    """Raise ValueError unless all weights are finite."""
    for key, tensor in module.named_parameters():
        if not bool(torch.isfinite(tensor).all()):
            kind = "NaN" if bool(torch.isnan(tensor).any()) else "infinity"
            raise ValueError(f"the weights of {name} must be finite; {key} holds {kind}")


def model_hash(settings: str, module: nn.Module, tokenizer: Tokenizer | None, extra: Sequence[Tensor] = ()) -> str:
    """A hash of settings, all weights by name, the tokenizer and `extra`."""
    digest = hashlib.sha256(settings.encode())
    for key, tensor in sorted(module.state_dict().items()):
        digest.update(f"{key} {list(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    digest.update(b"no tokenizer" if tokenizer is None else tokenizer.identity())
    for tensor in extra:
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
