#!/usr/bin/env python3
"""Tokens a second of a Llama whose layers stay compressed, beside the raw model: as it is, as a CUDA graph, out of host memory.

    python python/bench/kept_compressed.py --size 8b --json results/python/kept-8b.json
    python python/bench/kept_compressed.py --size 70b --offload --limit-gb 16 --no-raw --json results/python/kept-70b.json
    python python/bench/kept_compressed.py --size tiny --device cpu                          # does it run?

The weights are made up, N(0, 0.02) in bfloat16: neither speed nor memory depends on what they say. They are made and encoded on the
device, one at a time, so a model that would not fit there uncompressed can be measured. Embeddings and head stay uncompressed, as
with most quantisers. Batch 1; the prompt, capturing and the first tokens do not count.

Beside the speed stands what bounds it: decoding all layers alone, one after the other, and with --offload copying all blobs alone.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tenfold
import tenfold.torch
from _about import about
from tenfold._codec import encode_options
from tenfold.torch.kept import Layers, Site, Stage, _engines, sites
from tenfold.torch.kept._compress import LANE_VALUES, hold, keep
from tenfold.torch.kept._held import aligned

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"hidden": 256, "inner": 512, "layers": 4, "heads": 4, "kv_heads": 2, "vocabulary": 1024},
    "1b": {"hidden": 2048, "inner": 8192, "layers": 16, "heads": 32, "kv_heads": 8, "vocabulary": 128256},
    "8b": {"hidden": 4096, "inner": 14336, "layers": 32, "heads": 32, "kv_heads": 8, "vocabulary": 128256},
    "70b": {"hidden": 8192, "inner": 28672, "layers": 80, "heads": 64, "kv_heads": 8, "vocabulary": 128256},
}
# Pinned memory to an H200 and back, GB/s.
LINK = 55.0


def build(size: dict[str, int], device: torch.device, goal: dict[str, Any] | None, **settings: Any) -> Any:
    """Makes a model on the device, one weight at a time; compressed if there is a goal. Steps of one token may become graphs."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    from tenfold.transformers._quantizer import is_step

    config = LlamaConfig(
        hidden_size=size["hidden"],
        intermediate_size=size["inner"],
        num_hidden_layers=size["layers"],
        num_attention_heads=size["heads"],
        num_key_value_heads=size["kv_heads"],
        vocab_size=size["vocabulary"],
        max_position_embeddings=8192,
        tie_word_embeddings=False,
        dtype="bfloat16",
    )
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = LlamaForCausalLM(config).eval().requires_grad_(False)
    torch.set_default_dtype(torch.float32)
    model.model.rotary_emb = LlamaRotaryEmbedding(config=config).to(device)
    model.generation_config.eos_token_id = None
    by_layer: dict[str, list[Any]] = {}
    options = encode_options(**goal) if goal is not None else None
    for site in list(sites(model)):
        if not site.tensor.is_meta:
            continue
        weight = torch.empty(site.tensor.shape, dtype=torch.bfloat16, device=device)
        weight = weight.normal_(std=0.02) if weight.ndim == 2 else weight.fill_(1)
        filled = Site(site.name, site.module, site.attribute, nn.Parameter(weight, requires_grad=False))
        filled.put(filled.tensor)
        layer = site.name.split(".")
        if options is None or layer[1] != "layers" or weight.ndim != 2:
            continue
        held = hold([filled], options, options)
        if settings.get("offload"):
            held[0].put(nn.Parameter(held[0].blob().cpu(), requires_grad=False))
        by_layer.setdefault(".".join(layer[:3]), []).extend(held)
    layers = None
    if by_layer:
        stages = [Stage(name, tuple(held)) for name, held in by_layer.items()]
        layers = keep(model, stages, wanted=is_step, **settings)
    return model, layers


