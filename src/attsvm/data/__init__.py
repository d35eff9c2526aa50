"""Token data sets: the container, synthetic and hand-made data, real patches, files in and out."""

from attsvm.data.dataset import TokenDataset

__all__ = ["TokenDataset"]
