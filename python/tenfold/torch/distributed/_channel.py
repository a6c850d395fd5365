"""A one-way channel between two ranks, for activations whose shapes change from call to call: prompts, then tokens.

:class:`CompressedStage` sends the same through the schedules of ``torch.distributed.pipelining``, which want one shape. What
crosses is the same: slots of a size that follows from the shape, so a receiver knows how many bytes come and nothing is asked first.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
import torch.distributed as dist

from ... import _native, plan
from ..._errors import ArgumentError
from ._agree import agree
from ._boundary import TensorCodec, packed
from ._peer import Wire, talking
from ._rate import measure_link
from ._ways import Sending, Ways


class Expected:
    """A tensor that is under way."""

    def __init__(self, channel: Channel, work: dist.Work, slot: torch.Tensor, out: torch.Tensor, codec: TensorCodec | None) -> None:
        self._channel, self._work, self._slot, self._out, self._codec = channel, work, slot, out, codec

    def read(self) -> torch.Tensor:
        """Waits for the tensor, and returns it decoded.

        Raises:
            PeerError: the other rank is gone.
            DataError: what came is no such tensor.
        """
        return self._channel._read(self._work, self._slot, self._out, self._codec)


class Channel:
    """Sends tensors from one rank to another, compressed where that pays.

    Every rank of the group makes the channel, with the same options. Both ends state each tensor's shape and dtype, and from
    these follows how it is sent. Whatever the coder, what fits into one packet goes raw: fewer bytes would not be fewer packets.

    Args:
        source: rank that sends.
        target: rank that receives.
        coder: ``"tenfold"``; ``"fp8"`` (e4m3, a scale in f32 a row), ``"raw"``, or ``"auto"``: what takes the least time by the
            rule of :func:`tenfold.plan.choose`, for which both ends measure themselves and the link.
        bits: bits a value of ``tenfold``.
        link: bytes a second, or a text such as ``"100Mb/s"``, for ``auto``; None measures it.
        effort: "fast", "balanced" or "best".
        threads: worker threads of the CPU; 0 uses all cores.
        timeout: seconds to wait for the other rank at most.
        group: of both ranks; None for all.
        device: of the tensors.

    Attributes:
        sent: bytes that this rank has sent.
        raw: bytes of the tensors that it sent.
        encode_seconds: that it took to encode.
        decode_seconds: that it took to decode.
        wait_seconds: for which it waited for tensors.
        link: bytes a second and seconds of latency that ``auto`` reckons with; None for other coders.

    Raises:
        ArgumentError: an argument is invalid, or another rank has other options or another version of tenfold.
        PeerError: the other rank is gone or does not answer.
    """

    def __init__(
        self,
        source: int,
        target: int,
        *,
        coder: str = "tenfold",
        bits: float = 3.5,
        link: float | str | None = None,
        effort: str = "fast",
        threads: int = 0,
        timeout: float = 60.0,
        group: dist.ProcessGroup | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        group = group or dist.group.WORLD
        assert group is not None  # a channel needs one
        if source == target or not {source, target} <= set(range(dist.get_world_size(group))):
            raise ArgumentError(f"a channel is between two ranks of its group, not from {source} to {target}")
        if not timeout > 0:
            raise ArgumentError(f"a timeout of {timeout} s leaves no time")
        self._rank, self._source, self._target = dist.get_rank(group), source, target
        self._device = torch.device(device)
        self._ways = Ways(coder, bits, effort, threads)
        peer = target if self._rank == source else source
        self._wire = Wire(peer, group, timeout)
        self._known: dict[tuple[torch.Size, torch.dtype], Sending] = {}
        self.sent = self.raw = 0
        self.encode_seconds = self.decode_seconds = self.wait_seconds = 0.0
        rate = _native.parse_bandwidth(link) if isinstance(link, str) else link
        options = {"source": source, "target": target, "coder": coder, "bits": bits, "link": rate, "effort": effort}
        with talking(peer, "comparing options with it", timeout):
            agree(group, "a channel", options)
        self.link: tuple[float, float] | None = None
        if coder == "auto" and self._rank in (source, target):
            self.link = self._measure(rate)

    def sending(self, shape: Sequence[int], dtype: torch.dtype) -> Sending:
        """How a tensor is sent, and why."""
        key = torch.Size(shape), dtype
        if key not in self._known:
            self._known[key] = self._ways.sending(torch.empty(shape, dtype=dtype, device="meta"))
        return self._known[key]

    def send(self, tensor: torch.Tensor) -> None:
        """Encodes a tensor and starts to send it; :meth:`flush` waits until it has left."""
        if self._rank != self._source:
            raise ArgumentError(f"rank {self._rank} is not the source of this channel")
        how = self.sending(tensor.shape, tensor.dtype)
        codec = self._ways.codec(how.coder, tensor)
        start = time.perf_counter()
        slot = tensor.detach().contiguous() if codec is None else packed(codec, tensor, f"{tuple(tensor.shape)}")
        self.encode_seconds += time.perf_counter() - start
        self.raw += how.raw_nbytes
        self.sent += slot.nbytes
        self._wire.send(slot)

    def flush(self) -> None:
        """Waits until everything has left."""
        self._wire.flush()

    def expect(self, shape: Sequence[int], dtype: torch.dtype) -> Expected:
        """Starts to receive the next tensor, so that the source need not wait for this rank."""
        if self._rank != self._target:
            raise ArgumentError(f"rank {self._rank} is not the target of this channel")
        how = self.sending(shape, dtype)
        out = torch.empty(tuple(shape), dtype=dtype, device=self._device)
        codec = self._ways.codec(how.coder, out)
        slot = out if codec is None else torch.empty(how.nbytes, dtype=torch.uint8, device=self._device)
        return Expected(self, self._wire.expect(slot), slot, out, codec)

    def receive(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Receives the next tensor."""
        return self.expect(shape, dtype).read()

    def _read(self, work: dist.Work, slot: torch.Tensor, out: torch.Tensor, codec: TensorCodec | None) -> torch.Tensor:
        start = time.perf_counter()
        self._wire.wait(work)
        arrived = time.perf_counter()
        self.wait_seconds += arrived - start
        if codec is not None:
            codec.read(slot, out)
            self.decode_seconds += time.perf_counter() - arrived
        return out

    def _measure(self, rate: float | None) -> tuple[float, float]:
        """Measures both ends one after the other, since they may share cores, then the link. Both ends get the same numbers."""
        is_source, names = self._rank == self._source, self._ways.names()
        ends = []
        for mine in (is_source, not is_source):
            found = torch.zeros(len(names), 5, dtype=torch.float64, device=self._device)
            if mine:
                costs = self._ways.measure(self._device)
                found = torch.tensor([costs[name] for name in names], dtype=torch.float64, device=self._device)
            ends.append(self._wire.share(found, mine))
        encoding, decoding = (found.tolist() for found in ends)
        for name, sent, read in zip(names, encoding, decoding, strict=True):
            self._ways.measured[name] = plan.Cost(sent[0], sent[1]), plan.Cost(read[2], read[3]), sent[4]
        bandwidth, latency = measure_link(self._wire, is_source, self._device)
        stated = torch.tensor([bandwidth if rate is None else rate, latency], dtype=torch.float64, device=self._device)
        link = self._wire.share(stated, is_source).tolist()
        self._ways.link = link[0], link[1]
        return self._ways.link
