"""Blobs of pictures through a GPU's video engines: those of a CUDA device, or on the emulator a library that stands in for the driver's.

The stand-in holds every call against NVIDIA's rules, codes in software, and misbehaves when it is told to.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tenfold
import tenfold.torch
import torch
from conftest import same_bits
from tenfold import ArgumentError, DataError, DtypeError, EngineUnavailableError, MachineError, UnsupportedError, _native
from tenfold.torch import VideoDecoder, VideoEncoder, _device, _tensors, _video
from test_torch_device import EMULATED, emulate

ROOT = Path(__file__).parents[2] / "conformance" / "video"
STANDIN = Path(_native.__file__).with_name("libtenfold_nvcodec_standin.so")
GOLDEN = [one for one in json.loads((ROOT / "index.json").read_text()) if "refused" not in one]
NAMES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64", "f8_e4m3": "float8_e4m3fn", "u8": "uint8"}

# Numbers of `tenfold_nvcodec_standin::Fault`.
CONCEAL_SILENTLY, LOSE_PICTURE, HANG, NO_DECODER, NO_ENCODER = 3, 5, 6, 8, 33


class Counts(ctypes.Structure):
    """What is open in the stand-in, and what was done."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            *("parsers", "decoders", "maps", "sessions", "registered", "mapped", "buffers", "locked"),
            *("decoders_created", "sessions_opened", "decoded", "encoded", "most_in_flight", "most_sessions"),
        )
    ]


class Standin:
    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(STANDIN))
        self._library.tenfold_standin_set.argtypes = [ctypes.c_int32, ctypes.c_int64]

    def set(self, fault: int, value: int) -> None:
        assert self._library.tenfold_standin_set(fault, value) == 0

    def reset(self) -> None:
        self._library.tenfold_standin_reset()

    def counts(self) -> Counts:
        counts = Counts()
        self._library.tenfold_standin_counts(ctypes.byref(counts))
        return counts

    def violations(self) -> str:
        text = ctypes.create_string_buffer(1 << 16)
        length = self._library.tenfold_standin_violations(text, ctypes.c_size_t(len(text)))
        return text.raw[:length].decode()


class Place:
    """A device, and the stand-in where its engines are not real."""

    def __init__(self, device: torch.device, standin: Standin | None) -> None:
        self.device, self.standin = device, standin

    def decoder(self, **options: Any) -> VideoDecoder:
        return VideoDecoder(self.device, **options)


@pytest.fixture(params=["emulator", "cuda"])
def place(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    if request.param == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
        try:
            _video.shared_decoder(torch.device("cuda", 0))
        except EngineUnavailableError as error:
            pytest.skip(str(error))
        yield Place(torch.device("cuda", 0), None)
        tenfold.torch.check()
        return
    if EMULATED is None or not STANDIN.exists():
        pytest.skip("a build without the feature emulator")
    # The native module reads them when it first needs the libraries, and no other test names any.
    os.environ["TENFOLD_NVCUVID"] = os.environ["TENFOLD_NVENC"] = str(STANDIN)
    emulate(monkeypatch)
    monkeypatch.setattr(_device, "is_capturing", lambda: False)
    monkeypatch.setattr(_video, "_decoders", {})
    monkeypatch.setattr(_video, "_sessions", {})
    standin = Standin()
    standin.reset()
    yield Place(torch.device("cpu"), standin)
    _video.close_all()
    gc.collect()
    counts = standin.counts()
    assert (counts.decoders, counts.parsers, counts.maps, counts.sessions) == (0, 0, 0, 0)
    assert standin.violations() == ""


def blob_of(name: str) -> bytes:
    return (ROOT / f"{name}.tnfd").read_bytes()


def wanted(name: str) -> torch.Tensor:
    """What a golden blob decodes to, on the CPU."""
    entry = next(one for one in GOLDEN if one["name"] == name)
    dtype = getattr(torch, NAMES[entry["dtype"]])
    return _tensors.from_bytes((ROOT / f"{name}.raw").read_bytes()).view(dtype).reshape(entry["shape"])


def names(*parts: str) -> list[str]:
    """Golden blobs for engines that have their tensors beside them."""
    return [
        one["name"]
        for one in GOLDEN
        if "_nvdec" in one["name"] and (ROOT / f"{one['name']}.raw").exists() and all(part in one["name"] for part in parts)
    ]


# A blob of one picture, one of several, one behind a rotation.
ONE, SEVERAL, ROTATED = "h265_nvdec_8_bits", "h265_nvdec_pictures", "h265_nvdec_hadamard"


@pytest.mark.parametrize("name", [*names(), "h265_empty"])
def test_golden_blobs_decode_to_their_tensors(place: Place, name: str) -> None:
    blob, expected = blob_of(name), wanted(name)
    try:
        found = tenfold.torch.decode(blob, device=place.device if place.standin is None else "cpu")
    except UnsupportedError as error:
        # Engines that lack AV1 or a depth say so.
        assert "the GPU's video engine cannot do this" in str(error)
        pytest.skip(str(error))
    assert found.device == place.device and found.dtype == expected.dtype and found.shape == expected.shape
    exact = not tenfold.inspect(blob).transforms
    if exact:
        assert same_bits(found.cpu(), expected)
    else:
        # Transforms are undone in f32 on a device.
        off = (found.cpu().double() - expected.double()).abs()
        assert float(off.max()) <= float(expected.double().abs().max()) / 200
    # A blob that lies on the device, a buffer, an output.
    there = _tensors.from_bytes(blob).to(place.device)
    assert same_bits(tenfold.torch.decode(there), found)
    out = torch.empty_like(found)
    assert tenfold.torch.decode(bytearray(blob), out=out) is out
    assert same_bits(out, found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float64], ids=str)
