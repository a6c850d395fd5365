"""How a channel may send a tensor: as it is, in 8 bits, or in a slot of :class:`CompressedStage`; what each costs here."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from ... import plan
from ..._errors import ArgumentError
from ._boundary import Boundary, Rates, TensorCodec, packed
from ._slot import LEAST

CODERS = ("raw", "fp8", "tenfold", "auto")
_FLOAT8 = torch.float8_e4m3fn
_SCALE_BYTES = 4
# Rows and columns of the two made-up tensors that costs are measured on.
_SAMPLES = ((8, 512), (256, 512))
_ROUNDS = 7


@dataclass(frozen=True)
class Sending:
    """How a channel sends tensors of a shape.

    Attributes:
        coder: ``raw``, ``fp8`` or ``tenfold``.
        reason: why, as a word: ``stated``, ``not-float``, ``too-small``, or a reason of :class:`tenfold.plan.Choice`.
        text: why, as a sentence.
        nbytes: that are sent.
        raw_nbytes: of the tensor.
        seconds: that ``auto`` expects it to take, coding and sending; None for other coders.
    """

    coder: str
    reason: str
    text: str
    nbytes: int
    raw_nbytes: int
    seconds: float | None = None


class Float8Codec:
    """Values in 8 bits (e4m3), with a scale in f32 for each row.

    Args:
        columns: of a row.
    """

    def __init__(self, columns: int) -> None:
        self._columns = columns

    def room(self, values: int) -> int:
        """Bytes of a slot for so many values."""
        return values + values // self._columns * _SCALE_BYTES

    def fill(self, values: torch.Tensor, slot: torch.Tensor, key: str) -> None:
        """Encodes a tensor into a slot."""
        rows = values.reshape(-1, self._columns).float()
        scales, levels = self._parts(slot, len(rows))
        # The largest value of a row becomes the largest of the type; a row of zeros stays one.
        torch.div(rows.abs().amax(1, keepdim=True), torch.finfo(_FLOAT8).max, out=scales)
        scales.clamp_(min=torch.finfo(torch.float32).tiny)
        levels.copy_(rows / scales)

    def read(self, slot: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Decodes a slot into a tensor of the shape that it was made of."""
        scales, levels = self._parts(slot, out.numel() // self._columns)
        return out.copy_((levels.float() * scales).view_as(out))

    def _parts(self, slot: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        at = rows * _SCALE_BYTES
        return slot[:at].view(torch.float32).view(rows, 1), slot[at:].view(_FLOAT8).view(rows, self._columns)


class Ways:
    """The ways that a channel has.

    Args:
        coder: which to take; ``auto`` for what takes the least time.
        bits: bits a value of ``tenfold``.
        effort: of its encoder.
        threads: of the CPU.
    """

    def __init__(self, coder: str, bits: float, effort: str, threads: int) -> None:
        if coder not in CODERS:
            raise ArgumentError(f"coder must be one of {', '.join(CODERS)}, not {coder!r}")
        self.coder = coder
        self._boundary = Boundary(Rates(bits, None, None, None), effort, threads, adapts=True)
        # Seconds of encoding and decoding by coder, and nmse; filled for auto, with the same numbers on both ends.
        self.measured: dict[str, tuple[plan.Cost, plan.Cost, float]] = {}
        self.link = (1.0, 0.0)

    def names(self) -> list[str]:
        """What ``auto`` may take but raw."""
        return ["fp8", "tenfold"] if self.coder == "auto" else []

    def codec(self, coder: str, tensor: torch.Tensor) -> TensorCodec | None:
        """The codec of a tensor; None if it is sent as it is."""
        if coder == "fp8":
            return Float8Codec(tensor.shape[-1])
        return self._boundary.activations(tensor) if coder == "tenfold" else None

    def sending(self, tensor: torch.Tensor) -> Sending:
        """How a tensor is sent. Its values do not matter: both ends find the same."""
        nbytes = tensor.nbytes

        def raw(reason: str, text: str, seconds: float | None = None) -> Sending:
            return Sending("raw", reason, text, nbytes, nbytes, seconds)

        if self.coder == "raw":
            return raw("stated", "raw, as stated")
        if not tensor.is_floating_point():
            return raw("not-float", "send raw: these are no floats")
        ways = {name: self._way(name, tensor) for name in self.names()}
        choice = plan.choose(nbytes, [way for way in ways.values() if way], link=self.link[0], latency=self.link[1])
        seconds = choice.seconds if self.coder == "auto" else None
        if choice.reason == "one-packet" or self.coder == "auto" and choice.way is None:
            return raw(choice.reason, choice.text, seconds)
        coder, reason, text = self.coder, "stated", f"{self.coder}, as stated"
        if self.coder == "auto":
            coder, reason, text = str(choice.way), choice.reason, choice.text
        codec = self.codec(coder, tensor)
        if codec is None:
            return raw("too-small", f"send raw: fewer than {LEAST} values, of which a blob's header would be a large part")
        return Sending(coder, reason, text, codec.room(tensor.numel()), nbytes, seconds)

    def _way(self, name: str, tensor: torch.Tensor) -> plan.Way | None:
        codec = self.codec(name, tensor)
        if codec is None:
            return None
        encode, decode, nmse = self.measured[name]
        return plan.Way(name, encode, decode, tensor.nbytes / codec.room(tensor.numel()), nmse)

    def measure(self, device: torch.device) -> dict[str, list[float]]:
        """What the ways cost here: fixed and per byte, encoding and decoding, and the nmse on values of N(0, 1) in bf16."""
        made = {}
        generator = torch.Generator().manual_seed(0)
        for name in self.names():
            encode, decode, nmse = [], [], 0.0
            for shape in _SAMPLES:
                tensor = torch.randn(shape, generator=generator).to(device, torch.bfloat16)
                codec = self.codec(name, tensor)
                assert codec is not None  # samples are large enough
                key = f"measured {shape}"
                slot, out = packed(codec, tensor, key), torch.empty_like(tensor)
                encode.append((float(tensor.nbytes), _seconds(partial(packed, codec, tensor, key), device)))
                decode.append((float(tensor.nbytes), _seconds(partial(codec.read, slot, out), device)))
                nmse = float((out.float() - tensor.float()).square().mean() / tensor.float().var())
            costs = [plan.Cost.fit(encode[0], encode[1]), plan.Cost.fit(decode[0], decode[1])]
            made[name] = [costs[0].fixed, costs[0].per_byte, costs[1].fixed, costs[1].per_byte, nmse]
        return made


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """The median of some rounds, after one that warms up."""
    taken = []
    for _ in range(_ROUNDS + 1):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[1:])
