#!/usr/bin/env python3
"""Tensors and models over links of a stated rate: two network namespaces (root, iproute2), the release build of the command.

    cargo build --release -p tenfold-cli
    python python/bench/link.py states FILE --json results/link/states.json        # hidden states, raw and as the planner chooses
    python python/bench/link.py pull --folder /var/tmp --json results/link/pull.json      # a compressed model, decoded meanwhile

`states` gives each end a core of its own at 1 Gb/s and above, and all cores to both below. FILE holds bf16 matrices, which are sent over and over up to 32 MB. `pull` makes a model, offers it
by nginx, and compares `tenfold pull --decode` with curl and `tenfold decompress`, all cores at both ends; the folder takes the model
twice, compressed and not.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import sys
import time
from datetime import datetime, timezone
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Ratio times 0.9 at 2.5 bits of bf16; the least share of the slowest stage's rate; the most time of a pull beside its peer.
BARS = {"50mbit": 5.7, "100mbit": 5.7, "1gbit": 3.0, "10gbit": 1.0}
NGINX = """daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{}} http {{ access_log off; sendfile on; client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2;
fastcgi_temp_path {folder}/t3; uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
server {{ listen 10.77.0.2:8080; root {folder}/site; }} }}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenfold", default=str(ROOT / "target/release/tenfold"), help="the command")
    parser.add_argument("--json", type=pathlib.Path, help="where to keep the figures")
    what = parser.add_subparsers(dest="what", required=True)
    states = what.add_parser("states")
    states.add_argument("file", type=pathlib.Path)
    states.add_argument("--rates", default="50mbit,100mbit,1gbit,10gbit")
    states.add_argument("--bits", default="2.5")
    pull = what.add_parser("pull")
    pull.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/var/tmp"))
    pull.add_argument("--rate", default="1gbit")
    pull.add_argument("--gigabytes", type=float, default=2.0, help="of the compressed model")
    pull.add_argument("--bits", type=float, default=4.0)
    pull.add_argument("--keep", action="store_true", help="leave the made-up model, for the next run")
    client = what.add_parser("client")  # what `pull` runs in the namespace
    client.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.tenfold = os.path.abspath(arguments.tenfold)
    {"states": measure_states, "pull": measure_pull, "client": measure_client}[arguments.what](arguments)


def between(rate: str, *lines: str) -> str:
    """Runs lines of shell between two namespaces; returns what they print."""
    command = [str(ROOT / "scripts/netns.sh"), rate, "\n".join(lines)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def measure_states(arguments: argparse.Namespace) -> None:
    rows = []
    for rate in arguments.rates.split(","):
        # Behind a slow link both ends have cores to spare; at a fast one neither may borrow the other's.
        apart = rate.endswith("gbit")
        threads, near, far = ("1", "taskset -c 0", "taskset -c 1") if apart else (str(os.cpu_count()), "", "")
        plan = [
            arguments.tenfold, "plan", str(arguments.file), "--bits", arguments.bits, "--effort", "fast,balanced", "--to", "10.77.0.2:7010",
            "--threads", threads, "--receiver-threads", threads, "--chunk", "1MiB", "--check", "--check-bytes", "32000000", "--json",
        ]  # fmt: skip
        # A status of 3 says that a forecast was off; the figures say by how much.
        text = between(
            rate,
            f"$B {far} {shlex.quote(arguments.tenfold)} --quiet plan listen 10.77.0.2:7010 --threads {threads} & sleep 1",
            f"$A {near} {shlex.join(plan)} || [ $? = 3 ]",
            "kill $!",
        )
        found = json.loads(text)
        raw, sent = found["checks"]
        kind = found["kinds"][0]
        way, share = sent_way(kind, sent)
        speedup = raw["measured"] / sent["measured"] if sent["chosen"] else 1.0
        row = {
            "link": rate, "cores": "one each" if apart else "shared", "measured_link": kind["links"][0]["link"]["bytes_per_second"], "chosen": sent["way"] if sent["chosen"] else "raw",
            "bytes": raw["bytes"], "raw_seconds": raw["measured"], "seconds": sent["measured"], "speedup": speedup, "ratio": way["ratio"],
            "bar": BARS.get(rate), "encode_rate": way["encode_rate"], "decode_rate": way["decode_rate"],
            "of_slowest": slowest(kind, sent, way, share) / sent["measured"],
            "off": {check["way"]: check["off"] for check in found["checks"]},
        }  # fmt: skip
        rows.append(row)
        print(f"{rate:8} {row['chosen']:40} {speedup:5.2f} x raw (bar {row['bar']}); "
              + ", ".join(f"{name}: off by {off:+.1%}" for name, off in row["off"].items()))  # fmt: skip
    keep(arguments, {"bits": arguments.bits, "file": arguments.file.name, "rows": rows})


def sent_way(kind: dict[str, Any], sent: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """The way that a check sent, and the share of the bytes that went so: "79 % bits 2.5, fast, the rest raw"."""
    way = next(way for way in kind["ways"] if way["name"] in sent["way"])
    return way, 1.0 if way["name"] == sent["way"] else float(sent["way"].split(" %")[0]) / 100


def slowest(kind: dict[str, Any], sent: dict[str, Any], way: dict[str, Any], share: float) -> float:
    """Seconds that the slowest stage alone would take for what was sent."""
    link = kind["links"][0]["link"]["bytes_per_second"]
    coded = sent["bytes"] * share
    on_link = coded / way["ratio"] + sent["bytes"] - coded
    return max(coded / way["encode_rate"], coded / way["decode_rate"], on_link / link)


def measure_pull(arguments: argparse.Namespace) -> None:
    folder = arguments.folder / "tenfold-link-bench"
    model = make_model(arguments, folder)
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder))
    client = [sys.executable, __file__, "--tenfold", arguments.tenfold, "client", str(folder)]
    text = between(
        arguments.rate,
        f"$B nginx -c {shlex.quote(str(folder / 'nginx.conf'))} & sleep 1",
        f"$A {shlex.join(client)}",
        "kill $!; wait",
    )
    found = json.loads(text)
    share = found["pull"]["seconds"] / (found["download"]["seconds"] + found["decompress"]["seconds"])
    print(f"{share:.2f} of download and decompress (bar 0.6); {found['pull']['peak'] / 2**20:.0f} MiB at most (bar 1024)")
    sizes = {"compressed_bytes": model.stat().st_size, "bytes": found.pop("bytes")}
    keep(arguments, {"link": arguments.rate, "bits": arguments.bits, **sizes, **found, "share": share, "bar": 0.6})
    if not arguments.keep:
        shutil.rmtree(folder)


