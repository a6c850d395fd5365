"""What is to be shown: fewer bits than each peer at the same harm, and bits at which a model may be so much worse at most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.report import Row, table

Point = tuple[float, float]
"""Bits and harm."""


def bits_at(points: Sequence[Point], harm: float) -> tuple[float, str]:
    """Bits at which a curve does so much harm, between the measured points, and what to put before them: `<` or `>` where the
    curve does not reach so far."""
    bits, harms = (np.array(column) for column in zip(*falling(points)))
    if harm > harms[0]:
        return float(bits[0]), "<"
    if harm < harms[-1]:
        return float(bits[-1]), ">"
    # Harm falls about as a power of bits.
    return float(np.exp(np.interp(-np.log(harm), -np.log(harms), np.log(bits)))), ""


def falling(points: Sequence[Point]) -> list[Point]:
    """The points of a curve. One that does more harm than another with fewer bits is noise, or a worse setting, and left out."""
    curve: list[Point] = []
    for point in sorted(points):
        if not curve or point[1] < curve[-1][1]:
            curve.append(point)
    return curve


def peers(rows: Sequence[Row], raw: float, ours: str = "tenfold") -> str:
    """A table: each point of a peer, beside the bits that tenfold takes for the same perplexity and for the same divergence."""
    own = [row for row in rows if row["coder"] == ours]
    lines = []
    for row in sorted(rows, key=lambda row: (row["coder"], row["bits"])):
        if row["coder"].startswith("tenfold") or not own:
            continue
        cells = [row["coder"], f"{row['bits']:.2f}", f"{100 * (row['perplexity'] / raw - 1):+.1f} %"]
        for harm in ("perplexity", "divergence"):
            if row.get(harm) is None:
                cells += ["–", "–"]
                continue
            bits, sign = bits_at([(one["bits"], one[harm]) for one in own], row[harm])
            cells += [f"{sign}{bits:.2f}", fewer(bits, sign, row["bits"])]
        lines.append(cells)
    header = ("peer", "bits", "more", "tenfold at that perplexity", "fewer", "tenfold at that divergence", "fewer")
    return table(header, lines) if lines else ""


def fewer(bits: float, sign: str, peer: float) -> str:
    """Whether bits of a curve are fewer than a peer's; a dash where the curve was not measured so far."""
    if sign == "<" and bits > peer or sign == ">" and bits < peer:
        return "–"
    return "yes" if sign != ">" and bits < peer else "no"


def limits(rows: Sequence[Row], raw: float, bars: Sequence[tuple[str, float, float]], ours: str = "tenfold") -> str:
    """A table of bars. Each is a part, the most bits, and how much perplexity may grow: within those bits, the measured point
    that takes the most is held against it, and the bits beside are where it would just be met."""
    lines = []
    for part, most, growth in bars:
        own = [row for row in rows if row["part"] == part and row["coder"] == ours]
        within = [row for row in own if row["bits"] <= most]
        if not within:
            continue
        best = max(within, key=lambda row: row["bits"])
        bits, sign = bits_at([(row["bits"], row["perplexity"]) for row in own], raw * (1 + growth))
        more = best["perplexity"] / raw - 1
        met = "yes" if more <= growth else "no"
        asked = f"{growth:+.0%}".replace("%", " %")
        lines.append((part, f"{most:g}", asked, f"{best['bits']:.2f}", f"{100 * more:+.1f} %", f"{sign}{bits:.2f}", met))
    header = ("part", "bits at most", "may be worse by", "bits", "worse by", "bits for that much worse", "met")
    return table(header, lines) if lines else ""
