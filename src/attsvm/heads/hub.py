"""The folder of a model on the Hugging Face hub: from the local cache first, then over the network."""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_PLAIN = ["*.json", "*.txt", "*.model"]


def hub_folder(name: str) -> Path:
    """The folder with configuration, tokenizer and weights of a model on the hub; no code is fetched.

    Raises:
        ValueError: if `name` is no name on the hub, or the model is neither in the cache nor can be fetched.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name} does not exist; give a model folder, a .pt file of Whisper, or a name on the hub")
    from huggingface_hub import snapshot_download

    problem: Exception | None = None
    for offline in (True, False):
        for weights in ("model*.safetensors", "pytorch_model*.bin"):
            try:
                folder = Path(snapshot_download(name, allow_patterns=[*_PLAIN, weights], local_files_only=offline))
            except Exception as error:  # the library passes on what its network layers raise
                problem = error
                break
            if any(folder.glob(weights)):
                return folder
    why = "it has no weights that can be read" if problem is None else str(problem).strip().partition("\n")[0]
    raise ValueError(
        f"{name} is no folder here, is not in the local cache of the Hugging Face hub, and could not be fetched"
        f" ({why}); give the path of a downloaded model"
    )