def make_model(arguments: argparse.Namespace, folder: pathlib.Path) -> pathlib.Path:
    """A compressed model of bf16 matrices, N(0, 0.02), about so large; one of an earlier run is taken."""
    import numpy as np

    site = folder / "site"
    model = site / "model.safetensors"
    if model.exists():
        return model
    site.mkdir(parents=True, exist_ok=True)
    rows, cols = 4096, 4096
    count = max(1, round(arguments.gigabytes * 1e9 * 8 / arguments.bits / (rows * cols)))
    random = np.random.default_rng(0)
    parts = [(random.standard_normal(rows * cols, dtype=np.float32) * 0.02).view(np.uint32) >> 16 for _ in range(4)]
    blobs = [part.astype(np.uint16).tobytes() for part in parts]
    size = rows * cols * 2
    header = {f"layers.{i}.weight": {"dtype": "BF16", "shape": [rows, cols], "data_offsets": [i * size, (i + 1) * size]}
              for i in range(count)}  # fmt: skip
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    plain = folder / "plain.safetensors"
    with plain.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for i in range(count):
            out.write(blobs[i % len(blobs)])
    made = folder / "model.safetensors"
    command = [arguments.tenfold, "--quiet", "compress", str(plain), "-o", str(made), "--bits", str(arguments.bits), "--effort", "fast"]
    subprocess.run(command, check=True)
    plain.unlink()
    made.rename(model)
    return model


def measure_client(arguments: argparse.Namespace) -> None:
    """In the namespace: the same model three ways, each from the start."""
    work = arguments.folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    url = "http://10.77.0.2:8080/model.safetensors"
    found: dict[str, Any] = {}
    pulled, fetched, plain = work / "pulled.safetensors", work / "fetched.safetensors", work / "plain.safetensors"
    found["pull"] = timed([arguments.tenfold, "--quiet", "pull", url, "-o", str(pulled), "--decode"])
    found["bytes"] = pulled.stat().st_size
    pulled.rename(work / "kept")
    found["download"] = timed(["curl", "--silent", "--fail", "-o", str(fetched), url])
    found["decompress"] = timed([arguments.tenfold, "--quiet", "decompress", str(fetched), "-o", str(plain)])
    subprocess.run(["cmp", str(plain), str(work / "kept")], check=True)
    shutil.rmtree(work)
    print(json.dumps(found))


def timed(command: list[str]) -> dict[str, float]:
    """Seconds, CPU seconds and most memory of a command."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{shlex.join(command)} ended with status {status}")
    seconds = time.monotonic() - begin
    return {"seconds": seconds, "cpu": usage.ru_utime + usage.ru_stime, "peak": usage.ru_maxrss * 1024}


def keep(arguments: argparse.Namespace, figures: dict[str, Any]) -> None:
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    cpu = next((line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), ":")
    report = {
        "bench": f"link {arguments.what}", "command": "python " + " ".join(os.path.relpath(word, ROOT) if word == __file__ else word
        for word in sys.argv), "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "commit": commit.stdout.strip() or None,
        "machine": {"system": f"{platform.system()} {platform.machine()}", "cpu": cpu.split(":", 1)[1].strip(), "cores": os.cpu_count()},
        **figures,
    }  # fmt: skip
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
