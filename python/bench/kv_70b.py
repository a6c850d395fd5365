#!/usr/bin/env python3
"""How much memory a stage of a 70 B model takes that keeps its weights and a cache of 128 k tokens compressed: four stages, one after the
other on one device.

    python python/bench/kv_70b.py --json results/python/kv-70b.json
    python python/bench/kv_70b.py --stage 3 --limit-gb 8
    python python/bench/kv_70b.py --device cpu --layers 4 --hidden 256 --inner 512 --heads 4 --kv-heads 2 --vocabulary 1000 \\
        --context 512 --part-mb 0.05 --cache-part 128 --tokens 2                               # does it run?

The model is a Llama of 80 layers with made-up weights, N(0, 0.02) with rows of different scales and heavy tails, made on the device and
compressed one matrix at a time. A stage is 20 layers; the first has the embeddings too and the last the head, all compressed. Its cache
is pages of 64 made-up tokens (as in kv_spill.py) in bases of a layer's 1,024 columns, each layer with bases of its own in the device's
memory (they are alike); the step is the one at which pages take as many bits a value as asked. Then tokens are decoded: the hidden state of a token goes
through the layers and is carried to the next stage on the CPU. The last token sees the whole context.

What is decoded at a time is one matrix, or some rows of one (--part-mb), and some tokens of a layer's keys and values (--cache-part),
over which attention goes part by part. Peaks are torch's, in bytes that were allocated and that were reserved, with everything: before
the stage is filled until its last token is done. Beside them stands memory that others took from the device since torch's context was
there: bases and kernels. The segments of torch's allocator may grow (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True unless that is
set), so that little is reserved in vain. Making 70 billion weights takes a GPU less than a minute; --stage runs one stage alone.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

# Before torch takes any memory.
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import torch  # noqa: E402
import _kv_parts  # noqa: E402
from _about import about  # noqa: E402
from _kv_made import Made, Shape, configuration, rotary  # noqa: E402
from _kv_parts import PAGE, PartedCache  # noqa: E402
from _kv_stage import build, parameters, weights_of  # noqa: E402
from tenfold.kv import PageCodec  # noqa: E402

# Bytes that a stage may take.
BAR = 8e9
# Tokens before those that count.
WARM = 2


def main() -> None:
    arguments = parse()
    device = torch.device(arguments.device)
    if device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        torch.cuda.set_device(device)
        if arguments.limit_gb is not None:
            total = torch.cuda.get_device_properties(device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(arguments.limit_gb * 1e9 / total, 1.0), device)
    bench = Bench(arguments, device)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        bench.prepare(Path(folder))
        for stage in range(len(bench.split)) if arguments.stage is None else [arguments.stage]:
            bench.run(stage)
    bench.summary()
    if any("failed" in row or "out_of_memory" in row for row in bench.rows):
        sys.exit("some stages failed")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    shape = parser.add_argument_group("the model")
    shape.add_argument("--layers", type=int, default=80)
    shape.add_argument("--hidden", type=int, default=8192)
    shape.add_argument("--inner", type=int, default=28672)
    shape.add_argument("--heads", type=int, default=64)
    shape.add_argument("--kv-heads", type=int, default=8)
    shape.add_argument("--vocabulary", type=int, default=128256)
    shape.add_argument("--bits", type=float, default=2.9, help="bits a weight")
    cut = parser.add_argument_group("stages")
    cut.add_argument("--stages", type=int, default=4, help="of as many layers each")
    cut.add_argument("--split", type=int, nargs="+", metavar="LAYERS", help="layers of each stage, in place of --stages")
    cut.add_argument("--stage", type=int, help="run this one alone, from 0 on; what comes in is made up")
    cut.add_argument("--part-mb", type=float, default=134.3, help="most of a matrix that is decoded at a time, MB of bf16")
    cut.add_argument("--buffers", type=int, default=1, help="decoded matrices in memory; with 2 one is decoded while another is used")
    cut.add_argument("--limit-gb", type=float, help="memory that torch may take from the device, GB")
    cache = parser.add_argument_group("the cache")
    cache.add_argument("--context", type=int, default=131072, help="tokens")
    cache.add_argument("--cache-bits", type=float, default=1.0, help="bits a key or value")
    cache.add_argument("--cache-part", type=int, default=8192, help="tokens of a layer that are decoded at a time")
    cache.add_argument("--strong", type=int, help="numbers that make a token's row of a layer; a fourth of its columns unless stated")
    parser.add_argument("--tokens", type=int, default=6, help="tokens to time")
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    arguments = parser.parse_args()
    if arguments.split is None:
        if arguments.layers % arguments.stages:
            parser.error(f"{arguments.layers} layers are not {arguments.stages} stages of one size: state --split")
        arguments.split = [arguments.layers // arguments.stages] * arguments.stages
    if sum(arguments.split) != arguments.layers or min(arguments.split) < 1:
        parser.error(f"the stages have {sum(arguments.split)} layers, and the model {arguments.layers}")
    if arguments.stage is not None and not 0 <= arguments.stage < len(arguments.split):
        parser.error(f"stages are 0 to {len(arguments.split) - 1}")
    if arguments.tokens < 1 or arguments.context < PAGE + WARM + arguments.tokens:
        parser.error(f"a context has a page of {PAGE} tokens at least, and those that are decoded")
    return arguments


class Bench:
    """The stages of a model, measured one by one."""

    def __init__(self, arguments: argparse.Namespace, device: torch.device) -> None:
        self.arguments, self.device, self.split = arguments, device, arguments.split
        self.shape = Shape(
            arguments.layers, arguments.hidden, arguments.inner, arguments.heads, arguments.kv_heads, arguments.vocabulary
        )
        self.config = configuration(self.shape, arguments.context)
        _kv_parts.register()
        self.config._attn_implementation = _kv_parts.ATTENTION
        self.rotary = rotary(self.config, device)
        self.strong = arguments.strong or max(self.shape.columns // 4, 8)
        self.made = Made(self.shape, device, self.config, self.strong)
        self.memory = Memory(device)
        self.rows: list[dict[str, Any]] = []
        self.bases, self.basis_bytes, self.step = Path(), 0, 0.0
        steps = WARM + arguments.tokens
        self.filled = arguments.context - steps
        generator = torch.Generator().manual_seed(3)
        self.numbers = torch.randint(self.shape.vocabulary, (steps,), generator=generator).tolist()
        # What goes into the next stage, a row a token, on the CPU.
        self.carried = torch.randn(steps, 1, 1, self.shape.hidden, generator=generator).bfloat16()
        self._since = time.perf_counter()

    def tell(self, what: str) -> None:
        """Says how far it is."""
        print(f"  {time.perf_counter() - self._since:6.1f} s  {what}", flush=True)

    def prepare(self, folder: Path) -> None:
        """Makes bases for a layer, and finds the step of the pages."""
        self.bases = folder / "layer.basis"
        one = Shape(1, self.shape.hidden, self.shape.inner, self.shape.heads, self.shape.kv_heads, self.shape.vocabulary)
        made = Made(one, self.device, self.config, self.strong)
        made.fit(self.bases)
        self.basis_bytes = self.bases.stat().st_size
        tokens = min(self.filled, 16 * PAGE)
        (_, keys), (_, values) = (next(made.parts(0, side, tokens)) for side in range(2))
        self.step = self._step(keys, values)
        self.tell(f"pages at step {self.step:.4f} take {self.arguments.cache_bits:g} bits a value")
        weights = parameters(self.shape)
        print(f"{weights / 1e9:.2f} G weights, stages of {self.split} layers, {self.arguments.context} tokens", flush=True)

    def _step(self, keys: torch.Tensor, values: torch.Tensor) -> float:
        """The step at which pages take the bits that are asked for. Bits fall as steps grow."""
        codec = PageCodec(self.bases, effort="fast")
        slots = torch.arange(len(keys) // PAGE * PAGE).view(-1, PAGE)
        positions = slots[:, 0].tolist()
        fine, coarse = 1e-3, 64.0
        for _ in range(14):
            step = (fine * coarse) ** 0.5
            pages = codec.encode_blocks(slots, [keys], [values], positions=positions, step=step)
            bits = 8 * sum(map(len, pages)) / (2 * self.shape.columns * slots.numel())
            fine, coarse = (step, coarse) if bits > self.arguments.cache_bits else (fine, step)
        return (fine * coarse) ** 0.5

    def run(self, stage: int) -> None:
        """Fills a stage, decodes tokens with it, and frees it."""
        row: dict[str, Any] = {"stage": stage, "layers": self.split[stage]}
        print(f"stage {stage}, {self.split[stage]} layers", flush=True)
        try:
            row |= self._measure(stage)
        except torch.cuda.OutOfMemoryError as error:
            row["out_of_memory"] = str(error).splitlines()[0]
        except Exception as error:  # What was measured so far must not be lost with it.
            traceback.print_exc()
            row["failed"] = repr(error)
        self.memory.free()
        row["left_bytes"] = self.memory.allocated()
        self.rows.append(row)
        print(show(row), flush=True)
        self.keep()

    def _measure(self, stage: int) -> dict[str, Any]:
        arguments, memory, layers = self.arguments, self.memory, self.split[stage]
        memory.free()
        row: dict[str, Any] = {"before_bytes": memory.allocated()}
        ends = {"embeds": stage == 0, "predicts": stage == len(self.split) - 1}
        how = {"buffers": arguments.buffers, "most": int(1e6 * arguments.part_mb), **ends}
        with memory.phase(row, "weights"):
            model, kept = build(self.config, self.device, arguments.bits, 100 + stage, self._tell_some, layers=layers, **how)
        row["weight_bytes"], row["weight_values"] = weights_of(kept)
        row["weight_bits"] = 8 * row["weight_bytes"] / row["weight_values"]
        self.tell(f"weights: {row['weight_bytes'] / 1e9:.3f} GB, {row['weight_bits']:.3f} bits")
        first = sum(self.split[:stage])
        with memory.phase(row, "cache"):
            codecs = [PageCodec(self.bases, effort="fast") for _ in range(layers)]
            steps = WARM + arguments.tokens
            cache = PartedCache(self.made, codecs, first=first, step=self.step, part=arguments.cache_part, room=steps)
            for number in range(layers):
                cache.fill(self.filled)
                self._tell_some("cache", number)
        row |= {"cache_bytes": cache.nbytes, "cache_bits": cache.bits}
        self.tell(f"cache: {cache.nbytes / 1e9:.3f} GB, {cache.bits:.3f} bits")
        model.attend_with(cache)
        with memory.phase(row, "decoding"):
            row["steps_ms"] = self._decode(model, cache)
        row["ms"] = statistics.median(row["steps_ms"][WARM:])
        row |= {"pool_bytes": cache.pool_bytes, "buffer_bytes": sum(ring.nbytes for ring in kept.rings)}
        row |= {"bases_bytes": self.basis_bytes * layers, "cache_error": cache.error(self.filled)}
        if self.device.type == "cuda":
            row["peak_bytes"] = max(row[f"{name}_peak_bytes"] for name in ("weights", "cache", "decoding"))
            row["reserved_bytes"] = max(row[f"{name}_reserved_bytes"] for name in ("weights", "cache", "decoding"))
            row["outside_bytes"] = max(row[f"{name}_outside_bytes"] for name in ("weights", "cache", "decoding"))
            held = row["weight_bytes"] + row["cache_bytes"] + row["pool_bytes"] + row["buffer_bytes"]
            row["workspace_bytes"] = row["decoding_peak_bytes"] - held
        # Hooks and rings refer to each other.
        kept.remove()
        return row

    def _decode(self, model: Any, cache: PartedCache) -> list[float]:
        """Milliseconds of each token; their hidden states are carried on."""
        took, out = [], []
        for number, token in enumerate(self.numbers):
            position = torch.tensor([[self.filled + number]], device=self.device)
            given: Any = token if model.table is not None else self.carried[number].to(self.device)
            turns = self.rotary(self.carried[:1, 0].to(self.device), position)
            since = self.memory.now()
            found = model(given, turns, cache)
            took.append(1e3 * (self.memory.now() - since))
            cache.check()
            out.append(found.cpu())
        self.tell(f"{len(took)} tokens, the last in {took[-1]:.1f} ms")
        self._check(out, model.norm is not None)
        return took

    def _check(self, out: list[torch.Tensor], logits: bool) -> None:
        import tenfold.torch

        tenfold.torch.check()
        found = torch.stack(out)
        if not bool(torch.isfinite(found).all()):
            raise RuntimeError("what the stage hands on is not finite")
        if len(out) > 1 and torch.equal(out[0], out[1]):
            raise RuntimeError("two tokens gave the same, so something was not computed")
        if not logits:
            self.carried = found

    def _tell_some(self, what: str, layer: int) -> None:
        """Progress, every few layers."""
        if layer % 5 == 0:
            self.tell(f"{what} of layer {layer}")

    def keep(self) -> None:
        """Writes what was measured so far."""
        if self.arguments.json is None:
            return
        import transformers

        head = about("kv_70b", torch, transformers)
        head |= {"arguments": {name: str(value) for name, value in vars(self.arguments).items()}, "shape": asdict(self.shape)}
        head |= {"split": self.split, "step": self.step, "allocator": os.environ["PYTORCH_CUDA_ALLOC_CONF"]}
        head["checks"] = self.checks()
        self.arguments.json.parent.mkdir(parents=True, exist_ok=True)
        self.arguments.json.write_text(json.dumps({**head, "rows": self.rows}, indent=2) + "\n")

    def checks(self) -> list[dict[str, Any]]:
        """Stages held against the bar."""
        found = []
        for row in self.rows:
            if "peak_bytes" in row:
                what = f"peak of stage {row['stage']}, bytes"
                taken = row["peak_bytes"] + row["outside_bytes"]
                found.append({"what": what, "value": taken, "bar": BAR, "rule": "at most", "pass": taken <= BAR})
        return found

    def summary(self) -> None:
        """Prints what all stages say together."""
        done = [row for row in self.rows if "ms" in row]
        if len(done) == len(self.split):
            print(f"a token through all stages: {sum(row['ms'] for row in done):.1f} ms")
        for check in self.checks():
            print(f"{check['what']}: {check['value'] / 1e9:.3f} GB, at most {BAR / 1e9:g}: {'met' if check['pass'] else 'missed'}")


class Memory:
    """Memory of the device, and its clock. On the CPU there is the clock alone."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._on_cuda = device, device.type == "cuda"
        self._outside = self._by_others() if self._on_cuda else 0

    def phase(self, row: dict[str, Any], name: str) -> Phase:
        """What is done in here is measured, and what it took is put into a row."""
        return Phase(self, row, name)

    def start(self) -> None:
        """Forgets earlier peaks, and gives back what is reserved in vain."""
        if self._on_cuda:
            torch.cuda.synchronize(self._device)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._device)

    def said(self) -> dict[str, int]:
        """Peaks since the start: allocated, reserved, and what others than torch have taken since the program began."""
        if not self._on_cuda:
            return {}
        return {
            "peak_bytes": torch.cuda.max_memory_allocated(self._device),
            "reserved_bytes": torch.cuda.max_memory_reserved(self._device),
            "outside_bytes": self._by_others() - self._outside,
        }

    def allocated(self) -> int:
        """Bytes that torch has handed out."""
        return torch.cuda.memory_allocated(self._device) if self._on_cuda else 0

    def free(self) -> None:
        """Gives back what nobody refers to."""
        gc.collect()
        if self._on_cuda:
            torch.cuda.synchronize(self._device)
            torch.cuda.empty_cache()
            getattr(torch._C, "_host_emptyCache", lambda: None)()

    def now(self) -> float:
        """Seconds, when all that was queued is done."""
        if self._on_cuda:
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    def _by_others(self) -> int:
        """Bytes of the device that are in use, less torch's."""
        torch.cuda.synchronize(self._device)
        free, total = torch.cuda.mem_get_info(self._device)
        return total - free - torch.cuda.memory_reserved(self._device)


