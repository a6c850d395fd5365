"""What to send how: raw, or coded in one of the ways that a program has.

The rule is that of ``tenfold plan``: what fits into one packet goes raw, a way must beat raw by 15 %, and of ways that are about
as fast as the fastest the most exact is taken.

>>> from tenfold import plan
>>> way = plan.Way("2.5 bits", plan.Cost(1e-4, 1 / 150e6), plan.Cost(1e-4, 1 / 400e6), ratio=6.4)
>>> plan.choose(32 << 20, [way], link="100Mb/s").way
'2.5 bits'
>>> plan.choose(576 * 2, [way], link="100Mb/s").text      # a token's hidden state in bf16
'send raw: it fits into one packet'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from . import _native

__all__ = ["Choice", "Cost", "Way", "choose"]


@dataclass(frozen=True)
class Cost:
    """Seconds of one worker for a piece of a tensor.

    Attributes:
        fixed: seconds a call.
        per_byte: seconds a byte of the uncoded tensor.
    """

    fixed: float
    per_byte: float

    @classmethod
    def fit(cls, small: tuple[float, float], large: tuple[float, float]) -> Cost:
        """Fits the cost to two measurements, each bytes and seconds."""
        return cls(*_native.fit_cost(small, large))


@dataclass(frozen=True)
class Way:
    """A way of coding.

    Attributes:
        name: for people, and in the choice.
        encode: seconds to encode.
        decode: seconds to decode.
        ratio: bytes of the tensor over bytes sent.
        nmse: mean squared error over the variance; None if it is not known.
    """

    name: str
    encode: Cost
    decode: Cost
    ratio: float
    nmse: float | None = None


@dataclass(frozen=True)
class Choice:
    """How to send something.

    Attributes:
        way: name of the chosen way; None sends it raw.
        reason: one of ``fastest``, ``more-exact``, ``not-faster``, ``one-packet`` and ``no-way``.
        text: the reason as a sentence.
        seconds: what the choice takes.
        raw_seconds: what raw takes.
    """

    way: str | None
    reason: str
    text: str
    seconds: float
    raw_seconds: float


def choose(
    nbytes: int,
    ways: Sequence[Way] = (),
    *,
    link: float | str,
    latency: float = 0.0,
    chunk: int | None = None,
    cores: tuple[int, int] = (1, 1),
) -> Choice:
    """Chooses how to send a tensor.

    Args:
        nbytes: of the tensor, uncoded.
        ways: that there are.
        link: bytes a second, or a text such as ``100Mb/s``.
        latency: of the link, in seconds.
        chunk: bytes that are coded and sent at once, while other chunks are on the link; None codes all of it, then sends it.
        cores: of the sender and of the receiver.

    Raises:
        ArgumentError: a number that cannot be, or a text that is no bandwidth.
    """
    rate = _native.parse_bandwidth(link) if isinstance(link, str) else float(link)
    stated = [(way.name, astuple(way.encode), astuple(way.decode), way.ratio, way.nmse) for way in ways]
    chosen, reason, text, seconds, raw = _native.choose_way(nbytes, chunk or nbytes, stated, (rate, latency), cores)
    return Choice(None if chosen is None else ways[chosen].name, reason, text, seconds, raw)
