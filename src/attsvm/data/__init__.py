"""Token data sets: the container, synthetic and hand-made data, real patches, files in and out."""

from attsvm.data.counter import Counter
from attsvm.data.dataset import TokenDataset
from attsvm.data.digits import (
    DigitImages,
    digits_images,
    digits_patches,
    grid_positions,
    one_hot_positions,
    patches_to_images,
)
from attsvm.data.examples import EXAMPLES, StartingPoints, example, starting_points
from attsvm.data.random import equal_scores, orthonormal_tokens, random_gaussian, random_sphere
from attsvm.data.streams import Seed, stream_keys, streams

__all__ = [
    "TokenDataset",  # the container
    "random_sphere", "random_gaussian", "orthonormal_tokens", "equal_scores",
    "EXAMPLES", "StartingPoints", "example", "starting_points",  # hand-made
    "DigitImages", "digits_images", "digits_patches", "patches_to_images",  # real patches
    "grid_positions", "one_hot_positions",
    "Counter", "Seed", "stream_keys", "streams",  # seeds
]  # fmt: skip
