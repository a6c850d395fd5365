"""A tiny model cut in two over a link between namespaces."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path

import pytest
import split
import tiny
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

WORDS = 97


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model, a tokenizer of words, and a text."""
    made = tmp_path_factory.mktemp("split")
    tiny.causal(3).model.save_pretrained(made)
    words = Tokenizer(models.WordLevel({"?": 0} | {f"w{i}": i for i in range(1, WORDS)}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained(made)
    (made / "text.txt").write_text(" ".join(f"w{1 + i * i % 90}" for i in range(600)), encoding="utf-8")
    return made


def _args(folder: Path, out: Path, **others: object) -> argparse.Namespace:
    return argparse.Namespace(
        text=folder / "text.txt", model=folder, link=[20.0], coder=["raw", "auto"], bits=(3.5,), batch=[1, 64], prompt_tokens=256,
        tokens=3, repeat=1, score=0, threads=1, out=out, fresh=False, **others,
    )  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("tc") is None, reason="namespaces need root and iproute2")
def test_a_run(folder: Path, tmp_path: Path) -> None:
    args = _args(folder, tmp_path)
    assert split.evaluate(args) == 0
    args.score, args.coder = 200, ["raw", "tenfold"]
    assert split.evaluate(args) == 0
    timed, scored = json.loads((tmp_path / "split.json").read_text())["rows"]
    rows = {(row["name"], row["batch"]): row for row in timed["rows"]}
    # What the two ends measured is the link that was asked for, or less of it on a busy machine.
    assert 0 < 8e-6 * rows["auto 3.5", 64]["link_bytes_per_second"] < 23
    assert rows["auto 3.5", 64]["steps_coder"] != "raw" == rows["auto 3.5", 1]["steps_coder"]
    # 8 KiB at 20 Mb/s, and coded at most half of it.
    assert 2.5e-3 < rows["raw", 64]["way_seconds"]
    assert [row["name"] for row in scored["rows"]] == ["raw", "tenfold 3.5"]
    page = (tmp_path / "split.md").read_text()
    assert "## 20 Mb/s" in page and "Perplexity of 200 tokens" in page


def test_times_are_medians_and_ratios_are_to_raw_of_the_batch() -> None:
    plain = {"prompt_raw": 400, "steps_raw": 100, "prompt_coder": "raw", "steps_coder": "raw", "prompt_sent": 400, "steps_sent": 100}
    coded = plain | {"prompt_coder": "tenfold", "prompt_sent": 100}

    def row(name: str, first: float, kind: dict[str, object]) -> dict[str, object]:
        return kind | {"name": name, "batch": 8, "first_token_seconds": first, "tokens_per_second": 1 / first, "way_seconds": first}

    rows = [row("raw", seconds, plain) for seconds in (2.0, 4.0, 9.0)] + [row("tenfold 2.5", seconds, coded) for seconds in (1.0, 2.0, 8.0)]
    _, (raw, ours) = split.times({"rows": rows})
    assert raw[3:5] == ("4000 ms", "1.00") and ours[2:5] == ("tenfold, 4.0", "2000 ms", "2.00")
    assert ours[6:] == ("0.5", "2.00", "2000.0 ms", "2.00", "–")


def test_perplexity_stands_beside_raw() -> None:
    rows = [{"name": n, "perplexity": p, "prompt_sent": s, "prompt_raw": 1600} for n, p, s in (("raw", 10.0, 1600), ("fp8", 10.1, 800))]
    _, lines = split.perplexities({"rows": rows})
    assert lines == [("raw", "16.00", "10.000", "+0.00 %"), ("fp8", "8.00", "10.100", "+1.00 %")]
