"""Models of the transformers library made anew: from a state dictionary, from a live model, or untrained."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from attsvm.heads.architectures import Architecture
from attsvm.heads.quiet import quiet
from attsvm.heads.reasons import reason

# What lies behind the last attention layer, and masks that only training uses.
_UNUSED = ("pooler.", "embeddings.mask_token")


def fresh(core: Any, seed: int) -> Any:
    """A model of the same kind and configuration with the library's own initial weights; no global seed changes."""
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(seed)
        made = type(core)(copy.deepcopy(core.config))
    return made.to(next(core.parameters()).device, torch.float32).eval()


def eager_copy(module: Any, architecture: Architecture, name: str) -> Any:
    """A float32 copy of the core of a live model that computes its attention eagerly; `module` stays as it is.

    Raises:
        ValueError: if its weights are not those that its class has (adapters, quantization).
    """
    core = architecture.core(module)
    config = copy.deepcopy(core.config)
    config._attn_implementation = "eager"
    with torch.random.fork_rng(devices=[]), quiet():
        made = type(core)(config)
    try:
        missing, unexpected = made.load_state_dict(core.state_dict(), strict=False)
    except RuntimeError as error:
        raise ValueError(f"the weights of {name} do not fit its configuration: {reason(error)}") from None
    strange = [key for key in unexpected if not key.startswith(_UNUSED)]
    _check_complete(missing, name)
    if strange:
        raise ValueError(
            f"{name} has weights that {type(core).__name__} does not know, such as {strange[0]}; merge adapters into"
            " the weights first"
        )
    return made.to(next(core.parameters()).device, torch.float32).eval()


def from_state(config: Any, state: Mapping[str, Tensor], name: str) -> Any:
    """The float32 core of this configuration with the weights `state`, in the names of a saved model.

    Raises:
        ValueError: if a weight is missing or has another shape.
    """
    from transformers import MODEL_MAPPING

    config = copy.deepcopy(config)
    # The library would cast the weights to what was saved; before transformers 4.56 the setting had a longer name.
    setattr(config, "dtype" if hasattr(config, "dtype") else "torch_dtype", torch.float32)
    try:
        with torch.random.fork_rng(devices=[]), quiet():
            made, report = MODEL_MAPPING[type(config)].from_pretrained(
                None,
                config=config,
                state_dict={key: tensor.float() for key, tensor in state.items()},
                attn_implementation="eager",
                output_loading_info=True,
            )
    except Exception as error:  # the library raises whatever it meets
        raise ValueError(f"the weights of {name} do not fit its configuration: {reason(error)}") from None
    _check_complete(report["missing_keys"], name)
    return made.float().eval()


def _check_complete(missing: Iterable[str], name: str) -> None:
    needed = sorted(key for key in missing if not key.startswith(_UNUSED))
    if needed:
        raise ValueError(
            f"{name} lacks {len(needed)} weights that its architecture needs, such as {needed[0]}; the model is"
            " incomplete or of another architecture than its configuration says"
        )
