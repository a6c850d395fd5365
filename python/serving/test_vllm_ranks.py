"""Two tensor-parallel ranks, in processes of their own: a page is there if both have their heads of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from vllm_engines import PAGE, model_folder

PROGRAM = """
import json, sys, time
from pathlib import Path
from vllm import LLM, SamplingParams
from vllm_engines import keys_of, prompt, transfer


def main():
    model, store, load = sys.argv[1:]
    llm = LLM(
        model=model, tensor_parallel_size=2, skip_tokenizer_init=True, enforce_eager=True, max_model_len=512,
        block_size=32, kv_cache_memory_bytes=16 << 20, dtype="float32", disable_log_stats=False,
        kv_transfer_config=transfer({"path": store, "lossless": True, "load": load}), async_scheduling=False,
    )
    how = SamplingParams(max_tokens=10, temperature=0, detokenize=False)

    def ask():
        (out,) = llm.generate([{"prompt_token_ids": prompt(200)}], how, use_tqdm=False)
        until = time.monotonic() + 60
        while len(list(Path(store).glob("*/*/*.tnkv"))) < 6:
            assert time.monotonic() < until, "pages were not stored"
            time.sleep(0.1)
        assert llm.reset_prefix_cache()
        counts = {m.name.removeprefix("vllm:tenfold_"): m.value for m in llm.get_metrics() if "tenfold" in m.name}
        return list(out.outputs[0].token_ids), counts

    found = [ask(), ask()]
    # One rank loses its second page: neither must use it.
    shelf = llm.llm_engine.engine_core.engine_core.scheduler.connector._scheduler._shelves[1]
    shelf._store.remove(keys_of(llm, prompt(200))[1])
    found.append(ask())
    # One rank finds its second page damaged, so both compute it.
    path = shelf._store._path(keys_of(llm, prompt(200))[1])
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    found.append(ask())
    found.append(ask())
    print("found", json.dumps(found))


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("load", ["whole", "layers"])
def test_two_ranks(tmp_path: Path, load: str) -> None:
    model = model_folder(tmp_path / "model")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    variables = os.environ | {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "PYTHONPATH": os.pathsep.join((str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")]))),
    }
    command = [sys.executable, str(program), str(model), str(tmp_path / "store"), load]
    ran = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-4000:]
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("found ")]
    answers, counts = zip(*json.loads(line.removeprefix("found ")), strict=True)
    assert all(answer == answers[0] for answer in answers)
    _, found, after, damaged, last = counts
    # Three pages of each rank; tokens are counted once.
    assert (found["tokens_loaded"], found["pages_loaded"], found["pages_lost"]) == (3 * PAGE, 6, 0)
    # A page that one rank has not is not there, nor is what comes behind it.
    assert (after["tokens_loaded"] - found["tokens_loaded"], after["pages_lost"]) == (PAGE, 0)
    assert damaged["pages_lost"] == last["pages_lost"] == 1
    assert last["pages_loaded"] - damaged["pages_loaded"] == 6
