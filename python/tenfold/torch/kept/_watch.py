"""Looks after the verdicts of devices on blobs that are decoded again and again, without waiting for the device."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .. import _device
from .._verdicts import CODE, first_bad, raise_bad


class Watch:
    """The first bad verdict since the last look, on the device and, soon after, in host memory."""

    def __init__(self, device: torch.device) -> None:
        with torch.inference_mode(False):
            self._bad = torch.zeros(1, 2, dtype=torch.int64, device=device)
            self._seen = _device.pinned(1, 2)

    def collect(self, verdicts: Iterable[torch.Tensor]) -> None:
        """Queues a look at verdicts on the current stream; a CUDA graph can capture it."""
        said = list(verdicts)
        if said:
            with torch.inference_mode(False), torch.no_grad():
                self._bad.copy_(first_bad(torch.cat([self._bad, *said])))
                self._seen.copy_(self._bad, non_blocking=True)

    def has_fault(self) -> bool:
        """Whether the host knows of a bad verdict; does not wait."""
        return bool(int(self._seen[0, 0]) & CODE)

    def check(self) -> None:
        """Waits for the current stream, forgets, and raises the first bad verdict."""
        said = self._bad.cpu()
        with torch.inference_mode(False):
            self._bad.zero_()
            self._seen.zero_()
        raise_bad(said)
