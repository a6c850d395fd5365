"""What ``config.json`` and callers say about a compressed model."""

from __future__ import annotations

from typing import Any, Literal

from transformers.utils.quantization_config import QuantizationConfigMixin

from .. import _native
from .._errors import ArgumentError, DataError, DtypeError, UnsupportedError
from ..torch.kept import check_buffers, check_checksums

_LOADING = ("keep_compressed", "buffers", "prefetch", "blobs", "graph", "multiply", "checksums")
_PLACES = ("device", "pinned")


class TenfoldConfig(QuantizationConfigMixin):
    """How a compressed model is loaded: an argument of ``from_pretrained``, or ``quantization_config`` in ``config.json``.

    Args:
        keep_compressed: whether the weights of layers, embeddings and head stay compressed in memory and are decoded just
            before they are used. If not, all weights are decoded while the model loads.
        buffers: decoded layers in memory at a time, 1 to 16. With two, the next layer is decoded while one computes.
        prefetch: whether to decode ahead. Without it a layer is decoded when its turn comes.
        blobs: where compressed weights lie: "device", with the rest of the model, or "pinned", in host memory, from where a
            CUDA device fetches each layer ahead of its turn.
        graph: whether ``generate`` with ``cache_implementation="static"`` replays its step as a CUDA graph.
        multiply: whether linear layers that work on one token on a CUDA device use a kernel of tenfold, which leaves more of the device
            to decoding, and RMS norms take one kernel. Sums are added up in another order, so the last bits may differ.
        checksums: whether a CUDA device checks the checksums of tiles in every pass (True), in none, or once, while the model loads. In
            later passes it still finds what does not decode.
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
        blobs: str = "device",
        graph: bool = True,
        multiply: bool = True,
        checksums: bool | Literal["once"] = "once",
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
        if not all(isinstance(one, bool) for one in (keep_compressed, prefetch, graph, multiply)):
            raise DtypeError("keep_compressed, prefetch, graph and multiply must be True or False")
        if blobs not in _PLACES:
            raise ArgumentError(f"blobs must be {' or '.join(map(repr, _PLACES))}, not {blobs!r}")
        check_buffers(buffers, prefetch and keep_compressed)
        check_checksums(checksums)
        self.quant_method = quant_method  # type: ignore[assignment] # theirs is an enumeration of their own methods
        self.format = format
        self.keep_compressed = keep_compressed
        self.buffers = buffers
        self.prefetch = prefetch
        self.blobs = blobs
        self.graph = graph
        self.multiply = multiply
        self.checksums = checksums

    def get_loading_attributes(self) -> dict[str, Any]:
        """What an argument of ``from_pretrained`` overrides in a folder's own configuration."""
        return {name: getattr(self, name) for name in _LOADING}
