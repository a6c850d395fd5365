"""Curves over bits a value and over steps, as PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402 - after the choice of a backend without windows

Curve = Sequence[tuple[float, float]]


def curves(
    path: Path,
    title: str,
    ylabel: str,
    lines: Mapping[str, Curve],
    *,
    log: bool = False,
    level: tuple[float, str] | None = None,
    top: float | None = None,
) -> None:
    """Draws curves of (bits, value). Names that start with `tenfold` are drawn bold; `level` is a line across."""
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    colours = pyplot.get_cmap("tab20").colors
    for index, (name, points) in enumerate(lines.items()):
        ours = name.startswith("tenfold")
        bits, values = zip(*sorted(points))
        style = {"linewidth": 2.2, "marker": "o"} if ours else {"linewidth": 1, "marker": "x", "linestyle": "--"}
        axes.plot(bits, values, label=name, markersize=5, color=colours[index % len(colours)], **style)
    if level is not None:
        axes.axhline(level[0], color="grey", linewidth=1)
        axes.text(axes.get_xlim()[1], level[0], f" {level[1]}", va="bottom", ha="right", color="grey")
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
    if top is not None:
        axes.set_ylim(top=top)
    axes.set(title=title, xlabel="bits a value, side information included", ylabel=ylabel)
    axes.grid(True, which="both", alpha=0.25)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def panels(path: Path, title: str, ylabel: str, drawn: Mapping[str, Mapping[str, Curve]]) -> None:
    """Draws a panel for each group of curves of (bits, value), both logarithmic, with one legend. Names that start with
    `tenfold` are drawn bold."""
    rows = -(-(len(drawn) + 1) // 2)
    figure, grid = pyplot.subplots(rows, 2, figsize=(12, 4 * rows), layout="constrained", squeeze=False)
    names = sorted({name for lines in drawn.values() for name in lines}, key=lambda name: (not name.startswith("tenfold"), name))
    colours = dict(zip(names, pyplot.get_cmap("tab20").colors))
    shown = {}
    for axes, (group, lines) in zip(grid.flat, drawn.items()):
        for name in sorted(lines, key=names.index):
            bits, values = zip(*sorted(lines[name]))
            ours = name.startswith("tenfold")
            style = {"linewidth": 2, "marker": "o"} if ours else {"linewidth": 1, "marker": "x", "linestyle": "--"}
            (shown[name],) = axes.plot(bits, values, markersize=4, color=colours[name], **style)
        axes.set(title=group, xscale="log", yscale="log", ylabel=ylabel, xlabel="bits a value")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("{x:g}")
        axes.tick_params(axis="x", which="minor", labelsize=6)
        axes.grid(True, which="both", alpha=0.25)
    for axes in grid.flat[len(drawn) :]:
        axes.axis("off")
    grid.flat[len(drawn)].legend(list(shown.values()), list(shown), fontsize=9, loc="center")
    figure.suptitle(title)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def losses(path: Path, title: str, lines: Mapping[str, Curve]) -> None:
    """Draws curves of (step, loss). Names that start with `tenfold` are drawn bold, `uncompressed` in black."""
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    colours = pyplot.get_cmap("tab20").colors
    for index, (name, points) in enumerate(lines.items()):
        steps, values = zip(*points)
        colour = "black" if name == "uncompressed" else colours[index % len(colours)]
        style = {"linewidth": 1.8} if name.startswith(("tenfold", "uncompressed")) else {"linewidth": 1, "linestyle": "--"}
        axes.plot(steps, values, label=name, color=colour, **style)
    axes.set(title=title, xlabel="step", ylabel="loss on held-out text")
    # The first judgements are far above all others.
    later = [value for points in lines.values() for _, value in points[1:]]
    if later:
        axes.set_ylim(top=1.05 * max(later))
    axes.grid(True, alpha=0.25)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
