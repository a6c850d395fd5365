"""A language model cut in two: half of its layers on each of two hosts, hidden states compressed on the way between them.

    host A: MASTER_ADDR=A MASTER_PORT=29500 python split_model.py --rank 0 --model FOLDER --coder raw auto --prompt "The sea is"
    host B: MASTER_ADDR=A MASTER_PORT=29500 python split_model.py --rank 1 --model FOLDER

`torchrun --nnodes 2 …` works too, and without --rank both halves run on this machine. Rank 0 has the embeddings and the first layers,
rank 1 the others and the head; each keeps the keys and values of its own layers. Rank 0 says what is done, and prints the report.
Prompts go through in chunks, so that both hosts and the link work at the same time. Any model of transformers will do that has
`model.embed_tokens`, `model.layers` and `model.norm`: Llama, Mistral, Qwen …, as a folder, a GGUF file or a name. GLOO_SOCKET_IFNAME
names the network interface where a host has several.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import math
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

import tenfold
import tenfold.torch.distributed as td

FRONT, BACK = 0, 1
CONTEXT = 1024
Case = dict[str, Any]


class Half:
    """One of the two parts of a model, with the cache of its own layers."""

    def __init__(self, model: Any, rank: int, at: int) -> None:
        layers = model.model.layers
        if not 0 < at < len(layers):
            raise tenfold.ArgumentError(f"--cut {at} leaves a host without layers; the model has {len(layers)}")
        model.model.layers = layers[:at] if rank == FRONT else layers[at:]
        for index, layer in enumerate(model.model.layers):
            layer.self_attn.layer_idx = index
        model.config.num_hidden_layers = len(model.model.layers)
        if rank == FRONT:
            model.model.norm, model.lm_head = torch.nn.Identity(), None
        else:
            model.model.embed_tokens = None
        self._model, self.seconds, self.width, self.dtype = model, 0.0, model.config.hidden_size, model.dtype
        self.forget()

    def forget(self) -> None:
        """Begins new sequences."""
        self._cache = DynamicCache(config=self._model.config)

    def __call__(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Runs the layers on what comes next in each sequence."""
        start = time.perf_counter()
        out: torch.Tensor = self._model.model(**inputs, past_key_values=self._cache, use_cache=True).last_hidden_state
        self.seconds += time.perf_counter() - start
        return out

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """What the head says of the token that follows each."""
        start = time.perf_counter()
        out: torch.Tensor = self._model.lm_head(hidden).float()
        self.seconds += time.perf_counter() - start
        return out

    def next_tokens(self, hidden: torch.Tensor) -> torch.Tensor:
        """The likeliest token behind each sequence."""
        logits, start = self.logits(hidden[:, -1]), time.perf_counter()
        out = logits.argmax(-1)
        self.seconds += time.perf_counter() - start
        return out


