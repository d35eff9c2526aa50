"""The architectures whose logits are x^T W z, one file each."""

from attsvm.heads.architectures.albert import Albert
from attsvm.heads.architectures.base import Architecture
from attsvm.heads.architectures.bert import Bert, Roberta
from attsvm.heads.architectures.distilbert import DistilBert
from attsvm.heads.architectures.gpt2 import Gpt2
from attsvm.heads.architectures.gpt_bigcode import GptBigCode
from attsvm.heads.architectures.vit import Vit
from attsvm.heads.architectures.whisper import Whisper

ARCHITECTURES: dict[str, Architecture] = {
    model_type: architecture
    for architecture in (Bert(), Roberta(), DistilBert(), Albert(), Gpt2(), GptBigCode(), Whisper(), Vit())
    for model_type in architecture.model_types
}

__all__ = ["ARCHITECTURES", "Architecture"]
