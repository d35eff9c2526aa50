"""Token data sets: the container, synthetic and hand-made data, real patches, files in and out."""

from attsvm.data.counter import Counter
from attsvm.data.dataset import TokenDataset
from attsvm.data.digits import digits_patches, one_hot_positions, patches_to_images
from attsvm.data.examples import EXAMPLES, StartingPoints, example, starting_points
from attsvm.data.random import equal_scores, orthonormal_tokens, random_gaussian, random_sphere
from attsvm.data.streams import Seed, stream_keys, streams

__all__ = [
    # the container
    "TokenDataset",
    # random data
    "random_sphere", "random_gaussian", "orthonormal_tokens", "equal_scores",
    # hand-made examples
    "EXAMPLES", "StartingPoints", "example", "starting_points",
    # real patches
    "digits_patches", "one_hot_positions", "patches_to_images",
    # seeds
    "Counter", "Seed", "stream_keys", "streams",
]  # fmt: skip
