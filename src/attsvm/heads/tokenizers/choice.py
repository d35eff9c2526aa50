"""Which tokenizer belongs to a model: the one given, else the one in its folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from attsvm.heads.quiet import quiet
from attsvm.heads.reasons import reason
from attsvm.heads.tokenizers.base import Tokenizer
from attsvm.heads.tokenizers.hugging_face import HuggingFaceTokenizer
from attsvm.heads.tokenizers.smiles import ARROW, SmilesTokenizer
from attsvm.heads.tokenizers.whisper import WhisperTokenizer

FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")


def choose_tokenizer(given: object, folder: Path | None, config: Any) -> Tokenizer | None:
    """The tokenizer `given` (an object, a folder or a file), or else that in the model's `folder`, or None.

    Raises:
        ValueError: if what was given is no tokenizer, or its files cannot be read without running their code.
    """
    if given is None:
        return _from_folder(folder, config) if folder is not None else None
    if isinstance(given, Tokenizer):
        return given
    if isinstance(given, str | os.PathLike):
        path = Path(given)
        if path.is_dir():
            found = _from_folder(path, config)
            if found is None:
                raise ValueError(f"tokenizer {path} holds none of {', '.join(FILES)}")
            return found
        if path.is_file() and path.suffix == ".tiktoken":
            return WhisperTokenizer.from_file(path, int(config.vocab_size))
        raise ValueError(f"tokenizer must be a folder, a .tiktoken file or a tokenizer; there is no such {path}")
    if callable(given) and hasattr(given, "convert_ids_to_tokens"):
        return HuggingFaceTokenizer(given)
    raise ValueError(f"tokenizer must be a folder, a .tiktoken file or a tokenizer; got {type(given).__name__}")


def _from_folder(folder: Path, config: Any) -> Tokenizer | None:
    present = [name for name in FILES if (folder / name).is_file()]
    if not present:
        return None
    settings = folder / "tokenizer_config.json"
    if settings.is_file() and "auto_map" in _parsed(settings):
        raise ValueError(f"{settings} asks to run Python code from the model folder (auto_map), which is never done")
    words = folder / "vocab.txt"
    if "tokenizer.json" not in present and words.is_file() and ARROW in words.read_text(encoding="utf-8").split("\n"):
        return SmilesTokenizer.from_file(words)
    from transformers import AutoTokenizer

    try:
        with quiet():
            found = AutoTokenizer.from_pretrained(folder, config=config, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the library raises whatever its parsers raise
        raise ValueError(f"the tokenizer in {folder} ({', '.join(present)}) cannot be read: {reason(error)}") from None
    return HuggingFaceTokenizer(found)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise ValueError(f"{path} is no JSON") from None
    return parsed if isinstance(parsed, dict) else {}
