"""Streams of a CUDA device that work beside the engine's own."""

from __future__ import annotations

import torch

from ..torch import _device


class Streams:
    """Of one plug-in on one device.

    Args:
        device: a CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        lowest, _ = torch.cuda.Stream.priority_range()  # type: ignore[call-arg]
        # Requests wait for loads; nobody waits for saves.
        self.loads: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.saves: torch.cuda.Stream = torch.cuda.Stream(device, priority=lowest)  # type: ignore[no-untyped-call]
        self._device = device

    def mark(self) -> torch.cuda.Event:
        """An event behind all that the engine has queued so far. Threads that wait for it sleep."""
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(_device.stream(self._device))
        return event


def streams_of(device: torch.device) -> Streams | None:
    """Streams of a CUDA device; None for other devices."""
    return Streams(device) if _device.is_ours(device) else None
