"""Tables and plots of caches by domain: what bases gain on text that they were made from and on text that they were not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from common import bars, domains, plot
from common.bars import Point
from common.report import Report, Row, number, table

BASES = {"prose": "prose alone", "others": "all but this domain", "all": "all domains", "each": "each domain"}
"""What bases are made from; with bases for each domain, pages choose."""
SHARED = ("all", "each")
"""Bases that stand for tenfold where it is held against peers."""
UNTOLD = "random"
"""What no model predicts, so that perplexity says nothing: it does not count among the others."""
GROWTHS = (0.05, 0.01)
"""How much perplexity may grow."""
MOST = 1.05
"""Bits with bases over bits without, at most."""


def show(kept: Report, out: Path) -> None:
    """Writes and prints what was measured."""
    notes = "".join(f"- {note}\n" for note in [kept.about, *kept.notes])
    names = [name for name in domains.TITLES if any(row["domain"] == name for row in kept.rows)]
    by_domain = {name: [row for row in kept.rows if row["domain"] == name] for name in names}
    page = f"# KV cache by domain\n\n{notes}"
    page += section("Bits for so much more perplexity, by what bases are made from", growths(by_domain))
    page += section("Bits with bases over bits without, at equal divergence: the largest", ratios(by_domain))
    page += section("Peers, and bits of tenfold at equal divergence", peers(by_domain))
    for name, rows in by_domain.items():
        raw = uncompressed(rows)
        title = f"{domains.TITLES[name]}; uncompressed: {raw:.3f}"
        page += section(title, table(("coder", "bases from", "bits", "perplexity", "divergence", "s"), list(cells(rows, raw))))
    (out / "kv-domains.md").write_text(page, encoding="utf-8")
    plot.panels(out / "kv-domains.png", "KV cache of SmolLM2-135M", "divergence, nats a token", lines(by_domain))
    print(page)


def section(title: str, text: str) -> str:
    """A section, if there is anything in it."""
    return f"\n## {title}\n\n{text}" if text else ""


def uncompressed(rows: Sequence[Row]) -> float:
    """Perplexity of the model as it is."""
    return float(next(row["perplexity"] for row in rows if row["coder"] == "uncompressed"))


def curve(rows: Sequence[Row], coder: str, basis: str, harm: str = "divergence") -> list[Point]:
    """Bits and harm of a coder's points."""
    return [(row["bits"], row[harm]) for row in rows if (row["coder"], row["basis"]) == (coder, basis)]


def cells(rows: Sequence[Row], raw: float) -> Iterator[tuple[str, ...]]:
    """Rows of a table, coders together and tenfold first."""

    def order(row: Row) -> tuple[bool, str, str, float]:
        return row["coder"] != "tenfold", row["coder"], row["basis"], row["bits"]

    for row in sorted(rows, key=order):
        if row["coder"] != "uncompressed":
            exact = row["coder"] != "tenfold" and row["settings"].get("sinks") == 1
            name = row["coder"] + (", first token exact" if exact else "")
            seconds = f"{row['coding']:.0f} + {row['judging']:.0f}"
            more = f"{100 * (row['perplexity'] / raw - 1):+.1f} %"
            yield name, BASES.get(row["basis"], "–"), f"{row['bits']:.3f}", more, number(row["divergence"]), seconds


def growths(by_domain: Mapping[str, Sequence[Row]]) -> str:
    """Bits at which perplexity has grown by so much, by domain and by bases."""
    kinds = {"none": "none", **BASES}
    lines = []
    for growth in GROWTHS:
        found: dict[str, list[tuple[float, str]]] = {basis: [] for basis in kinds}
        for name, rows in by_domain.items():
            most, cells = uncompressed(rows) * (1 + growth), []
            for basis, known in found.items():
                points = curve(rows, "tenfold", basis, "perplexity")
                bits = [bars.bits_at(points, most)] if points else []
                known += bits if name != UNTOLD else []
                cells.append(_bits(*bits[0]) if bits else "–")
            lines.append((f"{growth:+.0%}", domains.TITLES[name], *cells))
        for word, over in (("worst", max), ("mean", _mean)):
            cells = [_bits(*over(known)) if known else "–" for known in found.values()]
            lines.append((f"{growth:+.0%}", f"{word}, random tokens left out", *cells))
    return table(("perplexity", "domain", *kinds.values()), lines)


