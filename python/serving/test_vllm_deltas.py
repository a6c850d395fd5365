"""Weights of a running engine of vLLM, brought up to date by deltas, on a tiny model with made-up weights."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("vllm")

from vllm_engines import Engine, engine, model_folder, prompt  # noqa: I001 - sets vLLM up
import tenfold
import torch
from safetensors.torch import load_file, save_file
from tenfold import delta

pytestmark = pytest.mark.filterwarnings("default")

WORKER = "tenfold.serving.vllm.DeltaWorker"


def change(folder: Path, path: Path, seed: int) -> dict[str, torch.Tensor]:
    """Saves a model whose weights have moved as by training; returns its tensors."""
    torch.manual_seed(seed)
    state = load_file(folder / "model.safetensors")
    for name, tensor in state.items():
        moved = torch.where(torch.rand(tensor.shape) < 0.3, tensor * 1.6 + 0.02, tensor)
        state[name] = moved.to(tensor.dtype)
    path.mkdir()
    for file in folder.iterdir():
        if file.suffix == ".json":
            (path / file.name).write_bytes(file.read_bytes())
    save_file(state, path / "model.safetensors", {"format": "pt"})
    return state


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("models")
    made = [model_folder(root / "0")]
    for number in (1, 2):
        change(made[-1], root / str(number), number)
        made.append(root / str(number))
    return made


@pytest.fixture(scope="module")
def answers(folders: list[Path]) -> list[list[list[int]]]:
    """What engines say that start with each version."""
    said = []
    for folder in folders:
        with engine(folder) as one:
            said.append(one.answers([prompt(40), prompt(70, seed=1)]))
    return said


def versions(folders: list[Path]) -> list[dict[str, torch.Tensor]]:
    return [load_file(folder / "model.safetensors") for folder in folders]


def test_answers_are_those_of_an_engine_that_starts_with_the_weights(
    folders: list[Path], answers: list[list[list[int]]]
) -> None:
    assert answers[0] != answers[1] != answers[2]
    states = versions(folders)
    first, second = (delta.make(states[n], states[n + 1]) for n in (0, 1))
    asked = [prompt(40), prompt(70, seed=1)]
    with engine(folders[0], worker_extension_cls=WORKER) as one:
        assert one.llm.collective_rpc("tenfold_open") == [delta.fingerprint(states[0])]
        assert one.answers(asked) == answers[0]
        # One that comes too early changes nothing.
        with pytest.raises(tenfold.WrongBaseError):
            one.llm.collective_rpc("tenfold_apply", args=(second,))
        assert fresh(one) == answers[0]
        assert one.llm.collective_rpc("tenfold_version") == [delta.fingerprint(states[0])]
        for number, blob in enumerate((first, second), 1):
            assert one.llm.collective_rpc("tenfold_apply", args=(blob,)) == [delta.fingerprint(states[number])]
            assert fresh(one) == answers[number]
        # One that comes twice is noticed and does no harm.
        one.llm.collective_rpc("tenfold_apply", args=(second,))
        assert fresh(one) == answers[2]
        # An engine comes back to a version by its folder.
        with pytest.raises(tenfold.WrongBaseError):
            one.llm.collective_rpc("tenfold_apply", args=(first,))
        assert one.llm.collective_rpc("tenfold_open", args=(str(folders[0]),)) == [delta.fingerprint(states[0])]
        assert fresh(one) == answers[0]
        one.llm.collective_rpc("tenfold_apply", args=(first,))
        assert fresh(one) == answers[1]


def fresh(one: Engine) -> list[list[int]]:
    """What an engine says once it has forgotten keys and values of the old weights."""
    assert one.llm.reset_prefix_cache()
    return one.answers([prompt(40), prompt(70, seed=1)])


def test_it_must_be_opened_first(folders: list[Path]) -> None:
    with (
        engine(folders[0], worker_extension_cls=WORKER) as one,
        pytest.raises(tenfold.ArgumentError, match="tenfold_open"),
    ):
        one.llm.collective_rpc("tenfold_apply", args=(b"",))
