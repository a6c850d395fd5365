"""Options of the ``"serde"`` in an adapter's configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch

from ..._errors import ArgumentError, DataError
from ...kv import Bases
from .._device_pages import DevicePages
from .._pages import KvPages

_FLOATS = ("float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True)
class Options:
    """Options of the serde, as docs/lmcache.md lists them."""

    bits: float | None = None
    max_bytes: int | None = None
    lossless: bool = False
    pad: bool = True
    bases: str | None = None
    model: str = ""
    revision: str = ""
    exact: int = 1
    key_step: float = 2.0
    group: int = 16
    effort: str = "balanced"
    threads: int = 0
    max_workers: int = 1
    dtype: str | None = None
    rotary: int = 0
    device: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Options:
        """Reads the options from the configuration.

        Raises:
            ArgumentError: an option is unknown, has another type, or is invalid.
        """
        unknown = sorted(given.keys() - _TYPES.keys())
        if unknown:
            raise ArgumentError(f"unknown options of the tenfold serde: {', '.join(unknown)}; there are {', '.join(_TYPES)}")
        for name, value in given.items():
            # True is an int to Python, and null says nothing that leaving the option out does not.
            if not isinstance(value, _TYPES[name]) or (isinstance(value, bool) and _TYPES[name] is not bool):
                raise ArgumentError(f"option {name} of the tenfold serde cannot be {value!r}")
        options = cls(**given)
        options._check()
        return options

    @property
    def rate(self) -> str:
        """As text, for identities."""
        cap = f"max_bytes={self.max_bytes}" if self.max_bytes is not None else f"bits={self.bits:g}" if self.bits else ""
        return " ".join(part for part in ("lossless" if self.lossless else "", cap) if part) or "bits=4"

    @property
    def bytes_are(self) -> torch.dtype | None:
        """What bytes of a cache that is kept as bytes are."""
        return None if self.dtype is None else getattr(torch, self.dtype)

    def pages(self, layers: int, max_bytes: int | None = None) -> KvPages:
        """What makes pages of so many layers and at most so many bytes; lossless ones where none are stated."""
        how: dict[str, Any] = {"exact": self.exact, "group": self.group, "key_step": self.key_step}
        how |= {"effort": self.effort, "threads": self.threads}
        how |= {"max_bytes": max_bytes, "lossless": max_bytes is None, "bases": self.bases}
        return DevicePages(layers, device=self.device, **how)

    def _check(self) -> None:
        if self.bits is not None and self.max_bytes is not None:
            raise ArgumentError("one of bits and max_bytes, not both")
        # Both ranges are checked there.
        KvPages(1, bits=self.bits, max_bytes=self.max_bytes)
        if self.lossless and self.pad and self.bits is None and self.max_bytes is None:
            raise ArgumentError(
                "lossless chunks have any size, and most adapters of LMCache read objects of one size only: "
                'state bits or max_bytes that they are to fit into, or "pad": false'
            )
        for name, least in (("threads", 0), ("exact", 0), ("rotary", 0), ("group", 1), ("max_workers", 1)):
            if getattr(self, name) < least:
                raise ArgumentError(f"option {name} of the tenfold serde is {least} or more, not {getattr(self, name)}")
        if self.dtype is not None and self.dtype not in _FLOATS:
            raise ArgumentError(f"option dtype of the tenfold serde is one of {', '.join(_FLOATS)}, not {self.dtype!r}")
        layers = 1
        if self.bases is not None:
            layers = Bases.open(self.bases).layers
            if _rope(self.bases):
                raise ArgumentError(
                    f"{self.bases} turns keys back by their positions, which LMCache does not say; "
                    "make bases of keys as they are (tenfold basis fit --rope none)"
                )
        self.pages(layers)


def _rope(path: str) -> str | None:
    """Rotary positions of a file of bases, as it states them."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    try:
        stated = json.loads(header["__metadata__"]["basis"])["rope"]
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{path} does not say whether it needs positions") from None
    return None if stated is None else str(stated)


_NUMBER = (int, float)
_TYPES: dict[str, Any] = {field.name: str for field in fields(Options)} | {
    "bits": _NUMBER,
    "max_bytes": int,
    "lossless": bool,
    "pad": bool,
    "exact": int,
    "key_step": _NUMBER,
    "group": int,
    "threads": int,
    "max_workers": int,
    "rotary": int,
}