@pytest.mark.parametrize("name", [ONE, ROTATED, "h265_nvdec_f64"])
def test_floats_are_written_as_any_float(place: Place, name: str, dtype: torch.dtype) -> None:
    blob, expected = blob_of(name), wanted(name)
    with place.decoder() as video:
        found = video.decode(blob, dtype=dtype)
        assert found.dtype == dtype and found.device == place.device
        out = torch.zeros(expected.shape, dtype=dtype, device=place.device)
        assert video.decode(blob, out=out) is out and same_bits(out, found)
    # Half a unit in the last place of the coarser of the two, and what f32 loses.
    eps = max(torch.finfo(dtype).eps, torch.finfo(expected.dtype).eps, 1e-6)
    off = (found.cpu().double() - expected.double()).abs()
    assert bool((off <= expected.double().abs() * eps + float(expected.double().abs().max()) / 200).all())
    if dtype == expected.dtype:
        assert same_bits(found.cpu(), expected) or name == ROTATED


def test_bytes_stay_bytes(place: Place) -> None:
    with place.decoder() as video:
        assert same_bits(video.decode(blob_of("h265_nvdec_bytes")).cpu(), wanted("h265_nvdec_bytes"))
        with pytest.raises(DtypeError):
            video.decode(blob_of("h265_nvdec_bytes"), out=torch.empty(72, 96, device=place.device))


def test_results_come_in_any_order_and_some_are_given_up(place: Place) -> None:
    blobs = {name: blob_of(name) for name in (ONE, SEVERAL, ROTATED, "h264_nvdec_rows")}
    with place.decoder() as video:
        alone = {name: video.decode(blob) for name, blob in blobs.items()}
        pending = {name: [video.submit(blob) for _ in range(4)] for name, blob in blobs.items()}
        for name in reversed(pending):
            first, second, third, fourth = pending[name]
            second.abandon()
            assert second.ready
            with pytest.raises(ArgumentError, match="given up"):
                second.result()
            assert same_bits(fourth.result(), alone[name])
            assert same_bits(first.result(), alone[name])
            assert first.ready
            with pytest.raises(ArgumentError, match="taken already"):
                first.result()
            # Dropped, which waits.
            del third
        pending.clear()
        gc.collect()
        assert same_bits(video.decode(blobs[ONE]), alone[ONE])
        assert video.counters["pictures"] > 0 and video.counters["reused"] > 0


def test_one_call_decodes_many(place: Place) -> None:
    chosen = [ONE, SEVERAL, "h265_nvdec_columns"]
    native = tenfold.encode(torch.randn(64, 96).numpy(), bits=3)
    blobs = [*(blob_of(name) for name in chosen), native]
    outs = [torch.empty_like(wanted(name), device=place.device) for name in chosen] + [torch.empty(64, 96, device=place.device)]
    tenfold.torch.decode_many(blobs, outs)
    for name, out in zip(chosen, outs, strict=False):
        assert same_bits(out.cpu(), wanted(name))
    assert torch.equal(outs[-1].cpu(), torch.from_numpy(tenfold.decode(native)))


def test_decoders_are_kept_from_call_to_call(place: Place) -> None:
    blob = blob_of(ONE)
    tenfold.torch.decode(blob, device=place.device if place.standin is None else "cpu")
    video = _video.shared_decoder(place.device)
    created = video.counters["created"]
    for _ in range(10):
        assert same_bits(tenfold.torch.decode(blob, out=torch.empty(72, 96, dtype=torch.bfloat16, device=place.device)).cpu(), wanted(ONE))
    assert _video.shared_decoder(place.device) is video
    # Another lane may meet such pictures for the first time.
    assert video.counters["created"] <= max(created, video.counters["lanes"])


