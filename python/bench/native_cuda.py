#!/usr/bin/env python3
"""The native functions behind `tenfold.torch` on a device, without torch: memory comes from the CUDA driver through ctypes.

Encodes made-up weights (bf16, N(0, 0.02)) on the device, holds what it decodes against the CPU, and times a call from Python
against the same calls from Rust. For machines that have no torch; `torch_cuda.py` measures what users call.

    python python/bench/native_cuda.py --json results/python/native-cuda.json
"""

from __future__ import annotations

import argparse
import ctypes
import json
import pathlib
import statistics
import sys
import time
from typing import Any

import numpy as np
import tenfold
from tenfold import _native

MI = 1 << 20
ROTATE = 512 * MI
Memory = tuple[int, int]


class Driver:
    """The few functions of the CUDA driver that memory takes."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *args: Any) -> None:
        answer = getattr(self.cuda, name)(*args)
        if answer != 0:
            sys.exit(f"{name}: error {answer}")

    def empty(self, size: int) -> Memory:
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value, size

    def put(self, memory: Memory, array: np.ndarray) -> None:
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(memory[0]), ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))

    def get(self, memory: Memory) -> np.ndarray:
        array = np.empty(memory[1], np.uint8)
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), ctypes.c_uint64(memory[0]), ctypes.c_size_t(array.nbytes))
        return array

    def wait(self) -> None:
        self.call("cuCtxSynchronize")

    def free(self, *parts: Memory) -> None:
        for memory in parts:
            self.call("cuMemFree_v2", ctypes.c_uint64(memory[0]))


def weights(values: int) -> np.ndarray:
    """bf16 as uint16: the upper halves of floats."""
    x = np.random.default_rng(7).standard_normal(min(values, 16 * MI), dtype=np.float32) * np.float32(0.02)
    return np.tile((x.view(np.uint32) >> 16).astype(np.uint16), values // x.size)


def encode(driver: Driver, device: _native.CudaDevice, x: np.ndarray, goal: _native.EncodeOptions) -> np.ndarray:
    """A blob, made on the device."""
    tensor, room = driver.empty(x.nbytes), driver.empty(_native.max_encoded_len("bfloat16", [x.size]))
    workspace = driver.empty(device.encode_workspace_len("bfloat16", [x.size], goal, False))
    status = driver.empty(16)
    driver.put(tensor, x)
    device.encode(tensor, "bfloat16", [x.size], room, goal, False, status[0], workspace, 0)
    driver.wait()
    there, size = _native.cuda_encoded(driver.get(status).tobytes())
    if not there:
        sys.exit("the device made no blob")
    blob = driver.get((room[0], size))
    driver.free(tensor, room, workspace, status)
    return blob


def measure(driver: Driver, device: _native.CudaDevice, values: int, bits: float, rounds: int) -> dict[str, Any]:
    lanes = 4096 if values >= 256 * MI else 640 if values >= 48 * MI else 384
    blob = encode(driver, device, weights(values), _native.EncodeOptions("bits", bits, "balanced", 0, lanes))
    rotation = max(2, -(-ROTATE // (2 * values)))
    blobs = [driver.empty(blob.nbytes) for _ in range(rotation)]
    outs = [driver.empty(2 * values) for _ in range(rotation)]
    for memory in blobs:
        driver.put(memory, blob)
    items = [(b, o, "bfloat16", None) for b, o in zip(blobs, outs, strict=True)]
    requests = [_native.DecodeRequests([item]) for item in items]
    workspace, status = driver.empty(requests[0].workspace_len), driver.empty(16)

    expected = tenfold.decode(blob, dtype="raw").view(np.uint8)
    device.decode(requests[0], status[0], workspace, 0)
    driver.wait()
    _native.cuda_decoded(driver.get(status).tobytes())
    if not np.array_equal(driver.get(outs[0]), expected):
        sys.exit("what the device decoded is not what the CPU decodes")

    calls = max(20, min(400, (32 << 30) // (2 * values)))
    engine, python, host = [], [], []
    turns = [requests[i % rotation] for i in range(calls)]
    device.time_decode(turns, status[0], workspace, 0)
    for _ in range(rounds):
        engine.append(device.time_decode(turns, status[0], workspace, 0) / calls)
        driver.wait()
        since = time.perf_counter()
        # A call as tenfold.torch makes it: requests are made anew each time.
        for i in range(calls):
            device.decode(_native.DecodeRequests([items[i % rotation]]), status[0], workspace, 0)
        host.append((time.perf_counter() - since) / calls * 1e6)
        driver.wait()
        python.append((time.perf_counter() - since) / calls * 1e3)
    driver.free(*blobs, *outs, workspace, status)
    rate = {name: 2 * values / statistics.median(t) / 1e6 for name, t in (("engine", engine), ("python", python))}
    return {
        "values": values,
        "bits": blob.nbytes * 8 / values,
        "gb_per_s": rate,
        "of_engine": rate["python"] / rate["engine"],
        "host_us_per_call": statistics.median(host),
        "milliseconds": {"engine": engine, "python": python},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, action="append", help="values of a tensor in Mi; 512, 64 and 16 unless stated")
    parser.add_argument("--bits", type=float, default=2.5)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    device = _native.CudaDevice(0)
    driver = Driver()
    results = []
    for size in args.size or [512, 64, 16]:
        result = measure(driver, device, size * MI, args.bits, args.rounds)
        results.append(result)
        rate = result["gb_per_s"]
        print(
            f"{size:4} Mi  from Python {rate['python']:6.0f} GB/s of bf16, engine {rate['engine']:6.0f}: "
            f"{result['of_engine']:.1%}; {result['host_us_per_call']:.1f} us a call on the host",
            flush=True,
        )
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        report = {"command": " ".join(sys.argv), "device": device.name, "tenfold": tenfold.__version__, "decode": results}
        args.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
