"""attsvm: a softmax attention layer trained by gradient descent is a support vector machine that selects tokens."""

__version__ = "0.1.0"

from attsvm import attention, data, descent, norms, svm, theory
from attsvm.attention import *  # noqa: F403
from attsvm.data import TokenDataset
from attsvm.descent import *  # noqa: F403
from attsvm.norms import *  # noqa: F403
from attsvm.svm import *  # noqa: F403
from attsvm.theory import *  # noqa: F403

__all__ = ["TokenDataset", "__version__", "attention", "data", "descent", "norms", "svm", "theory"]
__all__ += attention.__all__ + descent.__all__ + norms.__all__ + svm.__all__ + theory.__all__
