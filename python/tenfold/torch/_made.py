"""Pages that a device makes of tokens in paged pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from . import _device
from ._pools import aligned, describe
from ._staged import engine_of

if TYPE_CHECKING:
    from ..kv import PageCodec

# Streams that groups of layers are encoded on: one group alone leaves most of a device idle.
_STREAMS = 4
# Where keys and values of a page are; None for a page that the device does not make.
_Places = Sequence[Sequence[tuple[int, int]] | None]


def make_pages(
    codec: PageCodec,
    slots: np.ndarray,
    positions: Sequence[int],
    pools: tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]],
    step: float,
) -> list[bytes | None]:
    """Pages, and None for those that a device does not make, such as ones with NaN. ``slots`` are of each page's tokens, a row a page;
    ``positions`` of each page's first token."""
    device = pools[0][0].device
    engine = engine_of(codec, device)
    save = engine.save(len(slots), slots.shape[1], step)
    with _device.preserve_current(device):
        current = _device.stream(device)
        at, starts = torch.from_numpy(slots).to(device), torch.tensor(positions, dtype=torch.int64).to(device)
        streams = _device.sides(device, _STREAMS)
        for stream in streams:
            stream.wait_stream(current)
            for one in (at, starts):
                _device.share(one, stream)
        # A workspace for each; what is made later on a stream follows what was made there before.
        room = []
        for stream in streams:
            with _device.on(stream):
                room.append(aligned(save.workspace_len, device))
        content: list[tuple[torch.Tensor, _Places]] = []
        for first in range(0, len(codec.groups), len(streams)):
            made = []
            for group, stream, workspace in zip(range(first, len(codec.groups)), streams, room, strict=False):
                layers = slice(codec.groups[group][0], sum(codec.groups[group]))
                of_keys, of_values = (describe(side[layers]) for side in pools)
                with _device.on(stream):
                    blobs = aligned(save.blobs_len[group], device)
                    status = torch.zeros(save.statuses, 2, dtype=torch.int64, device=device)
                    given, begun, to, work = ((one.data_ptr(), one.nbytes) for one in (at, starts, blobs, workspace))
                    how = (of_keys, of_values, given, begun, to, status.data_ptr(), work, stream.cuda_stream)
                    engine.queue_save(save, group, *how)
                made.append((group, stream, blobs, status))
            for group, stream, blobs, status in made:
                with _device.on(stream):
                    places = engine.places(save, group, status.cpu().numpy().tobytes())
                    content.append(_fetch(blobs, places))
        for stream in streams:
            # Blocks may be written again once the caller's stream goes on.
            current.wait_stream(stream)
            stream.synchronize()
    return engine.assemble(save, [(host.numpy(), places) for host, places in content])


def _fetch(blobs: torch.Tensor, places: _Places) -> tuple[torch.Tensor, _Places]:
    """Sends for the bytes of pages, side by side, and says where each page's will be. Waits for nothing."""
    wanted = [place for page in places if page is not None for place in page]
    if not wanted:
        return torch.empty(0, dtype=torch.uint8), places
    # In words of four bytes, which blobs are made of.
    starts, ends = (torch.tensor(numbers, dtype=torch.int64).to(blobs.device) // 4 for numbers in zip(*wanted, strict=True))
    lengths = [end - start for start, end in wanted]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    before = torch.from_numpy(offsets[:-1] // 4).to(blobs.device)
    total = int(offsets[-1])
    index = torch.arange(total // 4, device=blobs.device) + torch.repeat_interleave(starts - before, ends - starts, output_size=total // 4)
    packed = blobs.view(torch.int32).index_select(0, index).view(torch.uint8)
    host = _device.staging(total)
    host.copy_(packed, non_blocking=True)
    runs = iter(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
    return host, [None if page is None else [next(runs), next(runs)] for page in places]
