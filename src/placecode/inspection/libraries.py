"""Initialization scales of learned positional encodings in common libraries, as read in their source code.

The scale is the standard deviation of the values that are drawn. A normal distribution truncated at two of its standard
deviations has 0.88 of its standard deviation; truncation at -2 and 2 does not change a normal with a standard deviation
of 0.02. A scale may depend on the number of tokens and on the width.

>>> [round(each.sigma(16, 64), 3) for each in LIBRARIES if each.name == "big_vision"]
[0.125]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

TRUNCATED_STD = 0.87962566103423978
"""Standard deviation of a standard normal distribution truncated at -2 and 2."""


@dataclass(frozen=True)
class Library:
    """Initialization of learned absolute positional encodings in a library or in the published code of a model.

    Parameters
    ----------
    name : str
        Name of the library or model.
    table : str
        The vectors that are initialized.
    distribution : str
        Their distribution.
    formula : str
        Formula of the standard deviation, with the width d and the number of tokens n.
    scale : callable
        `scale(tokens, width)` returns the standard deviation.
    source : str
        Repository and file of the source code.
    """

    name: str
    table: str
    distribution: str
    formula: str
    scale: Callable[[int, int], float]
    source: str

    def sigma(self, tokens: int, width: int) -> float:
        """Return the initial standard deviation in a model of this size; 0 if all values are initialized to zero."""
        return self.scale(tokens, width)


def _constant(value: float) -> Callable[[int, int], float]:
    """Return a scale that depends on neither tokens nor width."""
    return lambda tokens, width: value


def _per_width(tokens: int, width: int) -> float:
    """Return d^-1/2."""
    return float(width**-0.5)


def _glorot(tokens: int, width: int) -> float:
    """Return the standard deviation of Glorot's initialization of an n x d table."""
    return float((2 / (tokens + width)) ** 0.5)


LIBRARIES = (
    Library(
        "PyTorch",
        "nn.Embedding, unless told otherwise",
        "normal",
        "1",
        _constant(1.0),
        "pytorch/pytorch torch/nn/modules/sparse.py",
    ),
    Library("vit-pytorch", "ViT", "normal", "1", _constant(1.0), "lucidrains/vit-pytorch vit_pytorch/vit.py"),
    Library(
        "Decision Transformer",
        "time steps (nn.Embedding as it comes)",
        "normal",
        "1",
        _constant(1.0),
        "kzl/decision-transformer gym/decision_transformer/models/decision_transformer.py",
    ),
    Library(
        "DETR",
        "rows and columns, where learned ones are asked for",
        "uniform from 0 to 1, so of mean 0.5",
        "12^-1/2",
        _constant(12**-0.5),
        "facebookresearch/detr models/position_encoding.py",
    ),
    Library(
        "x-transformers",
        "AbsolutePositionalEmbedding",
        "normal, multiplied by d^-1/2 at every use",
        "d^-1/2",
        _per_width,
        "lucidrains/x-transformers x_transformers/x_transformers.py",
    ),
    Library(
        "fairseq",
        "PositionalEmbedding, learned",
        "normal",
        "d^-1/2",
        _per_width,
        "facebookresearch/fairseq fairseq/modules/positional_embedding.py",
    ),
    Library("big_vision", "ViT", "normal", "d^-1/2", _per_width, "google-research/big_vision big_vision/models/vit.py"),
    Library("CLIP, images", "patches", "normal", "d^-1/2", _per_width, "openai/CLIP clip/model.py"),
    Library("CLIP, text", "words", "normal", "0.01", _constant(0.01), "openai/CLIP clip/model.py"),
    Library(
        "KerasHub",
        "PositionEmbedding, unless told otherwise",
        "uniform (Glorot) over the n x d table",
        "(2 / (n + d))^1/2",
        _glorot,
        "keras-team/keras-hub keras_hub/src/layers/modeling/position_embedding.py",
    ),
    Library(
        "timm",
        "ViT",
        "normal, cut at -2 and 2, which cuts nothing",
        "0.02",
        _constant(0.02),
        "huggingface/pytorch-image-models timm/models/vision_transformer.py",
    ),
    Library(
        "TimeSformer, space",
        "patches",
        "normal, cut at -2 and 2, which cuts nothing",
        "0.02",
        _constant(0.02),
        "facebookresearch/TimeSformer timesformer/models/vit.py",
    ),
    Library(
        "TimeSformer, time",
        "frames",
        "zeros",
        "0",
        _constant(0.0),
        "facebookresearch/TimeSformer timesformer/models/vit.py",
    ),
    Library(
        "torchvision",
        "ViT",
        "normal",
        "0.02",
        _constant(0.02),
        "pytorch/vision torchvision/models/vision_transformer.py",
    ),
    Library(
        "vision_transformer",
        "the first ViT, in JAX",
        "normal",
        "0.02",
        _constant(0.02),
        "google-research/vision_transformer vit_jax/models_vit.py",
    ),
    Library("nanoGPT", "GPT", "normal", "0.02", _constant(0.02), "karpathy/nanoGPT model.py"),
    Library(
        "Transformers, GPT-2",
        "GPT2Model",
        "normal",
        "0.02",
        _constant(0.02),
        "huggingface/transformers src/transformers/models/gpt2/modeling_gpt2.py",
    ),
    Library(
        "Transformers, BERT",
        "BertModel",
        "normal",
        "0.02",
        _constant(0.02),
        "huggingface/transformers src/transformers/models/bert/modeling_bert.py",
    ),
    Library(
        "BERT",
        "the published code, in TensorFlow",
        "normal of 0.02, cut at two standard deviations",
        "0.0176",
        _constant(0.02 * TRUNCATED_STD),
        "google-research/bert modeling.py",
    ),
    Library(
        "Perceiver",
        "trainable positions",
        "normal of 0.02, cut at two standard deviations",
        "0.0176",
        _constant(0.02 * TRUNCATED_STD),
        "google-deepmind/deepmind-research perceiver/position_encoding.py",
    ),
    Library(
        "GPT-2", "the published code, in TensorFlow", "normal", "0.01", _constant(0.01), "openai/gpt-2 src/model.py"
    ),
    Library(
        "Segment Anything",
        "patches",
        "zeros",
        "0",
        _constant(0.0),
        "facebookresearch/segment-anything segment_anything/modeling/image_encoder.py",
    ),
)