class Phase:
    """A part of a stage's life."""

    def __init__(self, memory: Memory, row: dict[str, Any], name: str) -> None:
        self._memory, self._row, self._name = memory, row, name

    def __enter__(self) -> None:
        self._memory.start()
        self._since = self._memory.now()

    def __exit__(self, *_: Any) -> None:
        self._row[f"{self._name}_s"] = self._memory.now() - self._since
        self._row |= {f"{self._name}_{what}": value for what, value in self._memory.said().items()}


def show(row: dict[str, Any]) -> str:
    """A stage in lines."""
    start = f"stage {row['stage']}, {row['layers']} layers:"
    if "ms" not in row:
        return f"{start} {'out of memory: ' + row['out_of_memory'] if 'out_of_memory' in row else 'failed: ' + row['failed']}"
    lines = [
        f"{start} {row['ms']:.1f} ms a token; filled in {row['weights_s']:.1f} + {row['cache_s']:.1f} s",
        f"  weights {row['weight_bytes'] / 1e9:.3f} GB ({row['weight_bits']:.3f} bits), cache {row['cache_bytes'] / 1e9:.3f} GB "
        f"({row['cache_bits']:.3f} bits, nmse {row['cache_error']:.1e}), buffer {row['buffer_bytes'] / 1e9:.3f}, pools "
        f"{row['pool_bytes'] / 1e9:.3f}",
    ]
    if "peak_bytes" in row:
        phases = ", ".join(f"{row[f'{name}_peak_bytes'] / 1e9:.3f} {name}" for name in ("weights", "cache", "decoding"))
        lines.append(
            f"  peak {row['peak_bytes'] / 1e9:.3f} GB ({phases}); reserved {row['reserved_bytes'] / 1e9:.3f}, workspace "
            f"{row['workspace_bytes'] / 1e9:.3f}, others than torch {row['outside_bytes'] / 1e9:.3f}, left behind "
            f"{row['left_bytes'] / 1e9:.3f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
