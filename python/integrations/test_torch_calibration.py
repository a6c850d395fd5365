"""A calibration: what is watched, what the file holds, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import tenfold
from tenfold.torch import Calibration


def net() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


@pytest.mark.filterwarnings("ignore:.*saw fewer")
def test_without_gradients_all_tokens_count_the_same():
    model, first, second = net(), torch.randn(3, 50, 8), torch.randn(70, 8)
    model(torch.full((2, 8), 1e6))
    with Calibration(model) as seen, torch.no_grad():
        model(first)
        model(second)
    model(torch.full((2, 8), 1e6))
    rows = torch.cat([first.reshape(-1, 8), second]).double()
    assert np.allclose(seen.inputs("0.weight"), rows.T @ rows / len(rows), rtol=1e-5, atol=1e-6)
    assert list(seen) == ["0.weight", "2.weight"] and seen.outputs("0.weight") is None
    assert seen.layers["0.weight"].tokens == 220


@pytest.mark.filterwarnings("ignore:.*saw fewer")
def test_a_loss_that_is_never_differentiated_changes_nothing():
    model, rows = net(), torch.randn(120, 8)
    with Calibration(model) as seen:
        model(rows)
    assert np.allclose(seen.inputs("0.weight"), rows.T @ rows / len(rows), rtol=1e-5, atol=1e-6)
    assert list(seen) == ["0.weight", "2.weight"] and seen.outputs("0.weight") is None


def test_a_layer_without_a_part_in_the_loss_is_left_out(tmp_path: Path):
    model, pooler, x = net(), torch.nn.Linear(8, 8), torch.randn(200, 8)
    both = torch.nn.ModuleList([model, pooler])
    with pytest.warns(UserWarning, match="1 of 3 layers had no part in the loss and are left out: 1.weight"):
        with Calibration(both) as seen:
            pooler(x)
            model(x).square().sum().backward()
    # A matrix of zeros would say that its errors cost nothing.
    assert list(seen) == ["0.0.weight", "0.2.weight"] and "1.weight" not in seen
    seen.save(tmp_path / "c.safetensors")
    assert len(Calibration.open(tmp_path / "c.safetensors")) == 2


def test_gradients_weigh_tokens_and_outputs():
    model, batches = net(), [torch.randn(150, 8), 3 * torch.randn(90, 8)]
    with Calibration(model) as seen:
        for batch in batches:
            model(batch).pow(3).sum().backward()
    rows, gradients = [], []
    for batch in batches:
        hidden = model[1](model[0](batch)).detach()
        out = (hidden @ model[2].weight.T + model[2].bias).detach()
        rows.append(hidden.double())
        gradients.append(3 * out.double().square())
    x, g = torch.cat(rows), torch.cat(gradients)
    weights = g.square().sum(1)
    assert np.allclose(seen.inputs("2.weight"), (x * weights[:, None]).T @ x / weights.sum(), rtol=1e-4, atol=1e-6)
    assert np.allclose(seen.outputs("2.weight"), g.square().mean(0), rtol=1e-4)


class Attention(torch.nn.Module):
    """Layers that share an input, and one that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.o = (torch.nn.Linear(32, 32, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.o(self.q(x) * self.k(x).tanh())


def test_layers_with_the_same_input_share_a_matrix(tmp_path: Path):
    model, x = Attention(), torch.randn(400, 32)
    with Calibration(model) as seen:
        model(x).square().sum().backward()
    assert seen.layers["q.weight"].matrix == seen.layers["k.weight"].matrix != seen.layers["o.weight"].matrix
    # Both have an equal say in how much a token counts.
    weights = torch.zeros(400)
    for name in ("q", "k"):
        (gradient,) = _output_gradients(model, name, x)
        weights += gradient.square().sum(1) / gradient.square().sum(1).mean()
    expected = (x * weights[:, None]).T @ x / weights.sum()
    assert np.allclose(seen.inputs("k.weight"), expected, rtol=1e-3, atol=1e-4)
    seen.save(tmp_path / "c.safetensors")
    with tenfold.open(tmp_path / "c.safetensors") as file:
        assert sorted(file) == ["k.weight.outputs", "o.weight.inputs", "o.weight.outputs", "q.weight.inputs", "q.weight.outputs"]


def _output_gradients(model: torch.nn.Module, name: str, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    kept = []
    handle = getattr(model, name).register_forward_hook(lambda _, __, out: kept.append(out))
    loss = model(x).square().sum()
    handle.remove()
    return torch.autograd.grad(loss, kept)


def test_a_file_holds_all_of_it(tmp_path: Path):
    model = net()
    with Calibration(model) as seen:
        model(torch.randn(200, 8)).square().sum().backward()
    seen.save(tmp_path / "c.safetensors")
    again = Calibration.open(tmp_path / "c.safetensors")
    assert again.layers == seen.layers and again.notes == seen.notes
    for name in seen:
        assert np.array_equal(again.inputs(name), seen.inputs(name))
        assert np.array_equal(again.outputs(name), seen.outputs(name))


@pytest.mark.parametrize(("width", "blocks"), [(8, 2), (6, 3), (15, 2)])
def test_a_matrix_above_the_budget_becomes_blocks(tmp_path: Path, width: int, blocks: int):
    model, x = net(), torch.randn(300, 8)
    with torch.no_grad():
        with Calibration(model) as whole:
            model(x)
        with Calibration(model, max_width=width) as parts:
            model(x)
    size = -(-16 // blocks)
    found, expected = parts.inputs("2.weight"), whole.inputs("2.weight")
    inside = np.arange(16)[:, None] // size == np.arange(16)[None] // size
    assert np.allclose(found[inside], expected[inside], rtol=1e-5) and not found[~inside].any()
    parts.save(tmp_path / "c.safetensors")
    with tenfold.open(tmp_path / "c.safetensors") as file:
        assert file.info("2.weight.inputs").shape == (blocks, size, size)
    assert np.array_equal(Calibration.open(tmp_path / "c.safetensors").inputs("2.weight"), found)


def test_few_tokens_are_said_and_damped():
    model = net()
    with pytest.warns(UserWarning, match="fewer than 4 tokens a column .0.weight saw 20 tokens for 8 columns"):
        with Calibration(model) as seen, torch.no_grad():
            model(torch.randn(20, 8))
    with Calibration(model) as more, torch.no_grad():
        model(torch.randn(4000, 8))
    assert seen.notes and not more.notes
    assert seen.layers["2.weight"].damping > 4 * more.layers["2.weight"].damping


class Experts(torch.nn.Module):
    """Two layers with the same input an expert; tokens are sent by their first number."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = torch.nn.ModuleList(torch.nn.ModuleDict({"w1": torch.nn.Linear(16, 16), "w3": torch.nn.Linear(16, 16)}) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            chosen = x[:, 0].floor().clamp(0, 3) == number
            if chosen.any():
                given = x[chosen]
                out[chosen] = expert["w1"](given) * expert["w3"](given)
        return out


def test_experts_with_few_tokens_lean_on_the_others():
    model, x = Experts(), torch.randn(1000, 16)
    x[:, 0] = torch.linspace(0, 2, 1000) ** 0.999
    x[-5:, 0] = 2.5
    with pytest.warns(UserWarning, match="2 of 4 experts saw too few tokens"):
        with Calibration(model) as seen:
            model(x).sum().backward()
    # Nobody chose the last one; five tokens chose the one before.
    assert seen.layers["experts.3.w3.weight"].tokens == 0 and seen.layers["experts.2.w1.weight"].tokens == 5
    assert len({seen.layers[f"experts.3.w{one}.weight"].matrix for one in (1, 3)}) == 1
    mean = seen.inputs("experts.3.w1.weight")
    assert np.linalg.matrix_rank(seen.inputs("experts.2.w3.weight"), tol=1e-3) == 16
    assert np.abs(mean - (x.T @ x / len(x)).numpy()).max() < 1.5
    # By the tokens of the text, not by its own.
    assert seen.outputs("experts.2.w1.weight").sum() < 0.1 * seen.outputs("experts.0.w1.weight").sum()
    assert seen.outputs("experts.3.w1.weight") is not None


def test_mistakes_are_named(tmp_path: Path):
    with pytest.raises(tenfold.ArgumentError, match="no linear layers"):
        Calibration(torch.nn.ReLU())
    with pytest.raises(tenfold.ArgumentError, match="nothing has run"):
        Calibration(net()).inputs("0.weight")
    with pytest.raises(tenfold.DataError, match="inputs of 0.weight are not all finite"):
        with Calibration(net()) as seen, torch.no_grad():
            seen._watched["0.weight"](torch.full((1, 8), torch.nan))
    model = net()
    with Calibration(model) as seen, torch.no_grad():
        model(torch.randn(200, 8))
    with pytest.raises(tenfold.ArgumentError, match="knows no weight 'x'"):
        seen.inputs("x")
    seen.check(model.state_dict())
    with pytest.raises(tenfold.ArgumentError, match="another model: it has no"):
        seen.check({"other": torch.ones(1)})
    with pytest.raises(tenfold.ArgumentError, match="another model: '0.weight' has 16 × 8"):
        seen.check({"0.weight": torch.ones(8, 16)})
    with pytest.raises(tenfold.ArgumentError, match="another model: the norm of '2.weight'"):
        seen.check({"2.weight": 1.5 * model[2].weight})
    seen.save(tmp_path / "c.safetensors")
    tenfold.save({"x": torch.ones(3)}, tmp_path / "other.safetensors")
    with pytest.raises(tenfold.DataError, match="not a calibration"):
        Calibration.open(tmp_path / "other.safetensors")
    whole = (tmp_path / "c.safetensors").read_bytes()
    for length in range(0, len(whole), 37):
        (tmp_path / "cut.safetensors").write_bytes(whole[:length])
        with pytest.raises(tenfold.Error):
            Calibration.open(tmp_path / "cut.safetensors")
