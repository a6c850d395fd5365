#!/usr/bin/env python3
"""Draws the README's picture, error over bits a value beside other coders, from the race's report.

    scripts/picture.py    results/race/race.json to results/race/error.svg

The picture follows the reader's light or dark mode and brings its own background, so it is legible on any page.
"""

import json
import math
import pathlib

RACE = pathlib.Path(__file__).resolve().parent.parent / "results" / "race"
KINDS = {"weights": "weights", "kv": "KV cache", "activations": "activations", "gradients": "gradients"}
# Family of the race, name in the legend, colour in light and in dark mode.
CURVES = [
    ("best", "tenfold", "#c2410c", "#fb923c"),
    ("aom", "AV1 (libaom)", "#0f766e", "#2dd4bf"),
    ("x265", "H.265 (x265)", "#1d4ed8", "#60a5fa"),
    ("gguf", "GGUF K-quants", "#7e22ce", "#c084fc"),
    ("rtn-64", "round to nearest", "#57534e", "#a8a29e"),
]
BITS = (1, 5)
PANEL, HEIGHT, LEFT, TOP, GAP_X, GAP_Y = 340, 200, 62, 78, 62, 62
WIDTH = LEFT + 2 * PANEL + GAP_X + 20
TALL = TOP + 2 * HEIGHT + GAP_Y + 46


def mean_curve(rows: list[dict], tensors: int) -> list[tuple[float, float]]:
    """Mean bits and geometric mean error of each setting that reached all tensors of a kind."""
    settings: dict[tuple, list[dict]] = {}
    for row in rows:
        if row["failure"] is None and row["nmse"]:
            settings.setdefault((row["peer"], row["target"]), []).append(row)
    whole = [found for found in settings.values() if len(found) == tensors]
    points = [
        (sum(row["bits"] for row in found) / tensors, math.exp(sum(math.log(row["nmse"]) for row in found) / tensors))
        for found in whole
    ]
    return sorted(points)


def draw_panel(title: str, curves: dict[str, list[tuple[float, float]]], x0: int, y0: int) -> list[str]:
    """One kind of tensor: grid, labels, and a line with dots for each coder."""
    errors = [error for points in curves.values() for bits, error in points if BITS[0] <= round(bits) <= BITS[1]]
    top, bottom = math.ceil(math.log10(max(errors))), math.floor(math.log10(min(errors)))
    x = lambda bits: x0 + (bits - BITS[0]) / (BITS[1] - BITS[0]) * PANEL
    y = lambda error: y0 + (top - math.log10(error)) / (top - bottom) * HEIGHT
    svg = [f'<text class="title" x="{x0}" y="{y0 - 10}">{title}</text>']
    for power in range(bottom, top + 1):
        label = f'10<tspan dy="-5" font-size="9">{str(power).replace("-", "−")}</tspan>' if power else "1"
        svg.append(f'<path class="grid" d="M{x0} {y(10**power):.1f}h{PANEL}"/>')
        svg.append(f'<text class="tick" x="{x0 - 8}" y="{y(10**power) + 4:.1f}" text-anchor="end">{label}</text>')
    for bits in range(BITS[0], BITS[1] + 1):
        svg.append(f'<path class="grid" d="M{x(bits):.1f} {y0}v{HEIGHT}"/>')
        svg.append(f'<text class="tick" x="{x(bits):.1f}" y="{y0 + HEIGHT + 18}" text-anchor="middle">{bits}</text>')
    # An inner picture clips what leaves the panel, but for half a dot.
    box = f"{x0 - 4} {y0 - 4} {PANEL + 8} {HEIGHT + 8}"
    svg.append('<svg x="{}" y="{}" width="{}" height="{}" viewBox="{}">'.format(*box.split(), box))
    for family, points in reversed(curves.items()):
        path = " ".join(f"{x(bits):.1f},{y(error):.1f}" for bits, error in points)
        svg.append(f'<polyline class="line {family}" points="{path}"/>')
        svg += [f'<circle class="dot {family}" cx="{x(bits):.1f}" cy="{y(error):.1f}" r="3"/>' for bits, error in points]
    return [*svg, "</svg>"]


def draw(report: dict) -> str:
    light = "".join(f".{family}{{--c:{colour}}}" for family, _, colour, _ in CURVES)
    dark = "".join(f".{family}{{--c:{colour}}}" for family, _, _, colour in CURVES)
    style = (
        "text{font-family:system-ui,sans-serif;font-size:13px;fill:#292524}.title{font-weight:600}.tick{font-size:12px;fill:#57534e}"
        ".back{fill:#fff}.grid{stroke:#e7e5e4;fill:none}.line{stroke:var(--c);stroke-width:2;fill:none}.dot{fill:var(--c)}"
        f".line.best{{stroke-width:3.5}}{light}"
        "@media(prefers-color-scheme:dark){text{fill:#e7e5e4}.tick{fill:#a8a29e}.back{fill:#1c1917}.grid{stroke:#44403c}" + dark + "}"
    )
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {TALL}" width="{WIDTH}" height="{TALL}" role="img">',
        "<title>Error over bits a value of tenfold and other coders, by kind of tensor; lower is better</title>",
        f"<style>{style}</style>",
        f'<rect class="back" width="{WIDTH}" height="{TALL}" rx="8"/>',
    ]
    at = LEFT
    for family, name, _, _ in CURVES:
        svg.append(f'<path class="line {family}" d="M{at} 24h26"/><circle class="dot {family}" cx="{at + 13}" cy="24" r="3"/>')
        svg.append(f'<text class="{"title" if family == "best" else "name"}" x="{at + 33}" y="28">{name}</text>')
        at += 56 + int(7.6 * len(name))
    for number, (kind, title) in enumerate(KINDS.items()):
        tensors = sum(tensor["kind"] == kind for tensor in report["tensors"])
        rows = [row for row in report["rows"] if row["kind"] == kind]
        curves = {family: mean_curve([row for row in rows if row["family"] == family], tensors) for family, *_ in CURVES}
        x0, y0 = LEFT + number % 2 * (PANEL + GAP_X), TOP + number // 2 * (HEIGHT + GAP_Y)
        svg += draw_panel(title, curves, x0, y0)
    svg.append(f'<text class="tick" x="{WIDTH / 2}" y="{TALL - 10}" text-anchor="middle">bits a value, every byte counted</text>')
    middle = TOP + HEIGHT + GAP_Y / 2
    svg.append(
        f'<text class="tick" transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">'
        "mean squared error over variance</text>"
    )
    return "\n".join([*svg, "</svg>"]) + "\n"


if __name__ == "__main__":
    made = draw(json.loads((RACE / "race.json").read_text(encoding="utf-8")))
    (RACE / "error.svg").write_text(made, encoding="utf-8")
