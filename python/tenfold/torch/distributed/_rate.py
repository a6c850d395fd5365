"""Bandwidth and latency of the way to another rank, measured by both together."""

from __future__ import annotations

import time

import torch

from ._peer import Wire

_PINGS = 32
_FIRST, _MOST = 1 << 16, 1 << 25
# Seconds after which a transfer is long enough.
_ENOUGH = 0.2


def measure_link(wire: Wire, is_source: bool, device: torch.device) -> tuple[float, float]:
    """Returns bytes a second from the source to the target, and the seconds of one way.

    Both ends call it; only the source knows the result, the other end gets zeros. It takes about a second at most.
    """
    small = torch.zeros(1, dtype=torch.int64, device=device)
    if not is_source:
        for _ in range(_PINGS):
            wire.receive(small)
            wire.send(small)
        while nbytes := int(wire.receive(small).item()):
            wire.receive(torch.empty(nbytes, dtype=torch.uint8, device=device))
            wire.send(small)
        wire.flush()
        return 0.0, 0.0
    trips = []
    for _ in range(_PINGS):
        trips.append(_timed(wire, [small], small))
    trip = min(trips)
    nbytes, bandwidth = _FIRST, 0.0
    while True:
        # The largest transfer counts: buffers and bursts hide the link from a small one.
        size, content = torch.full_like(small, nbytes), torch.zeros(nbytes, dtype=torch.uint8, device=device)
        seconds = _timed(wire, [size, content], small)
        bandwidth = nbytes / max(seconds - trip, 1e-9)
        if seconds >= _ENOUGH or nbytes >= _MOST:
            break
        # As large as is enough, if the rate stays, but no more than four times as large.
        nbytes = min(max(2 * nbytes, min(4 * nbytes, int(1.25 * _ENOUGH * bandwidth))), _MOST)
    wire.send(torch.zeros_like(small))
    wire.flush()
    return bandwidth, trip / 2


def _timed(wire: Wire, tensors: list[torch.Tensor], answer: torch.Tensor) -> float:
    """Seconds until the answer to some tensors is here."""
    start = time.perf_counter()
    for tensor in tensors:
        wire.send(tensor)
    wire.receive(torch.empty_like(answer))
    return time.perf_counter() - start
