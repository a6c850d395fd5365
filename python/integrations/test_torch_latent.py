"""Latent attention (MLA): one row a token and layer, whose rotary columns are coded as keys and whose others as values, in the pools themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tenfold
import torch
from safetensors.torch import save_file
from tenfold import _native
from tenfold.kv import Bases, PageCodec, latent
from test_torch_blocks import emulated
from test_torch_device import each

# As DeepSeek has them.
LAYERS, LATENT, ROTARY, TOKENS = 2, 512, 64, 16
ROPE = f"base=10000,head={ROTARY},pairing=neighbours"


@pytest.fixture(params=["emulator", "cuda"])
def device(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    yield from each(request.param, monkeypatch, emulated)


def rows(tokens: int, seed: int) -> list[torch.Tensor]:
    """Latent rows of each layer, which a few numbers a token make, and a little noise."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(12, LAYERS, LATENT + ROTARY, generator=torch.Generator().manual_seed(98))
    few = torch.randn(tokens, 12, generator=generator)
    noise = 0.05 * torch.randn(tokens, LAYERS, LATENT + ROTARY, generator=generator)
    both = (torch.einsum("tk,klc->tlc", few, mix) / 3 + noise).bfloat16()
    return [both[:, layer].contiguous() for layer in range(LAYERS)]


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Bases:
    folder = tmp_path_factory.mktemp("bases")
    keys, values = latent(rows(2500, 1), ROTARY)
    named = {f"layers.{layer}.k_before_rope": one.contiguous() for layer, one in enumerate(keys)}
    save_file(named | {f"layers.{layer}.v": one.contiguous() for layer, one in enumerate(values)}, folder / "captured.safetensors")
    path = folder / "model.basis"
    command = ["basis", "fit", folder / "captured.safetensors", "--out", path, "--group", "1", "--rope", ROPE, "--head-dim", str(ROTARY)]
    assert _native.main(["tenfold", *map(str, command)]) == 0
    return Bases.open(path)


KINDS = {
    "blocks": (4, 8, LATENT + ROTARY),
    "blocks of one head": (4, 8, 1, LATENT + ROTARY),
    "slots of one head": (32, 1, LATENT + ROTARY),
    "slots": (32, LATENT + ROTARY),
}


def pools(kind: str, dtype: torch.dtype, device: torch.device, states: list[torch.Tensor], slots: torch.Tensor) -> list[torch.Tensor]:
    made = []
    for state in states:
        pool = torch.zeros(32, LATENT + ROTARY, dtype=dtype)
        bits = pool.view(torch.uint8) if dtype.itemsize == 1 else pool
        bits[slots] = state.to(dtype).view(bits.dtype)
        made.append(pool.view(KINDS[kind]).to(device))
    return made


def held(pool: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    return pool.cpu().float().view(32, -1)[slots]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_latent_rows_of_pools(kind: str, dtype: torch.dtype, device: torch.device, bases: Bases) -> None:
    codec, states = PageCodec(bases, effort="fast"), rows(TOKENS, 2)
    slots = torch.randperm(32, generator=torch.Generator().manual_seed(3))[:TOKENS]
    given = pools(kind, dtype, device, states, slots)
    keys, values = latent(given, ROTARY)
    assert all(view.data_ptr() - pool.data_ptr() == LATENT * dtype.itemsize for view, pool in zip(keys, given, strict=True))
    (made,) = codec.encode_blocks(slots.view(1, -1), keys, values, positions=[7000], step=0.1)
    of_host = [[side.flatten(1).to(dtype) for side in sides] for sides in latent(states, ROTARY)]
    plain = codec.encode(*([side.contiguous() for side in sides] for sides in of_host), position=7000, step=0.1)
    assert made != plain and len(made) < 1.25 * len(plain) + 400
    assert tuple(codec._native.describe(made, 1)[1:]) == (ROTARY, LATENT)
    for page in (made, plain):
        empty = pools(kind, dtype, device, [torch.zeros_like(state) for state in states], slots)
        codec.decode_blocks([page], slots, *latent(empty, ROTARY)).check()
        cpu = [[torch.empty(TOKENS, columns, dtype=dtype) for _ in range(LAYERS)] for columns in (ROTARY, LATENT)]
        codec.decode_many([page], [(cpu[0], cpu[1])])
        for layer, pool in enumerate(empty):
            have = held(pool, slots)
            for part, want in ((have[:, LATENT:], cpu[0][layer].float()), (have[:, :LATENT], cpu[1][layer].float())):
                near = want.abs().amax(1, keepdim=True) / 64 + (2**-9 + want.abs() / 4 if dtype.itemsize == 1 else 0)
                assert ((part - want).abs() <= near).all()
            assert (have - states[layer].float()).square().mean() < 0.05 * states[layer].float().square().mean()
            rest = torch.tensor(sorted(set(range(32)) - set(slots.tolist())))
            assert not held(pool, rest).any()


def test_staged_latent_rows(device: torch.device, bases: Bases) -> None:
    codec, states, slots = PageCodec(bases, effort="fast"), rows(TOKENS, 4), torch.arange(TOKENS)
    given = pools("blocks", torch.bfloat16, device, states, slots)
    pages = codec.encode_blocks(slots.view(1, -1), *latent(given), positions=[0], bits=3.0)
    assert len(pages[0]) <= 3 * TOKENS * LAYERS * (LATENT + ROTARY) // 8
    staged = codec.stage(pages, slots, device)
    empty = [torch.zeros_like(pool) for pool in given]
    staged.decode(*latent(empty)).check()
    assert all((held(a, slots) - held(b, slots)).square().mean() < 0.1 for a, b in zip(given, empty, strict=True))


def test_latent_rows_without_bases_or_a_device() -> None:
    """On the CPU, with positions undone and without."""
    slots, states = torch.arange(TOKENS), rows(TOKENS, 5)
    given = pools("blocks", torch.bfloat16, torch.device("cpu"), states, slots)
    for rope in (None, {"head": ROTARY, "base": 1e4, "pairing": "neighbours"}):
        codec = PageCodec(layers=LAYERS, rope=rope)
        for goal in ({"step": 0.02}, {"lossless": True}):
            pages = codec.encode_blocks(slots.view(1, -1), *latent(given), positions=[64], **goal)
            empty = [torch.zeros_like(pool) for pool in given]
            codec.decode_blocks(pages, slots, *latent(empty)).check()
            for a, b in zip(given, empty, strict=True):
                assert torch.equal(a, b) if "lossless" in goal else torch.allclose(a, b, atol=0.1)


@pytest.mark.parametrize("rotary", [0, -1, 576, 600])
def test_columns_that_are_none(rotary: int) -> None:
    with pytest.raises(tenfold.ArgumentError, match="576 columns"):
        latent([torch.zeros(4, 8, 576)], rotary)


@pytest.mark.parametrize("shape", [(576,), (4, 8, 2, 576), (1, 4, 8, 1, 576)], ids=str)
def test_shapes_of_something_else(shape: tuple[int, ...]) -> None:
    with pytest.raises(tenfold.ArgumentError, match="a pool of latent rows"):
        latent([torch.zeros(shape)])
