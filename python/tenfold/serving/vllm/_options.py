"""What ``kv_connector_extra_config`` may say, checked once when an engine starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..._errors import ArgumentError, DtypeError

# What each setting is, in words for a message, and the types that will do. A bool is an int in Python, not here.
_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "path": ("a folder", (str,)),
    "bits": ("a number", (int, float)),
    "max_bytes": ("a whole number", (int,)),
    "lossless": ("true or false", (bool,)),
    "bases": ("a path", (str, type(None))),
    "rope": ('"auto", null or an object', (str, dict, type(None))),
    "exact": ("a whole number", (int,)),
    "effort": ("text", (str,)),
    "load": ("text", (str,)),
    "page_tokens": ("a whole number", (int,)),
    "model": ("text", (str,)),
    "revision": ("text", (str,)),
    "max_store_bytes": ("a whole number", (int, type(None))),
    "max_pending_bytes": ("a whole number", (int,)),
    "threads": ("a whole number", (int,)),
    "trace": ("a path", (str, type(None))),
}
_LOADS = ("whole", "layers")


@dataclass(frozen=True)
class Options:
    """Settings of a connector.

    Attributes:
        path: folder of the store; created if it does not exist.
        bits: bits a value; 4 if no rate is stated.
        max_bytes: bytes of a page, instead of bits.
        lossless: every bit stays.
        bases: file of bases for the model.
        rope: rotary positions of keys. "auto" reads the model's configuration, None leaves keys unchanged, a dict is as
            in :class:`tenfold.kv.PageCodec`.
        exact: first tokens of a context that stay exact.
        effort: "fast", "balanced" or "best".
        load: "whole" has all layers of a request in their blocks, and checked, before it is scheduled; "layers" computes
            a layer as soon as that is there.
        page_tokens: tokens of a page, a multiple of the block size; the least such that is 64 or more unless stated.
        model: the model's name, where engines that share a store have it in different places.
        revision: which state of the model; see :func:`._identity.revision_of` for what is taken unless stated.
        max_store_bytes: room for the records of one tensor-parallel rank; what was not read for longest goes.
        max_pending_bytes: bytes of keys and values that may wait for compression. More than that is not stored.
        threads: threads that read, as many that decode, and as many that write; 0 uses one a core of the worker.
        trace: file for a timeline of loads; None for no file.
    """

    path: str
    bits: float | None = None
    max_bytes: int | None = None
    lossless: bool = False
    bases: str | None = None
    rope: dict[str, Any] | str | None = "auto"
    exact: int = 1
    effort: str = "fast"
    load: str = "whole"
    page_tokens: int | None = None
    model: str | None = None
    revision: str | None = None
    max_store_bytes: int | None = None
    max_pending_bytes: int = 256 << 20
    threads: int = 0
    trace: str | None = None

    @property
    def by_layer(self) -> bool:
        """Whether a request computes a layer as soon as that is loaded."""
        return self.load == "layers"

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Options:
        """Settings as vLLM hands them on.

        >>> Options.parse({"path": "/var/cache/kv", "bits": 3}).bits
        3
        >>> Options.parse({"path": "/var/cache/kv", "bit": 3})
        Traceback (most recent call last):
            ...
        tenfold._errors.ArgumentError: kv_connector_extra_config has no bit; it takes bases, bits, effort, exact, ...
        """
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(given) - known)
        if unknown:
            takes = ", ".join(sorted(known))
            raise ArgumentError(f"kv_connector_extra_config has no {', '.join(unknown)}; it takes {takes}")
        if "path" not in given:
            raise ArgumentError("kv_connector_extra_config needs path, the folder where keys and values are kept")
        for name, value in given.items():
            words, kinds = _KINDS[name]
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                raise DtypeError(f"{name} of kv_connector_extra_config is {words}, not {value!r}")
        options = cls(**given)
        options._check()
        return options

    def _check(self) -> None:
        if not self.path:
            raise ArgumentError("path of kv_connector_extra_config is empty; it names the folder of the store")
        if self.trace is not None and not Path(self.trace).name:
            raise ArgumentError(f"trace of kv_connector_extra_config names a file, not {self.trace!r}")
        if isinstance(self.rope, str) and self.rope != "auto":
            raise ArgumentError(f'rope of kv_connector_extra_config is "auto", null or an object, not {self.rope!r}')
        if self.load not in _LOADS:
            raise ArgumentError(f'load of kv_connector_extra_config is "whole" or "layers", not {self.load!r}')
        if self.bases is not None and isinstance(self.rope, dict):
            raise ArgumentError("bases have rotary positions of their own: state rope where there are none")
        leasts = {"exact": 0, "threads": 0, "page_tokens": 1, "max_store_bytes": 1, "max_pending_bytes": 1}
        for name, least in leasts.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ArgumentError(f"{name} of kv_connector_extra_config is at least {least}, not {value}")
