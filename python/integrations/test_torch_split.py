"""A model cut in two: channels between ranks, and the example that runs on them; real processes, gloo on loopback."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import tenfold
import torch
from ranks import Ranks
from tenfold.torch import distributed as td
from tenfold.torch.distributed._boundary import packed
from tenfold.torch.distributed._bucket import BucketCodec
from transformers import LlamaConfig, LlamaForCausalLM

EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "split_model.py"
WIDTH, VOCABULARY = 64, 97
CASE = {"coder": "raw", "bits": 3.5, "link": None, "effort": "fast", "chunk": 64, "tokens": 6}


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    made = Ranks(2)
    yield made
    made.close()


def _example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("split_model", EXAMPLE)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


def _model() -> Any:
    torch.manual_seed(0)
    size = {"hidden_size": WIDTH, "intermediate_size": 128, "num_hidden_layers": 5, "num_attention_heads": 2, "num_key_value_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(**size, vocab_size=VOCABULARY, max_position_embeddings=256)).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "norm" not in name:
                value.mul_(6)
    return model


def _ids(batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(batch))


def _unsplit(ids: torch.Tensor, tokens: int) -> list[list[int]]:
    model, start = _model(), ids.shape[1]
    with torch.inference_mode():
        for _ in range(tokens):
            ids = torch.cat([ids, model(ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
    found: list[list[int]] = ids[:, start:].tolist()
    return found


def _split(rank: int, how: dict[str, Any], shapes: list[tuple[int, int]], at: int = 2) -> list[Any]:
    example = _example()
    with torch.inference_mode():
        ends, half = example.Ends(rank, 30.0, 1), example.Half(_model(), rank, at)
        if rank == example.BACK:
            example.back(half, ends)
            return []
        rows = [example.front(half, ends, CASE | how, _ids(*shape)) for shape in shapes]
        ends.tell(None)
    return rows


@pytest.mark.parametrize("at", [1, 2, 4])
def test_raw_makes_the_tokens_of_the_whole_model(ranks: Ranks, at: int) -> None:
    shapes = [(1, 40), (8, 24), (3, 7)]
    rows, _ = ranks(_split, {"chunk": 48}, shapes, at)
    for row, shape in zip(rows, shapes, strict=True):
        assert row["made"] == _unsplit(_ids(*shape), CASE["tokens"])
        assert row["prompt_sent"] == row["prompt_raw"] == 4 * shape[0] * shape[1] * WIDTH
        assert row["steps_sent"] == 5 * 4 * shape[0] * WIDTH


def _loss(ranks: Ranks, **how: Any) -> Any:
    return ranks(_split, {"tokens": 0, "chunk": 256, **how}, [(2, 128)])[0][0]


def test_compression_changes_the_loss_by_as_much_as_it_rounds(ranks: Ranks) -> None:
    ids = _ids(2, 128)
    with torch.inference_mode():
        logits = _model()(ids).logits[:, :-1].flatten(0, 1)
    wanted = float(torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten(), reduction="sum"))
    assert _loss(ranks)["loss"] == pytest.approx(wanted, rel=1e-4)
    errors = {bits: abs(_loss(ranks, coder="tenfold", bits=bits)["loss"] / wanted - 1) for bits in (3.5, 12.0)}
    assert 0 < errors[12.0] < 1e-3 and 0 < errors[3.5] < 0.1
    assert 0 < abs(_loss(ranks, coder="fp8")["loss"] / wanted - 1) < 0.02
    coded = _loss(ranks, coder="tenfold")
    assert coded["prompt_sent"] == pytest.approx(2 * 128 * WIDTH * 3.5 / 8, rel=0.01)


def test_a_batch_of_one_goes_raw_and_says_so(ranks: Ranks) -> None:
    (one, many), _ = ranks(_split, {"coder": "tenfold"}, [(1, 64), (64, 4)])
    assert one["made"] == _unsplit(_ids(1, 64), 6) or one["prompt_coder"] == "tenfold"
    assert one["steps_coder"] == "raw" and "one packet" in one["steps_why"] and one["steps_sent"] == one["steps_raw"]
    assert many["steps_coder"] == "tenfold" and many["steps_sent"] < many["steps_raw"] / 8


def _sending(rank: int, how: dict[str, Any]) -> Any:
    channel = td.Channel(0, 1, threads=1, **how)
    shapes = [(1, 1, 576), (2, 1, 576), (8, 1, 576), (64, 1, 576), (1, 512, 576)]
    return [channel.sending(shape, torch.bfloat16) for shape in shapes], channel.link


@pytest.mark.parametrize("coder", ["fp8", "tenfold", "auto"])
def test_a_token_of_batch_one_goes_raw_whatever_is_asked(ranks: Ranks, coder: str) -> None:
    (here, _), (there, _) = ranks(_sending, {"coder": coder, "link": "1Mb/s"})
    assert here == there
    assert [how.coder for how in here][3:] == [coder if coder != "auto" else "tenfold"] * 2
    token = here[0]
    assert (token.coder, token.reason, token.nbytes) == ("raw", "one-packet", 1152)
    # Two tokens are more than a packet, and too little for a slot.
    assert here[1].coder == {"fp8": "fp8", "tenfold": "raw", "auto": "fp8"}[coder]
    assert coder != "tenfold" or here[1].reason == "too-small"


def test_auto_takes_what_is_faster(ranks: Ranks) -> None:
    fast = ranks(_sending, {"coder": "auto", "link": "10Tb/s"})
    assert fast[0] == fast[1]
    assert {how.coder for how in fast[0][0]} == {"raw"} and fast[0][0][4].reason == "not-faster"
    # Measured: both ends reckon with the same link, faster than any wire.
    measured = ranks(_sending, {"coder": "auto"})
    assert measured[0] == measured[1]
    bandwidth, latency = measured[0][1]
    assert bandwidth > 1e7 and 0 < latency < 0.1


def _sent(rank: int, how: dict[str, Any], kinds: list[str]) -> Any:
    channel, generator = td.Channel(0, 1, threads=1, **how), torch.Generator().manual_seed(1)
    made = []
    for kind in kinds:
        tensor = torch.randn(16, 3, 576, generator=generator) * torch.logspace(-3, 2, 16)[:, None, None]
        if kind == "zeros":
            tensor[2:5] = 0
        elif kind == "nan":
            tensor[3, 1, 7] = torch.nan
        elif kind == "bfloat16":
            tensor = tensor.bfloat16()
        elif kind == "integers":
            tensor = tensor.long()
        if rank == 0:
            channel.send(tensor)
            made.append((tensor, tensor))
        else:
            made.append((tensor, channel.receive(tensor.shape, tensor.dtype)))
    channel.flush()
    return made, channel.sent, channel.raw


@pytest.mark.parametrize(("coder", "bound"), [("raw", 0.0), ("fp8", 2e-3), ("tenfold", 2e-2)])
def test_each_token_arrives_about_as_exact_as_the_others(ranks: Ranks, coder: str, bound: float) -> None:
    (_, sent, raw), (made, none, _) = ranks(_sent, {"coder": coder}, ["plain", "zeros", "bfloat16"])
    assert none == 0 < sent <= raw
    for wanted, got in made:
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        wanted, got = wanted.float(), got.float()
        error = (got - wanted).square().mean((1, 2)) / wanted.square().mean((1, 2)).clamp(min=1e-20)
        # Groups of 256 cross the borders of tokens, so a token beside a much larger one is rounded with it.
        assert float(error.median()) <= bound
        assert float((got - wanted).square().sum() / wanted.square().sum()) <= bound


@pytest.mark.parametrize("coder", ["fp8", "tenfold"])
def test_values_that_are_not_finite_come_through(ranks: Ranks, coder: str) -> None:
    _, (made, _, _) = ranks(_sent, {"coder": coder}, ["nan", "integers"])
    wanted, got = made[0]
    assert bool(got[3, 1, 7].isnan()) and bool(got[0].isfinite().all())
    assert torch.equal(*made[1])


def _made(rank: int, each: list[dict[str, Any]]) -> str:
    try:
        td.Channel(**{"source": 0, "target": 1, "threads": 1, **each[rank]})
    except tenfold.ArgumentError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("options", "named"),
    [({"coder": "zip"}, "coder"), ({"bits": 0}, "bits"), ({"target": 0}, "two ranks"), ({"target": 2}, "two ranks"),
     ({"timeout": 0}, "timeout"), ({"link": "fast"}, "bandwidth"), ({"effort": "mighty"}, "mighty")],
)  # fmt: skip
def test_options_that_cannot_work_are_refused(ranks: Ranks, options: dict[str, Any], named: str) -> None:
    assert all(named in message for message in ranks(_made, [options, options]))


def test_options_that_differ_are_refused_on_both(ranks: Ranks) -> None:
    messages = ranks(_made, [{"bits": 3.5}, {"bits": 2.5}])
    assert all("bits 2.5 there, 3.5 on rank 0" in message for message in messages)


def _abandoned(rank: int, how: str) -> tuple[str, float]:
    channel = td.Channel(0, 1, timeout=3.0, threads=1)
    start = time.monotonic()
    if rank == 0:
        if how == "dies":
            os._exit(1)
        time.sleep(8)
        return "", 0.0
    try:
        channel.receive((8, 1, 576), torch.bfloat16)
    except tenfold.PeerError as error:
        assert isinstance(error, ConnectionError) and isinstance(error, tenfold.MachineError)
        return str(error), time.monotonic() - start
    return "", time.monotonic() - start


@pytest.mark.parametrize("how", ["dies", "hangs"])
def test_a_peer_that_is_gone_is_an_error_in_time(how: str) -> None:
    made = Ranks(2, seconds=60)
    try:
        results = made.each(_abandoned, how)
        message, seconds = results[1]
        assert "rank 0 is gone or did not answer within 3 s" in message and "start all ranks again" in message
        assert seconds < 6
    finally:
        made.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A tiny model with a tokenizer of words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = tmp_path_factory.mktemp("tiny")
    _model().to(torch.bfloat16).save_pretrained(made)
    words = Tokenizer(models.WordLevel({"?": 0} | {f"w{i}": i for i in range(1, VOCABULARY)}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained(made)
    (made / "text.txt").write_text(" ".join(f"w{1 + i * i % 90}" for i in range(600)))
    return made


def test_it_runs_as_a_program(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    options = ["--model", str(folder), "--coder", "raw", "tenfold", "auto", "--bits", "3.5", "--link", "1Mb/s", "--threads", "1"]
    options += ["--text", str(folder / "text.txt"), "--prompt-tokens", "128", "--batch", "1", "64", "--tokens", "4", "--score", "200"]
    told = tmp_path / "report.json"
    done = subprocess.run([sys.executable, EXAMPLE, *options, "--json", told], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "auto 3.5, batch 1: send raw: it fits into one packet" in done.stdout
    rows = {(row["name"], row["batch"]): row for row in json.loads(told.read_text())["rows"]}
    assert len(rows) == 3 * 3
    assert rows["auto 3.5", 1]["steps_coder"] == "raw" and rows["auto 3.5", 64]["steps_coder"] == "tenfold"
    assert rows["auto 3.5", 64]["tokens_per_second"] > 0 < rows["auto 3.5", 64]["first_token_seconds"]
    assert rows["tenfold 3.5", 0]["perplexity"] == pytest.approx(rows["raw", 0]["perplexity"], rel=0.2)
    assert rows["raw", 64]["same"] == 1


def _started(folder: pathlib.Path, rank: int, port: int, *options: str) -> subprocess.Popen[str]:
    where = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, str(EXAMPLE), "--model", str(folder), "--rank", str(rank), "--threads", "1", *options]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=where)


def _port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def test_a_host_that_is_killed_ends_the_other_with_advice(folder: pathlib.Path) -> None:
    port = _port()
    first = _started(folder, 0, port, "--coder", "raw", "--prompt", "w1 w2", "--tokens", "100000", "--timeout", "60")
    second = _started(folder, 1, port, "--timeout", "60")
    try:
        assert first.stderr is not None
        # Both have what they need, and rank 0 makes tokens.
        assert any("2 layers here, 3 on rank 1" in line for line in first.stderr)
        time.sleep(1)
        second.kill()
        killed = time.monotonic()
        _, said = first.communicate(timeout=60)
        assert first.returncode == 1 and time.monotonic() - killed < 25
        assert "rank 1 is gone" in said and "start all ranks again" in said and "Traceback" not in said
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()


def test_a_host_that_never_comes_is_an_error_with_advice(folder: pathlib.Path) -> None:
    first = _started(folder, 0, _port(), "--timeout", "3")
    _, said = first.communicate(timeout=90)
    assert first.returncode == 1
    assert "has not joined" in said and "GLOO_SOCKET_IFNAME" in said and "Traceback" not in said


def _page(rank: int, blocks: list[str]) -> list[str]:
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "split.md", "exec"), names)
    return [names["channel"].sending((batch, 1, 576), torch.bfloat16).coder for batch in (1, 64)]


def test_the_page(ranks: Ranks) -> None:
    text = (EXAMPLE.parents[2] / "docs" / "split.md").read_text()
    here, there = ranks(_page, re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    assert here == there and here[0] == "raw"


@pytest.mark.parametrize("bits", [2.5, 3.5])
def test_steps_that_are_adapted_fill_slots_about_as_well_as_searched_ones(bits: float) -> None:
    searched, adapted = (BucketCodec(bits, "fast", 1, adapts) for adapts in (False, True))
    generator, errors = torch.Generator().manual_seed(1), {searched: 0.0, adapted: 0.0}
    for scale in (1.0, 1.0, 50.0, 1.0, 1e-4, 1.0):
        tensor = scale * torch.randn(64, 576, generator=generator) * torch.logspace(-1, 1, 576)
        for codec in errors:
            out = codec.read(packed(codec, tensor, "one key"), torch.empty_like(tensor))
            errors[codec] += float((out - tensor).square().mean() / tensor.square().mean())
    assert errors[adapted] < 1.06 * errors[searched]
    # Other values, of which many are zero.
    tensor[::2] = 0
    for codec in errors:
        out = codec.read(packed(codec, tensor, "one key"), torch.empty_like(tensor))
        errors[codec] = float((out - tensor).square().mean() / tensor.square().mean())
    assert errors[adapted] < 1.1 * errors[searched]
