"""Pages into paged pools: on the CPU, on a CUDA device, and on the emulator in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tenfold
import torch
from safetensors.torch import save_file
from tenfold import _native
from tenfold.kv import Bases, PageCodec
from tenfold.torch import _device
from test_torch_device import each, emulate

LAYERS, HEADS, COLUMNS, TOKENS = 4, 2, 16, 24
ROPE = "base=10000,head=16,pairing=halves"


def emulated(patch: pytest.MonkeyPatch) -> None:
    emulate(patch)
    patch.setattr(_device, "staging", lambda length: torch.empty(length, dtype=torch.uint8))
    patch.setattr(_device, "pinned", lambda *shape: torch.zeros(shape, dtype=torch.int64))


@pytest.fixture(params=["emulator", "cuda"])
def device(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    yield from each(request.param, monkeypatch, emulated)


def rows(tokens: int, seed: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Keys and values of all layers, which a few numbers a token make, and a little noise."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(6, LAYERS, HEADS * COLUMNS, generator=torch.Generator().manual_seed(99))
    sides = []
    for _ in range(2):
        few = torch.randn(tokens, 6, generator=generator)
        noise = 0.05 * torch.randn(tokens, LAYERS, HEADS * COLUMNS, generator=generator)
        both = (torch.einsum("tk,klc->tlc", few, mix) + noise).bfloat16()
        sides.append([both[:, layer].contiguous() for layer in range(LAYERS)])
    return sides[0], sides[1]


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Bases:
    folder = tmp_path_factory.mktemp("bases")
    keys, values = rows(2000, 1)
    named = {f"layers.{layer}.k_before_rope": one for layer, one in enumerate(keys)}
    save_file(named | {f"layers.{layer}.v": one for layer, one in enumerate(values)}, folder / "captured.safetensors")
    path = folder / "model.basis"
    command = ["basis", "fit", folder / "captured.safetensors", "--out", path, "--group", "2", "--rope", ROPE, "--head-dim", "16"]
    assert _native.main(["tenfold", *map(str, command)]) == 0
    return Bases.open(path)


def page(codec: PageCodec, seed: int, **goal: Any) -> bytes:
    keys, values = rows(TOKENS, seed)
    return codec.encode(keys, values, position=100 * seed, **goal)


def wanted(codec: PageCodec, blob: bytes) -> list[list[torch.Tensor]]:
    outs = [[torch.empty(TOKENS, HEADS * COLUMNS, dtype=torch.bfloat16) for _ in range(LAYERS)] for _ in range(2)]
    codec.decode_many([blob], [(outs[0], outs[1])])
    return outs


Pools = Callable[[torch.device], torch.Tensor]
POOLS: dict[str, Pools] = {
    "blocks": lambda device: torch.zeros(10, 8, HEADS, COLUMNS, dtype=torch.bfloat16, device=device),
    "heads first": lambda device: torch.zeros(10, HEADS, 8, COLUMNS, dtype=torch.bfloat16, device=device).transpose(1, 2),
    "slots": lambda device: torch.zeros(80, HEADS, COLUMNS, dtype=torch.bfloat16, device=device),
    "rows": lambda device: torch.zeros(80, HEADS * COLUMNS, dtype=torch.bfloat16, device=device),
    "half of another": lambda device: torch.zeros(10, 2, 8, HEADS, COLUMNS, dtype=torch.bfloat16, device=device)[:, 1],
}


def pools(kind: str, device: torch.device) -> list[torch.Tensor]:
    return [POOLS[kind](device) for _ in range(LAYERS)]


def found(pool: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """Rows of slots."""
    block = pool.shape[1] if pool.dim() == 4 else 1
    at = (slots // block, slots % block) if pool.dim() == 4 else (slots,)
    return pool.cpu()[at].reshape(len(slots), -1)


def compare(kind: str, device: torch.device, bases: Bases, near: float) -> None:
    codec = PageCodec(bases, exact=(2, 1))
    blobs = [page(codec, 1, step=0.02), page(codec, 2, bits=3.0), page(codec, 3, lossless=True)]
    order = torch.randperm(80, generator=torch.Generator().manual_seed(5))[: 3 * TOKENS]
    keys, values = pools(kind, device), pools(kind, device)
    codec.decode_blocks(blobs, order, keys, values).check()
    for number, blob in enumerate(blobs):
        slots = order[number * TOKENS : (number + 1) * TOKENS]
        for side, want in zip((keys, values), wanted(codec, blob), strict=True):
            for first in (0, 2):  # layers that share a basis are one row
                have = torch.cat([found(side[layer], slots) for layer in (first, first + 1)], 1).float()
                want_ = torch.cat([want[layer] for layer in (first, first + 1)], 1).float()
                off = (have - want_).abs().amax(1) / want_.abs().amax(1)
                assert off.max() <= near, (kind, number, first, off.max())
                exact = [*range(TOKENS)] if number == 2 else [0, 1, TOKENS - 1]
                assert torch.equal(have[exact], want_[exact])
    # What nobody asked for is as it was.
    free = torch.tensor(sorted(set(range(80)) - set(order.tolist())))
    assert all(not found(pool, free).any() for pool in (*keys, *values))


@pytest.mark.parametrize("kind", POOLS)
def test_pages_on_the_cpu(kind: str, bases: Bases) -> None:
    compare(kind, torch.device("cpu"), bases, 0.0)


@pytest.mark.parametrize("kind", POOLS)
def test_pages_on_a_device(kind: str, device: torch.device, bases: Bases) -> None:
    compare(kind, device, bases, 1 / 64)


def test_a_damaged_page_is_told_apart(device: torch.device, bases: Bases) -> None:
    codec = PageCodec(bases)
    good, bad = page(codec, 1, step=0.02), bytearray(page(codec, 2, step=0.02))
    bad[-6] ^= 4
    keys, values = pools("slots", device), pools("slots", device)
    loading = codec.decode_blocks([good, bytes(bad)], range(2 * TOKENS), keys, values)
    errors = loading.errors()
    assert errors[0] is None and isinstance(errors[1], tenfold.DataError)
    with pytest.raises(tenfold.DataError):
        loading.check()
    slots = torch.arange(TOKENS)
    assert torch.allclose(found(values[0], slots).float(), wanted(codec, good)[1][0].float(), atol=0.1)


def test_tokens_that_go_nowhere(device: torch.device, bases: Bases) -> None:
    codec = PageCodec(bases)
    keys, values = pools("blocks", device), pools("blocks", device)
    slots = [-1] * (TOKENS - 1) + [7]
    codec.decode_blocks([page(codec, 1, step=0.02)], slots, keys, values).check()
    rest = torch.tensor([slot for slot in range(80) if slot != 7])
    assert found(keys[3], torch.tensor([7])).any() and not found(keys[3], rest).any()


def test_bad_arguments(device: torch.device, bases: Bases) -> None:
    codec = PageCodec(bases)
    blob = page(codec, 1, step=0.02)
    keys, values = pools("blocks", device), pools("blocks", device)
    slots = list(range(TOKENS))
    for bad in ([0] * TOKENS, [*slots[1:], 80], [*slots[1:], -2], slots[1:]):
        with pytest.raises(tenfold.ArgumentError):
            codec.decode_blocks([blob], bad, keys, values)
    with pytest.raises(tenfold.DtypeError):
        codec.decode_blocks([blob], [0.5] * TOKENS, keys, values)
    with pytest.raises(tenfold.ArgumentError, match="layers"):
        codec.decode_blocks([blob], slots, keys[1:], values)
    for dtype in (torch.float16, torch.float32, torch.int16):
        with pytest.raises(tenfold.DtypeError):
            codec.decode_blocks([blob], slots, [pool.to(dtype) for pool in keys], [pool.to(dtype) for pool in values])
        with pytest.raises(tenfold.DtypeError):
            codec.decode_blocks([blob], slots, [pool.to(dtype) for pool in keys], values)
    with pytest.raises(tenfold.ArgumentError):
        codec.decode_blocks([blob], slots, [pool.transpose(2, 3) for pool in keys], values)
    with pytest.raises(tenfold.DataError):
        codec.decode_blocks([blob[:-4]], slots, keys, values)
    assert not any(pool.any() for pool in (*keys, *values))


def test_what_a_device_does_not_decode(device: torch.device, bases: Bases) -> None:
    keys, values = rows(TOKENS, 1)
    plain = PageCodec(layers=LAYERS, rope={"head": COLUMNS, "base": 1e4})
    blob = plain.encode([k.float() for k in keys], [v.float() for v in values], position=0, step=0.02)
    with pytest.raises(tenfold.UnsupportedError, match="CPU"):
        plain.decode_blocks([blob], range(TOKENS), pools("slots", device), pools("slots", device))


def test_staged_pages_are_decoded_again_and_again(device: torch.device, bases: Bases) -> None:
    codec = PageCodec(bases)
    blob = page(codec, 1, step=0.02)
    staged = codec.stage([blob], range(TOKENS), device)
    assert staged.device == device and len(blob) <= staged.nbytes < len(blob) + 4096
    several = [(pools("slots", device), pools("blocks", device)) for _ in range(2)]
    with pytest.raises(tenfold.ArgumentError):
        staged.decode(*several[0])  # of different shapes
    several = [(pools("slots", device), pools("slots", device)) for _ in range(2)]
    for keys, values in several:
        staged.decode(keys, values).check()
    assert all(torch.equal(a, b) for one, other in zip(*several) for a, b in zip(one, other))
    short = [pool[: TOKENS - 1] for pool in pools("slots", device)]
    with pytest.raises(tenfold.ArgumentError, match="slots 0 to 22"):
        staged.decode(short, short)


def test_a_stream_waits_for_a_layer(device: torch.device, bases: Bases) -> None:
    """What it does behind the wait finds the layer, and the ones before it."""
    codec = PageCodec(bases)
    blob = page(codec, 1, step=0.02)
    expected = [pools("slots", device) for _ in range(2)]
    codec.decode_blocks([blob], range(TOKENS), *expected).check()
    keys, values = pools("slots", device), pools("slots", device)
    other = torch.cuda.Stream(device) if device.type == "cuda" else _device.stream(device)
    other.wait_stream(_device.stream(device))
    loading = codec.decode_blocks([blob], range(TOKENS), keys, values)
    with _device.on(other):
        for layer in range(LAYERS):
            loading.wait_for(layer)
            for side, want in zip((keys, values), expected, strict=True):
                assert torch.equal(side[layer].clone(), want[layer]) and want[layer].any()
    loading.check()
    # There is nothing left to wait for.
    loading.wait_for(LAYERS - 1)


# Steps of the dtype: what two roundings may be apart.
OTHERS = {torch.float8_e4m3fn: 1 / 8, torch.float8_e5m2: 1 / 4, torch.float16: 0.0}


def spread(dtype: torch.dtype, seed: int, device: torch.device, order: torch.Tensor) -> list[list[torch.Tensor]]:
    """Pools of a dtype that hold a page's tokens in some slots, keys and values."""
    both = []
    for states in rows(TOKENS, seed):
        both.append([torch.zeros(10, 8, HEADS, COLUMNS, dtype=dtype) for _ in states])
        for pool, state in zip(both[-1], states, strict=True):
            bits = pool.view(torch.uint8) if dtype.itemsize == 1 else pool
            bits[order // 8, order % 8] = state.to(dtype).view(bits.dtype).view(TOKENS, HEADS, COLUMNS)
    return [[pool.to(device) for pool in side] for side in both]


def joined(layers: list[torch.Tensor], first: int) -> torch.Tensor:
    """Rows of two layers that share a basis."""
    return torch.cat([layer.float() for layer in layers[first : first + 2]], 1)


@pytest.mark.parametrize("dtype", OTHERS, ids=str)
def test_pools_of_other_floats(dtype: torch.dtype, device: torch.device, bases: Bases) -> None:
    codec = PageCodec(bases, effort="fast")
    order = torch.randperm(80, generator=torch.Generator().manual_seed(7))[:TOKENS]
    table, given = order.view(1, TOKENS), spread(dtype, 1, device, order)
    keys, values = ([state.to(dtype) for state in side] for side in rows(TOKENS, 1))
    plain = codec.encode(keys, values, position=100, step=0.1)
    (made,) = codec.encode_blocks(table, *given, positions=[100], step=0.1)
    (exact,) = codec.encode_blocks(table, *given, positions=[100], lossless=True)
    assert made != plain and len(made) < 1.25 * len(plain) + 400
    assert {codec._native.describe(page, 1)[0] for page in (made, plain, exact)} == {str(dtype).removeprefix("torch.")}
    assert len(exact) < 1.1 * len(codec.encode(keys, values, position=100, lossless=True)) + 400
    for page in (made, plain, exact):
        pools = spread(dtype, 2, device, order)
        codec.decode_blocks([page], order, *pools).check()
        cpu = [[torch.empty(TOKENS, HEADS * COLUMNS, dtype=dtype) for _ in range(LAYERS)] for _ in range(2)]
        codec.decode_many([page], [(cpu[0], cpu[1])])
        for ours, theirs, was in zip(pools, cpu, (keys, values), strict=True):
            found_ = [found(pool.cpu().view(torch.uint8) if dtype.itemsize == 1 else pool, order).view(dtype) for pool in ours]
            for first in (0, 2):
                have, want, state = (joined(layers, first) for layers in (found_, theirs, was))
                near = want.abs().amax(1, keepdim=True) / 64 + OTHERS[dtype] * torch.maximum(want.abs(), have.abs()) + 2**-9
                assert ((have - want).abs() <= near).all()
                assert (have - state).square().mean() < 0.05 * state.square().mean()
                assert page is not exact or torch.equal(have, state)
    cap = 4 * 2 * TOKENS * LAYERS * HEADS * COLUMNS // 8
    (capped,) = codec.encode_blocks(table, *given, positions=[100], bits=4.0)
    assert 0.8 * cap < len(capped) <= cap
    wrong = [[pool.float().bfloat16() for pool in side] for side in given]
    with pytest.raises(tenfold.DtypeError):
        codec.decode_blocks([made], order, *wrong)


@pytest.mark.parametrize("pinned", [False, True], ids=["on the device", "pinned"])
def test_staged_pages_in_a_graph(pinned: bool, device: torch.device, bases: Bases) -> None:
    if device.type != "cuda":
        pytest.skip("an emulated device captures no graphs")
    codec = PageCodec(bases, effort="fast")
    blobs = [page(codec, seed, step=0.1) for seed in (1, 2)]
    expected = [pools("slots", device) for _ in range(2)]
    codec.decode_blocks(blobs, range(2 * TOKENS), *expected).check()
    staged = codec.stage(blobs, range(2 * TOKENS), device, pinned=pinned)
    keys, values = pools("slots", device), pools("slots", device)
    staged.decode(keys, values).check()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loading = staged.decode(keys, values)
        with pytest.raises(tenfold.ArgumentError, match="staged"):
            codec.decode_blocks(blobs, range(2 * TOKENS), keys, values)
    for _ in range(3):
        for pool in (*keys, *values):
            pool.zero_()
        graph.replay()
        for side, want in zip((keys, values), expected, strict=True):
            assert all(torch.equal(pool, other) for pool, other in zip(side, want, strict=True))
    loading.check()


def test_pages_are_staged_on_devices_alone(bases: Bases) -> None:
    codec = PageCodec(bases)
    with pytest.raises(tenfold.ArgumentError, match="CUDA"):
        codec.stage([page(codec, 1, step=0.02)], range(TOKENS), "cpu")


@pytest.mark.parametrize("kind", POOLS)
def test_pages_of_blocks(kind: str, device: torch.device, bases: Bases) -> None:
    codec = PageCodec(bases, effort="fast")
    order = torch.randperm(80, generator=torch.Generator().manual_seed(6))[: 3 * TOKENS]
    keys, values = pools(kind, device), pools(kind, device)
    seeds = (1, 2, 3)
    for number, seed in enumerate(seeds):
        slots = order[number * TOKENS : (number + 1) * TOKENS].to(device)
        for side, states in zip((keys, values), rows(TOKENS, seed), strict=True):
            for pool, state in zip(side, states, strict=True):
                block = pool.shape[1] if pool.dim() == 4 else 1
                at = (slots // block, slots % block) if pool.dim() == 4 else (slots,)
                pool[at] = state.to(device).view(TOKENS, *pool.shape[len(at) :])
    table = order.view(3, TOKENS)
    made = codec.encode_blocks(table, keys, values, positions=[100 * seed for seed in seeds], step=0.1)
    for seed, blob in zip(seeds, made, strict=True):
        plain = page(codec, seed, step=0.1)
        for ours, theirs, states in zip(wanted(codec, blob), wanted(codec, plain), rows(TOKENS, seed), strict=True):
            both = [sum(float((a.float() - b.float()).square().sum()) for a, b in zip(one, states)) for one in (ours, theirs)]
            assert both[0] <= 1.1 * both[1]
        assert len(blob) < 1.25 * len(plain) + 400


@pytest.mark.parametrize("exact", [(0, 0), (2, 1)])
def test_lossless_pages_of_blocks(exact: tuple[int, int], device: torch.device, bases: Bases) -> None:
    codec = PageCodec(bases, exact=exact)
    keys, values = pools("slots", device), pools("slots", device)
    for side, states in zip((keys, values), rows(TOKENS, 1), strict=True):
        for pool, state in zip(side, states, strict=True):
            pool[:TOKENS] = state.to(device).view(TOKENS, HEADS, COLUMNS)
    # Every bit stays, of what is not finite too; and without positions, since keys stay as they are.
    keys[0][3, 0, :4] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
    table = torch.stack([torch.arange(TOKENS).flip(0), torch.arange(TOKENS)])
    by_host = codec.encode_many
    codec.encode_many = None  # type: ignore[method-assign,assignment] # the host makes none of them
    made = codec.encode_blocks(table, keys, values, lossless=True)
    assert made == codec.encode_blocks(table, keys, values, positions=[100, 0], lossless=True)
    codec.encode_many = by_host  # type: ignore[method-assign]
    back = pools("slots", device), pools("slots", device)
    codec.decode_blocks(made[:1], table[0], *back).check()
    for found, given in zip(back, (keys, values), strict=True):
        for ours, theirs in zip(found, given, strict=True):
            assert torch.equal(ours[:TOKENS].view(torch.int16), theirs[:TOKENS].view(torch.int16))
    host = codec.encode(*([pool[:TOKENS].cpu().reshape(TOKENS, -1) for pool in side] for side in (keys, values)), lossless=True)
    assert codec.inspect(made[1]).tokens == TOKENS and len(made[1]) < 1.1 * len(host) + 400
    for found, given in zip(wanted(codec, made[1]), wanted(codec, host), strict=True):
        assert all(torch.equal(ours.view(torch.int16), theirs.view(torch.int16)) for ours, theirs in zip(found, given, strict=True))


@pytest.mark.parametrize("goal", [{"lossless": True}, {"step": 1e-3}])
def test_pages_whose_rows_are_not_aligned(goal: dict[str, Any], device: torch.device) -> None:
    codec = PageCodec(layers=1, effort="fast")
    keys = [torch.randn(8, 1, 4, generator=torch.Generator().manual_seed(5)).bfloat16().to(device)]
    # Three tokens of four columns: 24 bytes a page.
    table = torch.tensor([[0, 1, 2], [7, 5, 3]])
    made = codec.encode_blocks(table, keys, keys, positions=[0, 3], **goal)
    back = [torch.zeros_like(keys[0])]
    codec.decode_blocks(made, table.flatten(), back, [torch.zeros_like(keys[0])]).check()
    error = (back[0] - keys[0])[table.flatten().to(device)].float().abs().max()
    assert error <= (0 if "lossless" in goal else 0.02)


@pytest.mark.parametrize("how", ["exact", "balanced", "bare"])
def test_other_codecs_on_a_device(how: str, device: torch.device, bases: Bases) -> None:
    made = {
        "exact": lambda: PageCodec(bases, effort="fast", exact=(2, 1)),
        "balanced": lambda: PageCodec(bases),
        "bare": lambda: PageCodec(layers=LAYERS, effort="fast"),
    }
    codec = made[how]()
    keys, values = pools("slots", device), pools("slots", device)
    for side, states in zip((keys, values), rows(TOKENS, 1), strict=True):
        for pool, state in zip(side, states, strict=True):
            pool[:TOKENS] = state.to(device).view(TOKENS, HEADS, COLUMNS)
    table = torch.arange(TOKENS).view(1, TOKENS)
    cap = len(codec.encode_blocks(table, keys, values, positions=[100], step=0.1)[0])
    for goal in ({"step": 0.1}, {"max_bytes": cap}):
        [blob] = codec.encode_blocks(table, keys, values, positions=[100], **goal)
        plain = page(codec, 1, **goal)
        assert len(blob) <= (cap if "max_bytes" in goal else 1.25 * len(plain) + 400)
        assert squared(codec, blob, 1) <= (2.5 if "max_bytes" in goal else 1.15) * squared(codec, plain, 1) + 1e-6
        if how == "exact":
            for found, states in zip(wanted(codec, blob), rows(TOKENS, 1), strict=True):
                for ours, theirs in zip(found, states, strict=True):
                    kept = [0, 1, TOKENS - 1]
                    assert torch.equal(ours.view(TOKENS, -1)[kept], theirs.view(TOKENS, -1)[kept])


def squared(codec: PageCodec, blob: bytes, seed: int) -> float:
    """The squared error of a page."""
    pairs = zip(wanted(codec, blob), rows(TOKENS, seed), strict=True)
    return sum(float((a.float() - b.float()).square().sum()) for found, states in pairs for a, b in zip(found, states, strict=True))


@pytest.mark.parametrize("bits", [2.0, 3.0, 5.0])
def test_caps_hold_on_a_device(bits: float, device: torch.device, bases: Bases) -> None:
    codec = PageCodec(bases, effort="fast")
    keys, values = pools("slots", device), pools("slots", device)
    seeds = (1, 2, 3)
    for number, seed in enumerate(seeds):
        for side, states in zip((keys, values), rows(TOKENS, seed), strict=True):
            for pool, state in zip(side, states, strict=True):
                pool[number * TOKENS : (number + 1) * TOKENS] = state.to(device).view(TOKENS, HEADS, COLUMNS)
    table, positions = torch.arange(3 * TOKENS).view(3, TOKENS), [100 * seed for seed in seeds]
    cap = int(bits * 2 * TOKENS * LAYERS * HEADS * COLUMNS / 8)
    made = codec.encode_blocks(table, keys, values, positions=positions, bits=bits)
    assert made == codec.encode_blocks(table, keys, values, positions=positions, max_bytes=cap)
    for seed, blob in zip(seeds, made, strict=True):
        assert 0.9 * cap < len(blob) <= cap
        # The whole basis has a longer header, which counts in pages as small as these.
        assert squared(codec, blob, seed) <= 2.5 * squared(codec, page(codec, seed, bits=bits), seed)
    # A page is the same whatever pages are made with it.
    assert codec.encode_blocks(table[1:2], keys, values, positions=positions[1:2], bits=bits) == made[1:2]


@pytest.mark.parametrize("goal", [{"bits": float("nan")}, {"bits": 0}, {"max_bytes": -1}, {"max_bytes": 1 << 70}], ids=str)
def test_caps_that_are_none(goal: dict[str, Any], device: torch.device, bases: Bases) -> None:
    keys, values = pools("slots", device), pools("slots", device)
    with pytest.raises(tenfold.Error):
        PageCodec(bases, effort="fast").encode_blocks(torch.arange(TOKENS).view(1, TOKENS), keys, values, positions=[0], **goal)


def test_a_cap_that_no_page_fits(device: torch.device, bases: Bases) -> None:
    keys, values = ([torch.randn_like(pool) for pool in pools("slots", device)] for _ in range(2))
    codec = PageCodec(bases, effort="fast")
    for cap in (1, 200):
        with pytest.raises(tenfold.LimitError):
            codec.encode_blocks(torch.arange(TOKENS).view(1, TOKENS), keys, values, positions=[0], max_bytes=cap)


def test_values_that_are_not_finite_are_the_hosts(device: torch.device, bases: Bases) -> None:
    codec = PageCodec(bases, effort="fast")
    keys, values = pools("slots", device), pools("slots", device)
    values[1][TOKENS + 3, 1, 2] = float("nan")
    table = torch.arange(2 * TOKENS).view(2, TOKENS)
    made = codec.encode_blocks(table, keys, values, positions=[0, TOKENS], step=0.02)
    back = wanted(codec, made[1])[1][1]
    assert torch.isnan(back[3, COLUMNS + 2]) and torch.isfinite(wanted(codec, made[0])[1][1]).all()


@pytest.mark.parametrize("exact", [(0, 0), (2, 1)], ids=str)
def test_pages_that_are_not_waited_for(exact: tuple[int, int], device: torch.device, bases: Bases) -> None:
    codec = PageCodec(bases, effort="fast", exact=exact)
    keys, values = ([torch.randn_like(pool) for pool in pools("slots", device)] for _ in range(2))
    table = torch.arange(3 * TOKENS).view(3, TOKENS)
    wait = codec.encode_blocks(table, keys, values, positions=[0, 5, 9], step=0.1)
    begun = codec.begin_blocks(table, keys, values, positions=[0, 5, 9], step=0.1)
    # Blocks are written again behind it.
    for pool in (*keys, *values) if device.type == "cuda" else ():
        pool.zero_()
    assert begun.pages() == wait and begun.done() and begun.pages() == wait
    # One that is for the CPU.
    values[1][TOKENS + 3, 1, 2] = float("nan")
    made = codec.begin_blocks(table, keys, values, positions=[0, 5, 9], step=0.1).pages()
    assert [page is None for page in made] == [False, True, False]
    with pytest.raises(tenfold.Error, match="CUDA|positions"):
        codec.begin_blocks(table, keys, values, positions=None, step=0.1)  # type: ignore[arg-type]
    assert codec.begin_blocks(table[:0], keys, values, positions=[], step=0.1).pages() == []
    with pytest.raises(tenfold.ArgumentError, match="at least one token"):
        codec.begin_blocks(table[:, :0], keys, values, positions=[0, 5, 9], step=0.1)
    for step in (0.0, float("nan")):
        with pytest.raises(tenfold.Error):
            codec.begin_blocks(table, keys, values, positions=[0, 5, 9], step=step)


def test_bad_arguments_of_pages_of_blocks(device: torch.device, bases: Bases) -> None:
    codec = PageCodec(bases, effort="fast")
    keys, values = pools("slots", device), pools("slots", device)
    table = torch.arange(TOKENS).view(1, TOKENS)
    for bad in (table[0], table + 80, table - 1):
        with pytest.raises((tenfold.ArgumentError, tenfold.DtypeError)):
            codec.encode_blocks(bad, keys, values, positions=[0], step=0.02)
    with pytest.raises(tenfold.ArgumentError, match="positions"):
        codec.encode_blocks(table, keys, values, positions=[0, 1], step=0.02)
    with pytest.raises(tenfold.ArgumentError, match="goal"):
        codec.encode_blocks(table, keys, values, positions=[0], nmse=0.1)
    assert codec.encode_blocks(table[:0], keys, values, positions=[], step=0.02) == []


def test_other_buffers_and_nothing_at_all(device: torch.device, bases: Bases) -> None:
    codec = PageCodec(bases, effort="fast")
    blob = page(codec, 1, step=0.1)
    several = [(pools("slots", device), pools("slots", device)) for _ in range(3)]
    for given, (keys, values) in zip((blob, memoryview(blob), bytearray(blob)), several, strict=True):
        codec.decode_blocks([given], range(TOKENS), keys, values).check()
    assert all(torch.equal(several[0][0][layer], other[0][layer]) for other in several[1:] for layer in range(LAYERS))
    keys, values = pools("slots", device), pools("slots", device)
    codec.decode_blocks([], [], keys, values).check()
    assert not any(pool.any() for pool in (*keys, *values))


def test_positions_are_not_made_up(device: torch.device, bases: Bases) -> None:
    codec = PageCodec(bases, effort="fast")
    keys, values = pools("slots", device), pools("slots", device)
    table = torch.arange(TOKENS).view(1, TOKENS)
    with pytest.raises(tenfold.ArgumentError, match="positions"):
        codec.encode_blocks(table, keys, values, step=0.1)
    with pytest.raises(tenfold.DtypeError, match="positions"):
        codec.encode_blocks(table, keys, values, positions=[0.5], step=0.1)