def _bits(bits: float, sign: str) -> str:
    return f"{sign}{bits:.2f}"


def _mean(found: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The mean of bits; it is no more than about right where a curve was not measured so far."""
    return sum(bits for bits, _ in found) / len(found), "~" if any(sign for _, sign in found) else ""


def ratio(ours: Sequence[Point], other: Sequence[Point]) -> tuple[float, float] | None:
    """The largest ratio of bits of one curve to bits of another at equal harm, and that harm, where both were measured."""
    found = []
    for bits, harm in bars.falling(ours):
        there, sign = bars.bits_at(other, harm)
        if not sign:
            found.append((bits / there, harm))
    for bits, harm in bars.falling(other):
        here, sign = bars.bits_at(ours, harm)
        if not sign:
            found.append((here / bits, harm))
    return max(found, default=None)


def ratios(by_domain: Mapping[str, Sequence[Row]]) -> str:
    """How bases stand against none."""
    lines = []
    for name, rows in by_domain.items():
        without = curve(rows, "tenfold", "none")
        for basis, title in BASES.items():
            points = curve(rows, "tenfold", basis)
            found = ratio(points, without) if points and without else None
            if found:
                met = "yes" if found[0] <= MOST else "no"
                lines.append((domains.TITLES[name], title, f"{found[0]:.2f}", number(found[1]), met))
    header = ("domain", "bases from", "largest ratio", "at divergence", f"at most {MOST:g}")
    return table(header, lines) if lines else ""


def peers(by_domain: Mapping[str, Sequence[Row]]) -> str:
    """Each point of a peer, beside the bits that tenfold takes for the same divergence: with the peer's bases, if it has any,
    and with those of all domains."""
    lines = []
    for name, rows in by_domain.items():
        others = [row for row in rows if row["coder"] not in ("tenfold", "uncompressed")]
        for row in sorted(others, key=lambda row: (row["coder"], row["basis"], row["bits"])):
            cells = [domains.TITLES[name], row["coder"], BASES.get(row["basis"], "–"), f"{row['bits']:.2f}", number(row["divergence"])]
            for basis in (row["basis"] if row["basis"] in BASES else None, *SHARED):
                own = curve(rows, "tenfold", basis) if basis else []
                bits, sign = bars.bits_at(own, row["divergence"]) if own else (0.0, "")
                cells += [f"{sign}{bits:.2f}", bars.fewer(bits, sign, row["bits"])] if own else ["–", "–"]
            lines.append(cells)
    shared = [part for basis in SHARED for part in (f"tenfold, {BASES[basis]}", "fewer")]
    return table(("domain", "peer", "bases from", "bits", "divergence", "tenfold, the same", "fewer", *shared), lines) if lines else ""


def lines(by_domain: Mapping[str, Sequence[Row]]) -> dict[str, dict[str, list[Point]]]:
    """Curves of each domain, by name."""
    drawn: dict[str, dict[str, list[Point]]] = {}
    for name, rows in by_domain.items():
        found: dict[str, list[Point]] = {}
        for row in rows:
            if row["coder"] not in ("uncompressed", "fp8"):
                basis = f", {BASES[row['basis']]}" if row["basis"] in BASES else ""
                bare = ", no bases" if row["coder"] == "tenfold" and not basis else ""
                found.setdefault(row["coder"] + basis + bare, []).append((row["bits"], row["divergence"]))
        drawn[domains.TITLES[name]] = {title: bars.falling(points) for title, points in found.items()}
    return drawn
