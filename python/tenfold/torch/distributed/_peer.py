"""Waiting for another rank: a typed error within bounded time, which says what to do."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator

import torch
import torch.distributed as dist

from ..._errors import Error, PeerError


@contextlib.contextmanager
def talking(peer: int, what: str, seconds: float) -> Iterator[None]:
    """Turns what torch raises when a rank is gone into :class:`PeerError`. Only communication belongs inside."""
    try:
        yield
    except Error:
        raise
    except RuntimeError as error:
        cause = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise PeerError(
            f"rank {peer} is gone or did not answer within {seconds:g} s, while {what} ({cause}); see what it last said, and start "
            "all ranks again. If it only needs longer, state a longer timeout"
        ) from error


class Wire:
    """Tensors to one other rank and from it, in the order in which they are sent.

    Args:
        peer: the other rank, in the group.
        group: of both; None for all ranks.
        seconds: to wait for the other rank at most.
    """

    def __init__(self, peer: int, group: dist.ProcessGroup | None, seconds: float) -> None:
        self.peer, self.seconds = peer, seconds
        self._group = group
        self._timeout = datetime.timedelta(seconds=seconds)
        # Kept until it has left: nothing else may own what is being sent.
        self._leaving: list[tuple[dist.Work, torch.Tensor]] = []

    def send(self, tensor: torch.Tensor) -> None:
        """Starts to send a contiguous tensor."""
        with talking(self.peer, "sending to it", self.seconds):
            self._leaving = [(work, kept) for work, kept in self._leaving if not work.is_completed()]
            work = dist.isend(tensor, group=self._group, group_dst=self.peer)
        if work is not None:
            self._leaving.append((work, tensor))

    def flush(self) -> None:
        """Waits until all has left."""
        leaving, self._leaving = self._leaving, []
        for work, _ in leaving:
            self.wait(work, "sending to it")

    def expect(self, tensor: torch.Tensor) -> dist.Work:
        """Starts to receive into a contiguous tensor."""
        with talking(self.peer, "receiving from it", self.seconds):
            work = dist.irecv(tensor, group=self._group, group_src=self.peer)
        assert work is not None  # this rank is in the group
        return work

    def wait(self, work: dist.Work, what: str = "receiving from it") -> None:
        """Waits for what was started."""
        with talking(self.peer, what, self.seconds):
            work.wait(self._timeout)

    def receive(self, tensor: torch.Tensor) -> torch.Tensor:
        """Receives into a tensor."""
        self.wait(self.expect(tensor))
        return tensor

    def share(self, tensor: torch.Tensor, is_mine: bool) -> torch.Tensor:
        """Sends a tensor, or receives it: afterwards both ends have it."""
        if not is_mine:
            return self.receive(tensor)
        self.send(tensor)
        self.flush()
        return tensor
