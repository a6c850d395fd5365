"""What ``config.json`` and callers say about a compressed model."""

from __future__ import annotations

from typing import Any

from transformers.utils.quantization_config import QuantizationConfigMixin

from .. import _native
from .._errors import ArgumentError, DataError, DtypeError, UnsupportedError

_LOADING = ("keep_compressed", "buffers", "prefetch")


class TenfoldConfig(QuantizationConfigMixin):
    """How a compressed model is loaded: an argument of ``from_pretrained``, or ``quantization_config`` in ``config.json``.

    Args:
        keep_compressed: whether the weights of layers, embeddings and head stay compressed in memory and are decoded just
            before they are used. If not, all weights are decoded while the model loads.
        buffers: decoded layers in memory at a time, 1 to 16. With two, the next layer is decoded while one computes.
        prefetch: whether to decode ahead. Without it a layer is decoded when its turn comes.
        format: format version of the folder's files; ``tenfold compress`` writes it.

    >>> from tenfold.transformers import TenfoldConfig
    >>> TenfoldConfig(keep_compressed=True).to_dict()["quant_method"]
    'tenfold'
    >>> TenfoldConfig(format=99)
    Traceback (most recent call last):
        ...
    tenfold._errors.UnsupportedError: the model is of format 99, this tenfold reads 1; install a newer tenfold
    """

    def __init__(
        self,
        keep_compressed: bool = False,
        *,
        buffers: int = 2,
        prefetch: bool = True,
        format: int = _native.MODEL_FORMAT,  # noqa: A002 - the name that config.json has
        quant_method: str = "tenfold",
        **unknown: Any,
    ) -> None:
        if quant_method != "tenfold":
            raise ArgumentError(f'quant_method is {quant_method!r}; a TenfoldConfig is for "tenfold"')
        if not isinstance(format, int) or isinstance(format, bool) or format < 1:
            raise DataError(f"quantization_config names format {format!r}, which does not exist; compress the model again")
        if format > _native.MODEL_FORMAT:
            raise UnsupportedError(
                f"the model is of format {format}, this tenfold reads {_native.MODEL_FORMAT}; install a newer tenfold"
            )
        if unknown:
            names = ", ".join(unknown)
            raise UnsupportedError(f"quantization_config says {names}, which is unknown here; install a newer tenfold")
        if not isinstance(keep_compressed, bool) or not isinstance(prefetch, bool):
            raise DtypeError("keep_compressed and prefetch must be True or False")
        if not isinstance(buffers, int) or isinstance(buffers, bool) or not 1 <= buffers <= 16:
            raise ArgumentError(f"buffers must be a number from 1 to 16, not {buffers!r}")
        if prefetch and buffers == 1 and keep_compressed:
            raise ArgumentError("one buffer leaves no room for the next layer; pass buffers=2 or prefetch=False")
        self.quant_method = quant_method  # type: ignore[assignment] # theirs is an enumeration of their own methods
        self.format = format
        self.keep_compressed = keep_compressed
        self.buffers = buffers
        self.prefetch = prefetch

    def get_loading_attributes(self) -> dict[str, Any]:
        """What an argument of ``from_pretrained`` overrides in a folder's own configuration."""
        return {name: getattr(self, name) for name in _LOADING}
