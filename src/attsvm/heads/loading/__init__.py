"""Models whose heads can be read: from folders, the hub, live models and arrays; and texts to run them on."""

from attsvm.heads.loading.arrays import from_arrays
from attsvm.heads.loading.load import load
from attsvm.heads.loading.texts import Texts, read_texts, sample_reactions, sample_texts

__all__ = ["load", "from_arrays", "Texts", "read_texts", "sample_texts", "sample_reactions"]