def test_damage_is_found_before_anything_is_sent(place: Place) -> None:
    blob = bytearray(blob_of(SEVERAL))
    with place.decoder() as video:
        expected = video.decode(bytes(blob))
        before = video.counters["pictures"]
        out = torch.full_like(expected, 7)
        for at in range(9, len(blob), max(len(blob) // 40, 1)):
            blob[at] ^= 0x10
            with pytest.raises((DataError, UnsupportedError, ArgumentError, tenfold.LimitError)):
                video.submit(bytes(blob), out=out)
            blob[at] ^= 0x10
        with pytest.raises(DataError):
            video.submit(bytes(blob[:-5]))
        with pytest.raises(DataError):
            video.submit(b"")
        assert video.counters["pictures"] == before
        assert bool((out == 7).all())
        assert same_bits(video.decode(bytes(blob), out=out), expected)


def test_a_lane_is_good_again_after_an_error(place: Place) -> None:
    if place.standin is None:
        pytest.skip("no real engine misbehaves when it is told to")
    blob = blob_of(SEVERAL)
    with place.decoder() as video:
        expected = video.decode(blob)
        for fault, said in ((CONCEAL_SILENTLY, "other samples"), (LOSE_PICTURE, "missing")):
            place.standin.set(fault, 1)
            with pytest.raises(DataError, match=said):
                video.decode(blob)
            place.standin.set(fault, 0)
            assert same_bits(video.decode(blob), expected)


def test_an_engine_that_hangs_is_an_error_and_keeps_no_memory_that_is_used(place: Place) -> None:
    if place.standin is None:
        pytest.skip("no real engine misbehaves when it is told to")
    blob = blob_of(ONE)
    with place.decoder(lanes=1, patience=0.5) as video:
        expected = video.decode(blob)
        place.standin.set(HANG, 1)
        out = torch.zeros_like(expected)
        pending = video.submit(blob, out=out)
        assert not pending.ready
        with pytest.raises(MachineError, match="no video engine"):
            pending.result()
        place.standin.set(HANG, 0)
        found = None
        for _ in range(40):
            try:
                found = video.decode(blob)
                break
            except MachineError:
                continue
        assert found is not None and same_bits(found, expected)


def test_what_does_not_fit_is_refused(place: Place) -> None:
    blob = blob_of(ONE)
    on = {"device": place.device}
    with place.decoder() as video:
        for out, error in (
            (torch.empty(72, 95, dtype=torch.bfloat16, **on), ArgumentError),
            (torch.empty(96, 72, dtype=torch.bfloat16, **on).t(), ArgumentError),
            (torch.empty(72, 96, dtype=torch.int16, **on), DtypeError),
            (torch.empty(72 * 96 + 1, dtype=torch.bfloat16, **on)[1:].view(72, 96), ArgumentError),
        ):
            with pytest.raises(error):
                video.submit(blob, out=out)
        with pytest.raises(tenfold.LimitError):
            video.submit(blob, max_bytes=100)
        with pytest.raises(ArgumentError):
            video.submit(blob, out=torch.empty(72, 96, **on), dtype=torch.float32)
        with pytest.raises(UnsupportedError, match="use tenfold.torch.decode"):
            video.submit(tenfold.encode(torch.ones(4, 4).numpy(), bits=3))
        with pytest.raises(DtypeError):
            video.submit(torch.zeros(9))
    with pytest.raises(ArgumentError):
        tenfold.torch.decode(blob, out=torch.empty(72, 96, dtype=torch.bfloat16, **on), layers=1)
    for bad in ({"lanes": -1}, {"idle_bytes": -1}, {"patience": 0.0}, {"patience": -2.0}):
        with pytest.raises(ArgumentError):
            place.decoder(**bad)


def test_what_was_submitted_outlives_its_decoder(place: Place) -> None:
    blob = blob_of(SEVERAL)
    video = place.decoder()
    pending = video.submit(blob)
    video.close()
    video.close()
    assert video.closed and "closed" in repr(video)
    assert pending.ready
    assert same_bits(pending.result().cpu(), wanted(SEVERAL))
    with pytest.raises(ArgumentError, match="closed"):
        video.submit(blob)
    with pytest.raises(ArgumentError, match="closed"):
        video.counters  # noqa: B018 - raises


def test_two_threads_share_the_engines(place: Place) -> None:
    chosen = [ONE, SEVERAL, "h264_nvdec_rows", "h265_nvdec_columns"]
    wrong: list[str] = []
    with place.decoder() as video:

        def work(start: int) -> None:
            for i in range(12):
                name = chosen[(start + i) % len(chosen)]
                if not same_bits(video.decode(blob_of(name)).cpu(), wanted(name)):
                    wrong.append(name)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        counters = video.counters
        assert counters["created"] <= 2 * len(chosen) * counters["lanes"]


def test_results_are_ordered_with_streams(place: Place) -> None:
    if place.standin is not None:
        pytest.skip("the emulator has one stream")
    blob, expected = blob_of(SEVERAL), wanted(SEVERAL).cuda()
    video = _video.shared_decoder(place.device)
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    for _ in range(20):
        with torch.cuda.stream(first):
            out = torch.empty_like(expected)
            # Long work before it that writes to the same memory.
            torch.cuda._sleep(2_000_000)
            out.fill_(3)
            pending = video.submit(blob, out=out)
        with torch.cuda.stream(second):
            copy = pending.result().clone()
        second.synchronize()
        assert same_bits(copy, expected)


def test_gpus_without_engines_and_machines_without_a_gpu_say_so(place: Place) -> None:
    with pytest.raises(UnsupportedError):
        VideoDecoder("meta")
    if place.standin is None:
        # A data-centre GPU has no encoder; on others there is nothing to refuse.
        try:
            VideoEncoder("h265", device=place.device).close()
        except EngineUnavailableError as error:
            assert "not available" in str(error)
        return
    place.standin.set(NO_ENCODER, -1)
    with pytest.raises(EngineUnavailableError, match="not available"):
        VideoEncoder("h265", device="cpu")
    with pytest.raises(EngineUnavailableError, match="not available"):
        tenfold.torch.encode(torch.randn(64, 64), codec="h265")
    place.standin.set(NO_DECODER, -1)
    with pytest.raises(EngineUnavailableError, match="has no engine that decodes"):
        place.decoder()
    with pytest.raises(EngineUnavailableError):
        tenfold.torch.decode(blob_of(ONE), device="cpu")
    assert not _video._decoders


def test_the_cpu_decodes_no_pictures() -> None:
    with pytest.raises(UnsupportedError, match="VideoDecoder"):
        tenfold.decode(blob_of(ONE))
    if not _device.is_ours(torch.device("cpu")):
        with pytest.raises(UnsupportedError, match="CUDA device"):
            VideoDecoder("cpu")
        with pytest.raises(UnsupportedError, match="CUDA device"):
            tenfold.torch.encode(torch.randn(64, 64), codec="h265")
        with pytest.raises(UnsupportedError):
            tenfold.torch.decode(blob_of(ONE))


def encodes(place: Place, codec: str) -> VideoEncoder:
    """An encoder, or a skipped test."""
    try:
        return VideoEncoder(codec, device=place.device, effort="fast", qp=24 if codec != "av1" else 90)
    except EngineUnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("codec", ["h264", "h265"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_tensors_become_pictures_and_come_back(place: Place, codec: str, dtype: torch.dtype) -> None:
    x = torch.randn(150, 160).to(dtype).to(place.device)
    with encodes(place, codec) as encoder:
        blob = encoder.encode(x)
    info = tenfold.inspect(blob.cpu().numpy())
    assert blob.dtype == torch.uint8 and blob.device == place.device
    assert (info.codec, info.shape) == ({"h264": "H.264", "h265": "H.265"}[codec], (150, 160))
    back = tenfold.torch.decode(blob)
    assert back.dtype == dtype and back.device == place.device
    assert float((back.float() - x.float()).square().mean()) < 0.05
    # Made again it is the same, byte for byte.
    with encodes(place, codec) as encoder:
        assert torch.equal(encoder.encode(x), blob)


def test_pictures_meet_a_goal(place: Place) -> None:
    encodes(place, "h265").close()
    x = torch.randn(150, 160, device=place.device)
    blob = tenfold.torch.encode(x, bits=3, effort="fast", codec="h265")
    assert blob.nbytes * 8 / x.numel() == pytest.approx(3, rel=0.02)
    assert float((tenfold.torch.decode(blob) - x).square().mean()) < 0.1
    for options, error in (
        ({"codec": "vp9"}, ArgumentError),
        ({"codec": "h265", "lossless": True}, ArgumentError),
        ({"codec": "h265", "residual": {"bits": 2}}, ArgumentError),
    ):
        with pytest.raises(error):
            tenfold.torch.encode(x, **options)
    with pytest.raises(ArgumentError, match="scale"):
        VideoEncoder("h265", device=place.device, scale="rows").encode(x)
    closed = VideoEncoder("h265", device=place.device)
    closed.close()
    with pytest.raises(ArgumentError, match="closed"):
        closed.encode(x)
