"""Tokenizers of the transformers library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from attsvm.heads.quiet import quiet
from attsvm.heads.tokenizers.base import Tokenizer


class HuggingFaceTokenizer(Tokenizer):
    """Wraps a tokenizer of the transformers library."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        unknown, mask = tokenizer.unk_token_id, tokenizer.mask_token_id
        framing = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.cls_token_id}
        framing |= {tokenizer.sep_token_id, tokenizer.pad_token_id}
        # Unknown and masked words are parts of the text; GPT-2 writes its unknown words with the closing token.
        self._special = frozenset(set(tokenizer.all_special_ids) - {unknown, mask} | (framing - {None}))

    @property
    def special(self) -> frozenset[int]:
        return self._special

    def encode(self, text: str) -> list[int]:
        with quiet():  # it would say that a text is too long, which the model says itself
            return [int(i) for i in self._tokenizer(text)["input_ids"]]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [str(token) for token in self._tokenizer.convert_ids_to_tokens(list(ids))]

    def identity(self) -> bytes:
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is not None:
            return str(backend.to_str()).encode()
        settings = [type(self._tokenizer).__name__, sorted(self._tokenizer.get_vocab().items()), sorted(self._special)]
        return json.dumps(settings).encode()
