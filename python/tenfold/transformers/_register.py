"""Registers the method with transformers, which has no entry points for that: users must import this package."""

from __future__ import annotations

from transformers.quantizers import auto

from .._errors import UnsupportedError
from ._config import TenfoldConfig
from ._quantizer import TenfoldQuantizer

METHOD = "tenfold"


def register() -> None:
    """Registers configuration and quantizer; once a process."""
    if METHOD in auto.AUTO_QUANTIZER_MAPPING:
        return
    if not isinstance(getattr(auto, "LOADING_ATTRIBUTES_CONFIG_TYPES", None), tuple):
        raise UnsupportedError("tenfold does not support this version of transformers; pip install 'tenfold[transformers]'")
    auto.register_quantization_config(METHOD)(TenfoldConfig)
    auto.register_quantizer(METHOD)(TenfoldQuantizer)
    # Only configurations of these types may say, as an argument of from_pretrained, how a folder's own is to be loaded.
    auto.LOADING_ATTRIBUTES_CONFIG_TYPES += (TenfoldConfig,)  # type: ignore[assignment]
