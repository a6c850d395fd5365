#!/usr/bin/env python3
"""What a second node is worth to `tenfold.ray.compress`: local clusters of one and of two nodes, a core each.

    python python/bench/ray_nodes.py --json results/link/ray.json

A node and its workers are pinned to one core; the head runs no tasks. The model is made up (bf16, N(0, 0.02)), and its bytes must be
those that one machine makes. Rounds take turns, each with a cluster of its own that a small model has warmed, so that starting
workers is not counted; the quickest of each kind count. Other work on the machine spoils the figure: the report has its load.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import tempfile
import time

import numpy as np
import ray
import ray.cluster_utils
import tenfold.ray
from _about import about

BAR = 1.7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensors", type=int, default=96)
    parser.add_argument("--side", type=int, default=2048, help="of each square matrix")
    parser.add_argument("--effort", default="best")
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("two nodes of one core each need two cores")
    load = os.getloadavg()[0]
    seconds: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        here = pathlib.Path(folder)
        write(here / "small.safetensors", 4, 256)
        write(here / "model.safetensors", arguments.tensors, arguments.side)
        size = (here / "model.safetensors").stat().st_size
        options = {"bits": 3, "effort": arguments.effort}
        tenfold.compress(here / "model.safetensors", here / "one.safetensors", **options)
        expected = (here / "one.safetensors").read_bytes()
        same = True
        for number in range(arguments.rounds):
            for nodes, took in seconds.items():
                out = here / f"out-{nodes}-{number}.safetensors"
                took.append(measure(here, out, cores[:nodes], options | {"parts": arguments.parts}))
                same = same and out.read_bytes() == expected
                print(f"{nodes} node{'s' if nodes > 1 else ''}: {took[-1]:.1f} s", flush=True)
    faster = min(seconds[1]) / min(seconds[2])
    print(f"one node {min(seconds[1]):.1f} s, two nodes {min(seconds[2]):.1f} s: {faster:.2f} times (bar {BAR}); bytes of one machine: {same}")
    if arguments.json:
        report = about("ray nodes", ray) | {"load_before": load, "bytes": size, "effort": arguments.effort, "parts": arguments.parts}
        report["rows"] = [{"nodes": nodes, "seconds": [round(one, 2) for one in took]} for nodes, took in seconds.items()]
        report |= {"faster": round(faster, 3), "bar": BAR, "same_bytes_as_one_machine": same}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    if not same:
        raise SystemExit("the bytes are not those of one machine")


def write(path: pathlib.Path, count: int, side: int) -> None:
    random = np.random.default_rng(0)
    size = side * side * 2
    header = {f"layers.{i}.weight": {"dtype": "BF16", "shape": [side, side], "data_offsets": [i * size, (i + 1) * size]} for i in range(count)}
    text = json.dumps(header).encode()
    with path.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for _ in range(count):
            values = (random.standard_normal(side * side, dtype=np.float32) * 0.02).view(np.uint32) >> 16
            out.write(values.astype(np.uint16).tobytes())


def measure(folder: pathlib.Path, out: pathlib.Path, cores: list[int], options: dict[str, object]) -> float:
    """Seconds on a cluster of a node for each of these cores."""
    cluster = ray.cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "num_gpus": 0})
    everywhere = os.sched_getaffinity(0)
    try:
        for core in cores:
            # What starts now, the node and then its workers, runs here and nowhere else.
            os.sched_setaffinity(0, {core})
            cluster.add_node(num_cpus=1, num_gpus=0)
            os.sched_setaffinity(0, everywhere)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, log_to_driver=False)
        tenfold.ray.compress(folder / "small.safetensors", folder / "small-out.safetensors", overwrite=True, engine="cpu", **options)
        begin = time.monotonic()
        tenfold.ray.compress(folder / "model.safetensors", out, engine="cpu", **options)
        return time.monotonic() - begin
    finally:
        os.sched_setaffinity(0, everywhere)
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
