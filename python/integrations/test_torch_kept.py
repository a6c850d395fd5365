"""Any module computes with compressed weights what it computes with the decoded ones."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
import torch
from torch import nn

import tenfold
import tenfold.torch
from tenfold import ArgumentError, DataError, DtypeError, UnsupportedError
from tenfold.torch.kept._compress import kept

compress_module, decompress_module = tenfold.torch.compress_module, tenfold.torch.decompress_module


class Block(nn.Module):
    """Attention that reads the weights of a part without calling it, as torch's own does."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(size, 2, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.feed(x)


class Net(nn.Module):
    """Shaped like a diffusion transformer: convolutions, a list of blocks, weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(4, 64, 5, padding=2)
        self.position = nn.Parameter(torch.randn(64, 64))
        self.blocks = nn.ModuleList(Block(64) for _ in range(3))
        self.out = nn.ModuleDict({"norm": nn.LayerNorm(64), "linear": nn.Linear(64, 64)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            x = block(x)
        return self.out["linear"](self.out["norm"](x))


@pytest.fixture
def net() -> Net:
    return Net().eval()


def images(count: int = 2) -> torch.Tensor:
    return torch.randn(count, 4, 8, 8)


@torch.no_grad()
def run(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = net(x)
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("goal", [{"lossless": True}, {"bits": 4}, {"bits": 6, "prepare": "hadamard"}], ids=str)
@pytest.mark.parametrize("how", [{}, {"prefetch": False, "buffers": 1}, {"buffers": 3}], ids=str)
def test_it_computes_what_the_decoded_module_computes(
    net: Net, dtype: torch.dtype, goal: dict[str, Any], how: dict[str, Any]
) -> None:
    net.to(dtype)
    original = copy.deepcopy(net)
    assert compress_module(net, **goal, **how) is net
    x = images().to(dtype)
    outs = [run(net, x) for _ in range(3)]
    assert decompress_module(net) is net
    assert all(torch.equal(out, run(net, x)) for out in outs)
    if "lossless" in goal:
        assert torch.equal(outs[0], run(original, x))
    else:
        assert not torch.equal(outs[0], run(original, x))
        assert (outs[0] - run(original, x)).float().norm() < 0.5 * run(original, x).float().norm()
    assert {name: p.requires_grad for name, p in net.named_parameters()} == dict.fromkeys(dict(net.named_parameters()), True)


def test_large_weights_become_blobs_and_layers_are_decoded_as_one(net: Net) -> None:
    before = {name: p for name, p in net.named_parameters()}
    compress_module(net, bits=4)
    names = [held.name for held in kept(net).held]
    assert sorted(names) == sorted(
        name for name, p in before.items() if p.ndim >= 2 and p.numel() >= 4096 and name != "position"
    )
    assert [stage.name for stage in kept(net).stages] == ["patches", "blocks.0", "blocks.1", "blocks.2", "out.linear"]
    for name, parameter in net.named_parameters():
        assert (parameter.dtype == torch.uint8) == (name in names)
        assert name in names or parameter is before[name]
    state = net.state_dict()
    assert list(state) == list(before) and all(state[name].dtype == torch.uint8 for name in names)
    weights = sum(before[name].nbytes for name in names)
    assert 0.12 * weights < sum(state[name].nbytes for name in names) < 0.14 * weights
    # Two buffers of the size of the largest layer.
    (ring,) = kept(net).rings
    assert ring.nbytes == 2 * max(stage.nbytes for stage in kept(net).stages)
    run(net, images())
    assert all(held.attribute not in held.module.__dict__ for held in kept(net).held)


def test_patterns_choose_weights_and_layers(net: Net) -> None:
    compress_module(
        net, bits=4, include=["*.norm.weight"], exclude=["patches.*", "blocks.0.*"], layers=["blocks.*.feed", "blocks.?.attention"]
    )
    names = {held.name for held in kept(net).held}
    assert "out.norm.weight" in names and not any(name.startswith(("patches", "blocks.0")) for name in names)
    stages = [stage.name for stage in kept(net).stages]
    assert stages == ["blocks.1.attention", "blocks.1.feed", "blocks.2.attention", "blocks.2.feed", "out.norm", "out.linear"]
    x = images()
    out = run(net, x)
    assert torch.equal(out, run(decompress_module(net), x))


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(128, 64),
        nn.Sequential(nn.Linear(128, 64), nn.Sequential(nn.ReLU(), nn.Linear(64, 64))),
        nn.Sequential(nn.Sequential(nn.Linear(128, 128), nn.Linear(128, 128)), nn.Linear(128, 64, bias=False)),
    ],
    ids=["one", "nested", "more nested"],
)
def test_modules_without_lists(module: nn.Module) -> None:
    x = torch.randn(3, 128)
    expected = run(module, x)
    compress_module(module, lossless=True)
    assert torch.equal(run(module, x), expected) and torch.equal(run(module, x), expected)
    assert len(kept(module).stages) == sum(isinstance(one, nn.Linear) for one in module.modules())


def test_tied_weights_stay_tied() -> None:
    table, out = nn.Embedding(200, 64), nn.Linear(64, 200, bias=False)
    out.weight = table.weight
    net = nn.Sequential(table, nn.Linear(64, 64), out)
    ids = torch.tensor([[1, 5, 7]])
    expected = run(net, ids)
    compress_module(net, lossless=True)
    assert net[0].weight is net[2].weight and torch.equal(run(net, ids), expected)
    decompress_module(net)
    assert net[0].weight is net[2].weight and torch.equal(run(net, ids), expected)


def test_the_next_layer_is_decoded_ahead_once_the_order_is_known(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    class Backwards(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.patches(x).flatten(2).transpose(1, 2) + self.position
            for block in reversed(self.blocks):
                x = block(x)
            return self.out["linear"](x)

    net = Backwards().eval()
    compress_module(net, bits=4)
    run(net, images())
    started: list[str] = []
    (ring,) = kept(net).rings
    start = ring._start

    def noted(engine: Any, index: int) -> Any:
        started.append(ring._stages[index].name)
        return start(engine, index)

    monkeypatch.setattr(ring, "_start", noted)
    run(net, images())
    # The first one was decoded at the end of the first pass.
    assert [name for name in started if name != "patches"] == ["blocks.2", "blocks.1", "blocks.0", "out.linear"]


def test_damage_is_reported_with_the_name(net: Net) -> None:
    compress_module(net, bits=4)
    run(net, images())
    net.blocks[1].feed[0]._parameters["weight"].data[-9] ^= 0x40
    with pytest.raises(DataError):
        run(net, images())
    with pytest.raises(DataError, match=r"blocks\.1\.feed\.0\.weight"):
        kept(net).check()
    net.blocks[1].feed[0]._parameters["weight"].data[-9] ^= 0x40
    run(net, images())


def test_state_dicts_of_blobs_can_be_loaded(net: Net) -> None:
    other = Net().eval()
    compress_module(net, bits=4)
    compress_module(other, bits=3)
    x = images()
    expected = run(net, x)
    assert not torch.equal(run(other, x), expected)
    other.load_state_dict(net.state_dict())
    assert torch.equal(run(other, x), expected)
    with pytest.raises(ArgumentError, match="decompress_module"):
        other.load_state_dict(Net().state_dict())
    wrong = net.state_dict() | {"out.linear.weight": net.state_dict()["patches.weight"]}
    with pytest.raises(DataError, match="another module"):
        other.load_state_dict(wrong)
    decompress_module(other)
    other.load_state_dict(Net().state_dict())


def test_progress_is_told(net: Net) -> None:
    told: list[tuple[int, int]] = []
    compress_module(net, bits=4, progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == told[-1][1] == sum(held.nbytes for held in kept(net).held)


def test_what_cannot_work_is_refused(net: Net) -> None:
    for wrong, error, text in [
        ({"include": ["nothing.*"]}, ArgumentError, "nothing in the module matches"),
        ({"exclude": ["blocks"]}, ArgumentError, "nothing in the module matches"),
        ({"layers": ["blcks.*"]}, ArgumentError, "nothing in the module matches"),
        ({"include": "position"}, DtypeError, "list of patterns"),
        ({"include": ["position"]}, ArgumentError, "nobody knows when"),
        ({"exclude": ["*"]}, ArgumentError, "no weights"),
        ({"buffers": 1}, ArgumentError, "prefetch=False"),
        ({"buffers": 0}, ArgumentError, "1 to 16"),
        ({"bits": -1}, ArgumentError, "bits"),
        ({"importance": [1]}, ArgumentError, "importance"),
        ({"colour": 1}, TypeError, "colour"),
    ]:
        with pytest.raises(error, match=text):
            compress_module(net, **wrong)
    assert all(p.dtype == torch.float32 for p in net.parameters())
    with pytest.raises(DtypeError, match="Module"):
        compress_module(torch.ones(3))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="meta"):
        compress_module(nn.Linear(64, 64, device="meta"))
    with pytest.raises(ArgumentError, match="dequantize"):
        decompress_module(net)
    compress_module(net, bits=4)
    with pytest.raises(ArgumentError, match="already"):
        compress_module(net, bits=4)
    with pytest.raises(ArgumentError, match="already"):
        compress_module(nn.Sequential(net))
    with pytest.raises(UnsupportedError, match="copied"):
        copy.deepcopy(net)
    with pytest.raises(ArgumentError, match="no_grad"):
        net(images())


def test_a_failure_leaves_the_module_as_it_was(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    x = images()
    expected = run(net, x)

    def stop(done: int, total: int) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compress_module(net, lossless=True, progress=stop)
    assert torch.equal(run(net, x), expected)
    assert all(p.requires_grad and p.dtype == torch.float32 for p in net.parameters())
    compress_module(net, lossless=True)
    assert torch.equal(run(net, x), expected)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_offloading_needs_a_device(net: Net) -> None:
    x = images()
    expected = run(net, x)
    with pytest.raises(ArgumentError, match="no CUDA device"):
        compress_module(net, lossless=True, offload=True)
    assert torch.equal(run(net, x), expected)


def test_one_thread_at_a_time(net: Net) -> None:
    compress_module(net, bits=4)
    failures: list[BaseException] = []

    def other() -> None:
        try:
            run(net, images())
        except ArgumentError as error:
            failures.append(error)

    def before(*_: Any) -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    hook = net.blocks[1].feed[0].register_forward_pre_hook(before)
    run(net, images())
    hook.remove()
    assert len(failures) == 1 and "one thread at a time" in str(failures[0])
    run(net, images())