class Ends:
    """The channels of a rank: hidden states one way, tokens the other, and what both must know."""

    def __init__(self, rank: int, timeout: float, threads: int) -> None:
        self._rank, self._how = rank, {"timeout": timeout, "threads": threads}
        self._plain = [td.Channel(source, 1 - source, coder="raw", **self._how) for source in (FRONT, BACK)]
        self._hidden: dict[str, td.Channel] = {}

    def hidden(self, case: Case) -> td.Channel:
        """The channel for the hidden states of a case: the same for all cases with the same options."""
        options = {name: case[name] for name in ("coder", "bits", "link", "effort")}
        if str(options) not in self._hidden:
            self._hidden[str(options)] = td.Channel(FRONT, BACK, **options, **self._how)
        return self._hidden[str(options)]

    def send(self, tensor: torch.Tensor) -> None:
        """Sends the other rank a tensor as it is."""
        self._plain[self._rank].send(tensor)

    def receive(self, shape: tuple[int, ...], dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Receives one."""
        return self._plain[1 - self._rank].receive(shape, dtype)

    def tell(self, what: Any) -> None:
        """Sends the other rank something that JSON can hold, and waits until it has left."""
        text = torch.frombuffer(bytearray(json.dumps(what).encode()), dtype=torch.uint8)
        self.send(torch.tensor([len(text)]))
        self.send(text)
        self._plain[self._rank].flush()

    def hear(self) -> Any:
        """Receives the same."""
        return json.loads(self.receive((int(self.receive((1,))),), torch.uint8).numpy().tobytes())


def pieces(batch: int, length: int, chunk: int) -> list[tuple[int, int]]:
    """Where pieces of about `chunk` tokens, over all sequences, begin and end."""
    step = max(chunk // batch, 1)
    return [(start, min(start + step, length)) for start in range(0, length, step)]


def front(half: Half, ends: Ends, case: Case, ids: torch.Tensor) -> Case:
    """Runs a case on rank 0, and says what it took. `ids` are sequences × tokens, to be gone on with or scored."""
    batch, length = ids.shape
    ends.tell(case | {"batch": batch, "length": length})
    channel = ends.hidden(case)
    half.forget()
    said: Case = {"prompt_length": length}
    encoding, computing, cuts = channel.encode_seconds, half.seconds, pieces(batch, length, case["chunk"])

    def passing(name: str, inputs: list[torch.Tensor]) -> None:
        # Bytes count from one call to the next.
        sent, raw = channel.sent, channel.raw
        for part in inputs:
            channel.send(half(input_ids=part))
        said[f"{name}_sent"] = said.get(f"{name}_sent", 0) + channel.sent - sent
        said[f"{name}_raw"] = said.get(f"{name}_raw", 0) + channel.raw - raw

    if case["tokens"] == 0:
        ends.send(ids)
    start = time.perf_counter()
    passing("prompt", [ids[:, begin:end] for begin, end in cuts])
    if case["tokens"]:
        tokens = [ends.receive((batch,))]
        said["first_token_seconds"] = time.perf_counter() - start
        steps, computed = [], []
        while len(tokens) < case["tokens"]:
            begun, before = time.perf_counter(), half.seconds
            passing("steps", [tokens[-1][:, None]])
            tokens.append(ends.receive((batch,)))
            steps.append(time.perf_counter() - begun)
            computed.append(half.seconds - before)
        said |= {"made": torch.stack(tokens, 1).tolist(), "step_seconds": steps}
        for name, tall in (("prompt", cuts[0][1]), ("steps", 1)):
            how = channel.sending((batch, tall, half.width), half.dtype)
            said |= {f"{name}_coder": how.coder, f"{name}_why": how.text, f"{name}_expected_seconds": how.seconds}
    channel.flush()
    said |= ends.hear()
    if said.get("step_seconds"):
        # A step is computing here, computing there, and what the way between them takes: coding, sending, and the tokens back.
        away = [step - here - there for step, here, there in zip(steps, computed, said["back_steps"], strict=True)]
        said |= {"tokens_per_second": batch / statistics.median(steps), "way_seconds": statistics.median(away)}
    said |= {"encode_seconds": channel.encode_seconds - encoding, "front_seconds": half.seconds - computing}
    if channel.link is not None:
        said |= {"link_bytes_per_second": channel.link[0], "link_latency": channel.link[1]}
    return said


def back(half: Half, ends: Ends) -> None:
    """Does on rank 1 what rank 0 says, until there is no more."""
    while (case := ends.hear()) is not None:
        channel, batch = ends.hidden(case), case["batch"]
        half.forget()
        decoding, waiting, computing, loss = channel.decode_seconds, channel.wait_seconds, half.seconds, 0.0
        cuts = pieces(batch, case["length"], case["chunk"])
        ids = ends.receive((batch, case["length"])) if case["tokens"] == 0 else None
        # All are expected before the first is read, so that rank 0 and the link go on while this rank computes.
        expected = [channel.expect((batch, end - begin, half.width), half.dtype) for begin, end in cuts]
        for (begin, end), piece in zip(cuts, expected, strict=True):
            hidden = half(inputs_embeds=piece.read())
            if ids is not None:
                # Nobody knows the token after a sequence's last one.
                wanted = ids[:, begin + 1 : end + 1]
                logits = half.logits(hidden)[:, : wanted.shape[1]]
                loss += float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum"))
        steps = [half.seconds]
        for step in range(case["tokens"]):
            if step:
                hidden = half(inputs_embeds=channel.receive((batch, 1, half.width), half.dtype))
            ends.send(half.next_tokens(hidden))
            steps.append(half.seconds)
        said = {"decode_seconds": channel.decode_seconds - decoding, "wait_seconds": channel.wait_seconds - waiting, "loss": loss}
        said["back_steps"] = [after - before for before, after in itertools.pairwise(steps[1:])]
        ends.tell(said | {"back_seconds": half.seconds - computing})


def direct(half: Half, ends: Ends, tokenizer: Any, args: argparse.Namespace) -> list[Case]:
    """Runs all cases from rank 0: a row for each."""
    ways = [(coder, bits) for coder in args.coder for bits in (args.bits if coder == "tenfold" else args.bits[:1])]
    # Coders take turns, so that what else the machine does is the same for all; the first run of a batch warms up.
    work = [(0, batch, *ways[0]) for batch in args.batch if args.tokens and args.repeat > 1]
    work += [(turn + 1, batch, *way) for turn in range(args.repeat) for batch in args.batch for way in ways if args.tokens]
    work += [(1, 0, *way) for way in ways if args.score]
    rows: list[Case] = []
    first: dict[int, torch.Tensor] = {}
    for turn, batch, coder, bits in tqdm(work, unit="case", disable=None):
        case = {"coder": coder, "bits": bits, "link": args.link, "effort": args.effort, "chunk": args.chunk}
        case["tokens"] = args.tokens if batch else 0
        if batch == 0:
            row = score(half, ends, case, text_tokens(args.text, tokenizer, args.score))
        else:
            row = front(half, ends, case, prompts(args, tokenizer, batch))
            tokens = torch.tensor(row.pop("made"))
            # The part of the tokens that are those of the first coder.
            row["same"] = float((tokens == first.setdefault(batch, tokens)).float().mean())
            row |= {"said": tokenizer.decode(tokens[0])} if args.text is None else {}
        if turn == 0:
            continue
        name = f"{coder} {bits:g}" if coder in ("tenfold", "auto") else coder
        rows.append({"name": name, "batch": batch, "turn": turn} | case | row)
    ends.tell(None)
    return rows


def score(half: Half, ends: Ends, case: Case, ids: torch.Tensor) -> Case:
    """Perplexity of a text, in contexts of up to 1,024 tokens of which the first is not predicted."""
    total: Case = {}
    contexts = [context for context in ids.split(CONTEXT) if len(context) > 1]
    for context in contexts:
        row = front(half, ends, case, context[None])
        total |= {name: row[name] + total.get(name, 0) for name in row if name.startswith("prompt_") or name == "loss"}
    return total | {"perplexity": math.exp(total.pop("loss") / sum(len(context) - 1 for context in contexts))}


def prompts(args: argparse.Namespace, tokenizer: Any, batch: int) -> torch.Tensor:
    """Sequences × tokens: pieces of the text, or the prompt as often as there are sequences."""
    if args.text is None:
        return torch.tensor(tokenizer(args.prompt).input_ids)[None].expand(batch, -1).contiguous()
    length = max(args.prompt_tokens // batch, 1)
    return text_tokens(args.text, tokenizer, batch * length).view(batch, length)


def text_tokens(path: Path, tokenizer: Any, count: int) -> torch.Tensor:
    """The first tokens of a text."""
    # Eight characters a token are more than most texts take.
    ids = tokenizer(path.read_text(encoding="utf-8")[: 8 * count]).input_ids
    if len(ids) < count:
        raise tenfold.ArgumentError(f"{path} has {len(ids)} tokens; {count} are needed")
    return torch.tensor(ids[:count])


def table(rows: list[Case]) -> str:
    """Rows for a terminal."""
    heads = ("coder", "batch", "prompt", "first token", "tokens/s", "way", "prompt sent", "a step", "steps go", "same", "perplexity")
    cells = [heads]
    for row in rows:
        line = [row["name"], str(row["batch"] or "–"), str(row["prompt_length"])]
        if "first_token_seconds" in row:
            rate = row.get("tokens_per_second")
            step = row.get("steps_sent", 0) / max(row["tokens"] - 1, 1)
            line += [f"{1e3 * row['first_token_seconds']:.0f} ms", "–" if rate is None else f"{rate:.1f}"]
            line.append("–" if rate is None else f"{1e3 * row['way_seconds']:.1f} ms")
            line += [f"{row['prompt_sent'] / 1e3:.1f} kB", f"{step / 1e3:.2f} kB", row["steps_coder"], f"{row['same']:.0%}", "–"]
        else:
            line += ["–", "–", "–", f"{row['prompt_sent'] / 1e3:.1f} kB", "–", "–", "–", f"{row['perplexity']:.3f}"]
        cells.append(tuple(line))
    widths = [max(len(line[at]) for line in cells) for at in range(len(heads))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells)


def run(args: argparse.Namespace, rank: int, store: str | None = None) -> None:
    """What one of the two hosts does."""
    if args.threads:
        torch.set_num_threads(args.threads)
    where = {"gguf_file": Path(args.model).name} if args.model.endswith(".gguf") else {}
    source = str(Path(args.model).parent) if where else args.model
    dtype = getattr(torch, args.dtype)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **where).eval()
    join(rank, args.timeout, store)
    with torch.inference_mode():
        ends = Ends(rank, args.timeout, args.threads)
        mine = {"width": model.config.hidden_size, "layers": model.config.num_hidden_layers, "dtype": args.dtype}
        if rank == BACK:
            at = ends.hear()
            ends.tell(mine)
            back(Half(model, rank, at), ends)
            dist.destroy_process_group()
            return
        at = args.cut or mine["layers"] // 2
        ends.tell(at)
        if (theirs := ends.hear()) != mine:
            raise tenfold.ArgumentError(f"rank 1 has another model or dtype: {theirs} there, {mine} here; state the same on both")
        half = Half(model, rank, at)
        print(f"split_model: {at} layers here, {mine['layers'] - at} on rank 1; {torch.get_num_threads()} threads", file=sys.stderr, flush=True)
        rows = direct(half, ends, AutoTokenizer.from_pretrained(source, **where), args)
    dist.destroy_process_group()
    show(rows, args, mine)


def join(rank: int, timeout: float, store: str | None) -> None:
    """Meets the other rank."""
    how: Case = {"rank": rank, "world_size": 2, "timeout": datetime.timedelta(seconds=timeout)}
    if store is not None:
        how["store"] = dist.FileStore(store, 2)
    elif missing := [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]:
        raise tenfold.ArgumentError(f"{' and '.join(missing)} must be set: the address of rank 0's host, and a port that is free there")
    try:
        dist.init_process_group("gloo", **how)
    except RuntimeError as error:
        at = "" if store else f" at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise tenfold.PeerError(
            f"the other rank has not joined{at} within {timeout:g} s: start it, let the firewall pass connections between both hosts, "
            f"and name the network interface in GLOO_SOCKET_IFNAME where there are several ({str(error).splitlines()[0]})"
        ) from error


def show(rows: list[Case], args: argparse.Namespace, model: Case) -> None:
    """The report."""
    print(table(rows))
    for why in dict.fromkeys(f"{row['name']}, batch {row['batch']}: {row['steps_why']}" for row in rows if "steps_why" in row):
        print(why)
    for said in dict.fromkeys(f"{row['name']}: {row['said']!r}" for row in rows if "said" in row):
        print(said)
    if args.json is not None:
        options = {name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()}
        about = {"options": options, "model": model, "threads": torch.get_num_threads(), "tenfold": tenfold.__version__}
        args.json.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n", encoding="utf-8")


def parsed() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder, GGUF file or name; on each host, since each reads its half from it")
    parser.add_argument("--rank", type=int, choices=(FRONT, BACK), help="of this host (default: RANK, else both run here)")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"), help="of the model; raw sends it")
    parser.add_argument("--threads", type=int, default=0, help="of torch and tenfold (default: all cores, a half of them each if both run here)")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="to wait for the other host")
    said = parser.add_argument_group("what rank 0 says")
    said.add_argument("--coder", nargs="+", default=["auto"], choices=("raw", "fp8", "tenfold", "auto"))
    said.add_argument("--bits", type=float, nargs="+", default=[3.5], metavar="N", help="bits a value of tenfold; auto takes the first")
    said.add_argument("--effort", default="fast", choices=("fast", "balanced", "best"))
    said.add_argument("--link", metavar="100Mb/s", help="of the link, for auto (default: measured)")
    said.add_argument("--cut", type=int, help="layers on rank 0 (default: half of them)")
    what = said.add_mutually_exclusive_group()
    what.add_argument("--prompt", default="Once upon a time", help="to go on with")
    what.add_argument("--text", type=Path, metavar="FILE", help="text whose pieces are prompts")
    said.add_argument("--prompt-tokens", type=int, default=512, help="tokens of the text in all prompts of a batch together")
    said.add_argument("--batch", type=int, nargs="+", default=[1], metavar="N", help="sequences at a time")
    said.add_argument("--tokens", type=int, default=32, help="to make for each sequence")
    said.add_argument("--chunk", type=int, default=128, help="tokens of a prompt that are computed and sent at a time")
    said.add_argument("--score", type=int, default=0, metavar="TOKENS", help="also measure perplexity on so many tokens of the text")
    said.add_argument("--repeat", type=int, default=1, help="how often; above 1 a run that does not count warms up")
    said.add_argument("--json", type=Path, metavar="FILE", help="write the report there too")
    args = parser.parse_args()
    if args.score and (args.text is None or args.score < 2):
        parser.error("--score takes two or more tokens of a --text")
    if min(args.tokens, args.repeat - 1, args.chunk - 1, args.prompt_tokens - 1, *(n - 1 for n in args.batch)) < 0:
        parser.error("--batch, --chunk, --prompt-tokens and --repeat are at least 1, --tokens at least 0")
    if args.rank is None and "RANK" in os.environ:
        args.rank = int(os.environ["RANK"])
    return args


def alone(args: argparse.Namespace) -> int:
    """Both halves on this machine."""
    args.threads = args.threads or max((os.cpu_count() or 2) // 2, 1)
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        other = torch.multiprocessing.get_context("spawn").Process(target=guarded, args=(args, BACK, store), daemon=True)
        other.start()
        code = guarded(args, FRONT, store)
        other.join(args.timeout)
        other.kill()
    return code


def guarded(args: argparse.Namespace, rank: int, store: str | None = None) -> int:
    """Runs a rank; what goes wrong on purpose is a line that says what to do."""
    try:
        run(args, rank, store)
    except (tenfold.Error, OSError) as error:
        print(f"split_model: rank {rank}: {error}", file=sys.stderr, flush=True)
        # Threads of gloo may wait for a rank that is gone.
        os._exit(1)
    return 0


def main() -> int:
    args = parsed()
    return alone(args) if args.rank is None else guarded(args, args.rank)


if __name__ == "__main__":
    sys.exit(main())