class Clock:
    """Seconds, by the device's clock where there is one."""

    def __init__(self, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"

    def __call__(self) -> float:
        if self._on_cuda:
            torch.cuda.synchronize()
        return time.perf_counter()


class Stopwatch:
    """Starts when so many tokens have been generated: ``generate`` calls it with the logits of each."""

    def __init__(self, clock: Clock, warm: int) -> None:
        self._clock, self._warm = clock, warm
        self.started = 0.0

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self._warm -= 1
        if self._warm == 0:
            self.started = self._clock()
        return scores


def tokens_per_s(model: Any, device: torch.device, static: bool, prompt: int, tokens: int) -> float:
    """Speed of generating; the prompt, capturing and the first tokens do not count."""
    clock, warm = Clock(device), 5
    ids = torch.arange(1, prompt + 1, device=device).unsqueeze(0) % model.config.vocab_size
    # transformers would compile a raw model with a static cache, which is another comparison.
    options: dict[str, Any] = {"do_sample": False, "pad_token_id": 0, "disable_compile": True}
    if static:
        options |= {"cache_implementation": "static", "max_cache_len": 1 << (prompt + warm + tokens).bit_length()}

    def generate(count: int) -> float:
        watch = Stopwatch(clock, warm)
        out = model.generate(ids, min_new_tokens=count, max_new_tokens=count, logits_processor=[watch], **options)
        seconds = clock() - watch.started
        assert out.shape[1] == prompt + count
        return seconds

    # Libraries prepare kernels for every length of a growing cache, once; so the second time counts.
    return tokens / min(generate(warm + tokens) for _ in range(2))


def time_alone(layers: Layers, device: torch.device) -> tuple[float, float | None]:
    """Seconds of decoding all layers, and of copying all blobs to the device, with nothing beside."""
    if device.type != "cuda":
        return _time_on_cpu(layers), None
    clock, (ring,) = Clock(device), layers.rings
    engine: Any = ring._engine
    stages = list({stage: slot for stage, slot in engine.decoders}.items())
    # Blobs of different stages arrive in the same place, so those are fetched and decoded one at a time.
    together = [stages] if layers._pinned is None else [[one] for one in stages]
    decode = [0.0, 0.0, 0.0]
    for group in together:
        for stage, slot in group:
            if ring._stages[stage].from_host:
                _fetch(ring._stages[stage], ring._slots[slot].landing)
        for turn in range(len(decode)):
            start = clock()
            for key in group:
                engine.decoders[key]()
            decode[turn] += clock() - start
    link = []
    if layers._pinned is not None:
        for _ in range(2):
            start = clock()
            for stage in ring._stages:
                _fetch(stage, ring._slots[0].landing)
            link.append(clock() - start)
    # The buffers hold other stages than the ring believes.
    ring.forget()
    return min(decode), min(link, default=None)


def _fetch(stage: Stage, landing: torch.Tensor) -> None:
    """Queues copies of a stage's blobs to where they arrive."""
    at = 0
    for blob in stage.blobs():
        landing[at : at + blob.nbytes].copy_(blob, non_blocking=True)
        at += aligned(blob.nbytes)


def _time_on_cpu(layers: Layers) -> float:
    start = time.perf_counter()
    for stage in layers.stages:
        tenfold.torch.decode_many(stage.blobs(), [torch.empty(held.shape, dtype=held.stored) for held in stage.held])
    return time.perf_counter() - start


def measure(arguments: argparse.Namespace, goal: str) -> list[dict[str, Any]]:
    """Builds a model and measures it, with a growing cache and, as a graph, with a static one."""
    device = torch.device(arguments.device)
    on_cuda = device.type == "cuda"
    if on_cuda:
        device = torch.device("cuda", torch.cuda.current_device())
    options: dict[str, Any] | None = None
    if goal != "raw":
        options = {"lossless": True} if goal == "lossless" else {"bits": arguments.bits, "effort": "fast"}
        options |= {"prepare": "none", "lane_values": arguments.lanes}
    size = dict(SIZES[arguments.size])
    size["layers"] = arguments.layers or size["layers"]
    start = time.perf_counter()
    settings = {"offload": arguments.offload, "buffers": arguments.buffers, "multiply": not arguments.no_multiply}
    model, layers = build(size, device, options, **settings)
    built = time.perf_counter() - start
    rows = []
    for graph in arguments.graph or ("off", "on"):
        if graph == "on" and layers is None:
            continue
        if on_cuda:
            torch.cuda.reset_peak_memory_stats()
        row: dict[str, Any] = {"mode": goal + (", graph" if graph == "on" else ""), "build_s": built}
        row["tokens_per_s"] = tokens_per_s(model, device, graph == "on", arguments.prompt, arguments.tokens)
        if on_cuda:
            row["peak_bytes"] = torch.cuda.max_memory_allocated()
        if layers is not None:
            row |= bounds(layers, device, row["tokens_per_s"])
            tenfold.torch.check()
        show(row)
        rows.append(row)
    return rows


def bounds(layers: Layers, device: torch.device, speed: float) -> dict[str, Any]:
    """Sizes, and the speed held against what bounds it."""
    blobs = sum(held.blob().nbytes for held in layers.held)
    decode, link = time_alone(layers, device)
    row: dict[str, Any] = {
        "blob_bytes": blobs,
        "bits": 8 * blobs / sum(held.nbytes // 2 for held in layers.held),
        "buffer_bytes": sum(ring.nbytes + ring.landing_bytes for ring in layers.rings),
        "graphs": layers.captured,
        "decode_s": decode,
        "share_of_decode": speed * decode,
        "link_s": link,
    }
    if link is not None:
        row["link_gb_per_s"] = blobs / link / 1e9
        row["share_of_link"] = speed * link
        row["fetched_gb_per_s"] = speed * blobs / 1e9
    return row


def show(row: dict[str, Any]) -> None:
    """Prints a line."""
    parts = [f"{row['mode']:20} {row['tokens_per_s']:8.2f} tokens/s"]
    if "peak_bytes" in row:
        parts.append(f"peak {row['peak_bytes'] / 1e9:.2f} GB")
    if "bits" in row:
        parts.append(f"built in {row['build_s']:.0f} s")
        parts.append(f"{row['bits']:.2f} bits")
        parts.append(f"{100 * row['share_of_decode']:.0f} % of decoding alone ({1 / row['decode_s']:.1f}/s)")
    if row.get("link_s"):
        parts.append(f"{100 * row['share_of_link']:.0f} % of the link ({row['link_gb_per_s']:.1f} GB/s)")
    print(", ".join(parts), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="8b")
    parser.add_argument("--layers", type=int, help="take only so many layers")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--bits", type=float, default=3.5, help="bits a value of the lossy model")
    parser.add_argument("--goal", choices=("bits", "lossless"), action="append", help="may be repeated; both unless stated")
    parser.add_argument("--graph", choices=("on", "off"), action="append", help="may be repeated; both unless stated")
    parser.add_argument("--no-raw", action="store_true", help="leave the raw model out")
    parser.add_argument("--offload", action="store_true", help="keep blobs in pinned host memory")
    parser.add_argument("--buffers", type=int, default=2, help="decoded layers in memory at a time")
    parser.add_argument("--no-multiply", action="store_true", help="leave products of one token to torch")
    parser.add_argument("--lanes", type=int, default=LANE_VALUES, help="values a lane")
    parser.add_argument("--share", type=float, help="share of the multiprocessors that decoding ahead takes")
    parser.add_argument("--limit-gb", type=float, help="memory of the device that may be used, GB")
    parser.add_argument("--prompt", type=int, default=16, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=64, help="tokens to time")
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    arguments = parser.parse_args()
    on_cuda = arguments.device.startswith("cuda")
    if arguments.share is not None:
        _engines.SHARE = arguments.share
    if arguments.limit_gb is not None and on_cuda:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(arguments.limit_gb * 1e9 / total)
    goals = [*([] if arguments.no_raw else ["raw"]), *(arguments.goal or ("bits", "lossless"))]
    if not on_cuda:
        arguments.graph = ["off"]
    rows: list[dict[str, Any]] = []
    for goal in goals:
        with torch.no_grad():
            rows += measure(arguments, goal)
        gc.collect()
        if on_cuda:
            torch.cuda.empty_cache()
        # After each, so that what has been measured stays if the time is up.
        if arguments.json:
            keep_report(arguments, rows)


def keep_report(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Writes what has been measured, and holds it against the bars."""
    notes = [
        f"Llama, {SIZES[arguments.size]}, layers taken: {arguments.layers or 'all'}; made-up weights N(0, 0.02) in bfloat16",
        f"batch 1, {arguments.prompt} tokens of prompt",
        f"bits: at {arguments.bits} bits, effort fast; graph: generate with a static cache, its step captured; embeddings and head raw",
        "decode_s and link_s: all layers decoded alone, all blobs copied alone; shares are tokens_per_s times these",
    ]
    checks = []
    for row in rows:
        if arguments.size == "8b" and not arguments.layers and row["mode"] == "bits, graph":
            checks.append(_bar("tokens/s at 8b, batch 1, lossy, graph", row["tokens_per_s"], 90.0))
        if row.get("link_s") is not None:
            bound = max(row["share_of_link"], row["share_of_decode"], row["fetched_gb_per_s"] / LINK)
            checks.append(_bar(f"share of the link or of decoding, {row['mode']}", bound, 0.85))
    import transformers

    report = {**about("kept_compressed", torch, transformers), "notes": notes, "checks": checks, "rows": rows}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def _bar(what: str, value: float, bar: float) -> dict[str, Any]:
    return {"what": what, "value": value, "bar": bar, "rule": "at least", "pass": value >= bar}


if __name__ == "__main__":
    main()
