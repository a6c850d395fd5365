"""The loop in which a model decodes tokens at batch 1 behind a long context, with caches of several kinds."""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from _kv_caches import NEED_CUDA, make, nbytes
from _kv_made import Made, build

# Steps before those that count.
WARM = 4


class Decoding:
    """A model, and caches filled with made-up contexts for it."""

    def __init__(self, arguments: argparse.Namespace, made: Made, config: Any, bases: Path) -> None:
        from tenfold.kv import Bases

        self.arguments, self.made, self.config = arguments, made, config
        self.device, self.on_cuda = made.device, made.device.type == "cuda"
        self.tenfold = {"step": arguments.step, "bases": Bases.open(bases)}
        since = time.perf_counter()
        self.model = build(config, self.device)
        # cuDNN plans attention anew for every length, which takes 2 ms of the host's time a layer: whichever cache comes first would pay.
        torch.backends.cuda.enable_cudnn_sdp(False)
        self.positions = torch.arange(max(arguments.contexts), device=self.device)[None]
        # The first step's logits of each context with the raw cache.
        self._logits: dict[int, torch.Tensor] = {}
        weights = sum(weight.nbytes for weight in self.model.parameters())
        print(f"a model of {weights / 1e9:.2f} GB, made in {time.perf_counter() - since:.0f} s", flush=True)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Measures each kind of cache with each context. Each frees its memory before the next."""
        for context in self.arguments.contexts:
            for kind in self.arguments.caches:
                row: dict[str, Any] = {"part": "decode", "context": context, "cache": kind}
                if kind in NEED_CUDA and not self.on_cuda:
                    row["skipped"] = "needs CUDA"
                else:
                    try:
                        with torch.no_grad():
                            row |= self._measure(kind, context)
                    except torch.cuda.OutOfMemoryError as error:
                        row["out_of_memory"] = str(error).splitlines()[0]
                    except Exception as error:  # What was measured so far, and the other kinds, must not be lost with it.
                        traceback.print_exc()
                        row["failed"] = repr(error)
                self.free()
                yield row

    def free(self) -> None:
        """Gives back the memory of a cache, on the device and of torch's pinned pool."""
        if self.on_cuda:
            torch.cuda.synchronize()
        gc.collect()
        if self.on_cuda:
            torch.cuda.empty_cache()
            getattr(torch._C, "_host_emptyCache", lambda: None)()

    def _measure(self, kind: str, context: int) -> dict[str, Any]:
        # The last step sees the whole context. Buffers of a power of two of tokens stay one: torch's pinned memory is rounded up to that.
        filled = context - WARM - self.arguments.tokens
        before = self._allocated()
        since = self._now()
        cache = make(kind, self.config, context, **(self.tenfold if kind.startswith("tenfold") else {}))
        for layer in range(self.config.num_hidden_layers):
            cache.update(self.made.states(layer, 0, filled), self.made.states(layer, 1, filled), layer)
        row: dict[str, Any] = {"filled": filled, "fill_s": self._now() - since}
        gc.collect()
        if self.on_cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        row["cache_bytes"], row["device_bytes"] = nbytes(cache), self._allocated() - before
        steps = Steps(self, cache, filled)
        row |= self._time(steps)
        row["logit_error"] = self._against_raw(kind, context, steps.first_logits)
        row["bits"] = 8 * row["cache_bytes"] / (self.made.shape.nbytes(filled) / 2)
        if self.on_cuda:
            row["peak_bytes"] = torch.cuda.max_memory_allocated()
        return row

    def _time(self, steps: Steps) -> dict[str, Any]:
        """Milliseconds a token."""
        limit = self.arguments.row_seconds
        since = self._now()
        steps.run(1)
        first = self._now() - since
        if first > limit:
            return {"tokens": 1, "ms": 1e3 * first, "tokens_per_s": 1 / first, "note": "one step took too long; it was the first"}
        since = self._now()
        steps.run(WARM - 1)
        each = (self._now() - since) / (WARM - 1)
        tokens = max(min(self.arguments.tokens, int(limit / each)), 1)
        since = self._now()
        took = steps.run(tokens)
        wall = self._now() - since
        steps.check()
        ms = statistics.median(took)
        return {"tokens": tokens, "ms": ms, "tokens_per_s": 1e3 / ms, "mean_ms": 1e3 * wall / tokens, "steps_ms": took}

    def _against_raw(self, kind: str, context: int, logits: torch.Tensor) -> float | None:
        """How far the first step's logits are from those with the raw cache."""
        if kind == "raw":
            self._logits[context] = logits
        raw = self._logits.get(context)
        return None if raw is None else float((logits - raw).norm() / raw.norm())

    def _allocated(self) -> int:
        return torch.cuda.memory_allocated() if self.on_cuda else 0

    def _now(self) -> float:
        if self.on_cuda:
            torch.cuda.synchronize()
        return time.perf_counter()


class Steps:
    """Decodes token after token: the likeliest one is the next input. Nothing in the loop waits for the device."""

    def __init__(self, of: Decoding, cache: Any, start: int) -> None:
        self._of, self._cache, self._at = of, cache, start
        self._token = torch.ones((1, 1), dtype=torch.long, device=of.device)
        self._logits = self._token
        self.first_logits = torch.empty(0)

    def run(self, count: int) -> list[float]:
        """Milliseconds of each of some steps, by the device's clock where there is one."""
        marks = [self._mark()]
        for _ in range(count):
            self._step()
            marks.append(self._mark())
        if not self._of.on_cuda:
            return [1e3 * (after - before) for before, after in zip(marks, marks[1:])]
        torch.cuda.synchronize()
        return [before.elapsed_time(after) for before, after in zip(marks, marks[1:])]

    def check(self) -> None:
        """Raises if the last logits are no numbers."""
        if not bool(torch.isfinite(self._logits).all()):
            raise RuntimeError("the last step's logits are not finite")

    def _step(self) -> None:
        place = self._of.positions[:, self._at : self._at + 1]
        out = self._of.model(input_ids=self._token, past_key_values=self._cache, use_cache=True, position_ids=place)
        self._logits = out.logits[:, -1]
        self._token = self._logits.argmax(-1, keepdim=True)
        self._at += 1
        if not self.first_logits.numel():
            self.first_logits = self._logits.float().cpu()

    def _mark(self) -> Any:
        if not self._of.on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
