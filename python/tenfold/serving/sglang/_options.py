"""Options in ``--hicache-storage-backend-extra-config``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from ..._errors import ArgumentError

# Read by SGLang. It takes some of them out before a backend sees them, but not on every way that leads here.
_OF_SGLANG = frozenset(
    (
        "allocator",
        "backend_name",
        "class_name",
        "file_storage_path",
        "hicache_storage_pass_prefix_keys",
        "interface_v1",
        "module_path",
        "prefetch_threshold",
        "prefetch_timeout_base",
        "prefetch_timeout_per_ki_token",
    )
)
_DTYPES = ("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32")


@dataclass(frozen=True)
class Options:
    """Options of the backend, as docs/sglang.md lists them."""

    path: str
    bits: float | None = None
    max_bytes: int | None = None
    lossless: bool = False
    bases: str | None = None
    effort: str = "fast"
    revision: str = ""
    max_store_bytes: int | None = None
    threads: int = 0
    dtype: str | None = None
    device: str | None = None
    trace: str | None = None

    @classmethod
    def parse(cls, extra: Mapping[str, Any] | None) -> Options:
        """Reads the options from the extra configuration.

        Raises:
            ArgumentError: something is unknown, missing or of another type.
        """
        given = {name: value for name, value in (extra or {}).items() if name not in _OF_SGLANG}
        unknown = sorted(given.keys() - _TYPES.keys())
        if unknown:
            known = ", ".join(_TYPES)
            raise ArgumentError(f"unknown options of the tenfold backend: {', '.join(unknown)}; there are {known}")
        for name, value in given.items():
            # True is an int to Python, and null says nothing that leaving the option out does not.
            if not isinstance(value, _TYPES[name]) or (isinstance(value, bool) and _TYPES[name] is not bool):
                raise ArgumentError(f"option {name} of the tenfold backend cannot be {value!r}")
        if not given.get("path"):
            raise ArgumentError('the tenfold backend needs a folder: "path" in --hicache-storage-backend-extra-config')
        options = cls(**given)
        options._check()
        return options

    @property
    def torch_dtype(self) -> torch.dtype | None:
        """What bytes of a pool that keeps bytes are."""
        return None if self.dtype is None else getattr(torch, self.dtype)

    def rate(self) -> dict[str, Any]:
        """As :class:`SlotCodec` takes it."""
        return {"bits": self.bits, "max_bytes": self.max_bytes, "lossless": self.lossless}

    def _check(self) -> None:
        if self.threads < 0:
            raise ArgumentError(f"option threads is 0 (all cores) or more, not {self.threads}")
        if self.trace is not None and not Path(self.trace).name:
            raise ArgumentError(f"option trace names a file, not {self.trace!r}")
        if self.dtype is not None and self.dtype not in _DTYPES:
            raise ArgumentError(f"option dtype is one of {', '.join(_DTYPES)}, not {self.dtype!r}")


_NUMBER = (int, float)
_TYPES: dict[str, Any] = {field.name: str for field in fields(Options)} | {
    "bits": _NUMBER,
    "max_bytes": int,
    "lossless": bool,
    "max_store_bytes": int,
    "threads": int,
}
