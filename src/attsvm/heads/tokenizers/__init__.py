"""Turning texts into token numbers: Hugging Face files, reaction SMILES, byte pairs of Whisper."""

from attsvm.heads.tokenizers.base import Tokenizer
from attsvm.heads.tokenizers.choice import choose_tokenizer
from attsvm.heads.tokenizers.hugging_face import HuggingFaceTokenizer
from attsvm.heads.tokenizers.smiles import SmilesTokenizer
from attsvm.heads.tokenizers.whisper import WhisperTokenizer

__all__ = ["HuggingFaceTokenizer", "SmilesTokenizer", "Tokenizer", "WhisperTokenizer", "choose_tokenizer"]
