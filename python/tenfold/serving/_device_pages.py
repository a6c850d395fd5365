"""Pages that a CUDA device codes for tensors that may be in the host's memory."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch

from .._errors import LimitError, MachineError, UnsupportedError
from ..torch import _device
from ..torch._pools import DTYPES
from ..torch._tensors import as_device
from ._pages import KvPages
from ._streams import Streams, streams_of

logger = logging.getLogger(__name__)

Tensors = Sequence[torch.Tensor]
# What the CPU may still do: the driver's lack of memory is a LimitError, torch's is its own.
_REFUSALS = (UnsupportedError, MachineError, LimitError, torch.OutOfMemoryError)


class DevicePages(KvPages):
    """Makes and reads pages as :class:`KvPages` does, on a CUDA device where that can.

    Keys and values that are on a device are coded there. Those in the host's memory are copied to the stated device for it: raw bytes
    cross the link once, and the CPU is left alone. What the device does not code, and what it has no memory for, the CPU codes.

    Args:
        layers: layers of the model.
        device: where tensors of the host are coded; on the CPU if none is stated.
        how: as for :class:`KvPages`.
    """

    def __init__(self, layers: int, *, device: str | None = None, **how: Any) -> None:
        super().__init__(layers, **how)
        self._device = None if device is None else as_device(device)
        self._streams: Streams | None = None if self._device is None else streams_of(self._device)
        self._refused = False

    def encode(self, keys: Tensors, values: Tensors, position: int | None = None) -> bytes:
        """See :meth:`KvPages.encode`. Tensors are of the host or of a CUDA device."""
        where = self._where(keys[0])
        if where is not None and position is not None:
            count = sum(tensor.numel() for tensor in (*keys, *values))
            try:
                if self.encodes_blocks(where, count, position):
                    with self._beside(keys[0], saves=True):
                        of_keys, of_values = ([_pool(tensor.to(where)) for tensor in side] for side in (keys, values))
                        return self.encode_blocks([range(len(keys[0]))], of_keys, of_values, [position])[0]
            except _REFUSALS as error:
                self._refuse(error)
        return super().encode([tensor.cpu() for tensor in keys], [tensor.cpu() for tensor in values], position)

    def decode(self, page: Any, keys: Tensors, values: Tensors) -> None:
        """See :meth:`KvPages.decode`. Tensors are of the host or of a CUDA device; what is damaged is not copied to the host."""
        where = self._where(keys[0])
        if where is not None:
            try:
                self._decode_on(where, page, keys, values)
                return
            except _REFUSALS as error:
                self._refuse(error)
        if not _device.is_ours(keys[0].device):
            super().decode(page, keys, values)
            return
        rooms = [[torch.empty(tensor.shape, dtype=tensor.dtype) for tensor in side] for side in (keys, values)]
        super().decode(page, *rooms)
        _copy((*rooms[0], *rooms[1]), (*keys, *values))

    def _decode_on(self, where: torch.device, page: Any, keys: Tensors, values: Tensors) -> None:
        with self._beside(keys[0], saves=False):
            of_keys, of_values = ([_pool(_room(tensor, where)) for tensor in side] for side in (keys, values))
            (error,) = self.decode_blocks([page], [range(len(keys[0]))], of_keys, of_values)
            if error is not None:
                raise error
            _copy((*of_keys, *of_values), (*keys, *values))

    def _where(self, like: torch.Tensor) -> torch.device | None:
        """The device that codes tensors like this one."""
        if like.dtype not in DTYPES:
            return None
        if _device.is_ours(like.device):
            return like.device
        return None if self._streams is None else self._device

    def _beside(self, like: torch.Tensor, *, saves: bool) -> Any:
        """The stream to work on: the caller's for its own tensors of a device."""
        if self._streams is None or like.device == self._device:
            return nullcontext()
        return _device.on(self._streams.saves if saves else self._streams.loads)

    def _refuse(self, error: Exception) -> None:
        if not self._refused:
            logger.warning("tenfold: the CPU codes pages that the device does not: %s", error)
        self._refused = True


def _pool(rows: torch.Tensor) -> torch.Tensor:
    return rows.flatten(1)


def _room(like: torch.Tensor, where: torch.device) -> torch.Tensor:
    return torch.empty(like.shape, dtype=like.dtype, device=where)


def _copy(found: Tensors, into: Tensors) -> None:
    for rows, target in zip(found, into, strict=True):
        target.copy_(rows.view(target.shape))
