"""Models that outgrow one machine, compressed and calibrated by the nodes of a Ray cluster.

Needs ``ray``, and a folder that every node sees at the same path.

>>> import tenfold.ray                                                          # doctest: +SKIP
>>> tenfold.ray.compress("/models/llama", "/models/llama-small", bits=3)        # doctest: +SKIP
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import ray

from ._errors import ArgumentError, DataError, Error, LimitError, MachineError, UnsupportedError
from ._progress import bar

__all__ = ["calibrate", "compress"]

PathLike = str | os.PathLike[str]
Progress = bool | Callable[[int, int], object]

# Parts for each place where one can run: enough that a slow node does not keep the others waiting, and that what a dead one
# takes with it is little.
_PARTS_EACH = 4
# A part of a calibration starts with loading the model, and one that was interrupted goes on at the layer where it was.
_CALIBRATED_EACH = 2
# Seconds that cancelled tasks get to end.
_ENDING = 10.0
# Options of the command that are files, which it reads elsewhere.
_FILES = ("recipe", "importance", "calibration")
# By the command's exit codes.
_ERRORS: dict[int, type[Error]] = {
    2: ArgumentError,
    3: DataError,
    4: UnsupportedError,
    5: LimitError,
    6: MachineError,
}


def compress(
    input: PathLike,
    output: PathLike,
    *,
    parts: int | None = None,
    cpus: int = 1,
    engine: str | None = None,
    retries: int = 3,
    overwrite: bool = False,
    progress: Progress = False,
    **options: Any,
) -> dict[str, Any]:
    """Compresses a model on a Ray cluster; the output has the bytes that one machine makes with the same options.

    Each part of the model is a task of its own that writes into the folder ``OUT.parts``, which all nodes must share; a last
    task joins them. A node that dies costs the parts that it was at: others make them. A run that was stopped goes on where
    it was when it is started again. Uses the cluster that this process is connected to, or ``ray.init()``'s.

    Args:
        input: a model, as in :func:`tenfold.compress`.
        output: a file, or a folder if ``input`` is one.
        parts: into how many parts to split [default: as before, if the folder has parts; else four for each task that can run
            at the same time].
        cpus: cores of a task.
        engine: "cpu" or "cuda", for all parts alike [default: "cuda" if the cluster has GPUs]. A task of "cuda" takes a GPU.
        retries: how many times a part may be lost with its node, or to a failing machine, and be made again.
        overwrite: whether an existing output may be replaced.
        progress: True for a tqdm bar, or a function that is called with the parts done and their number.
        options: those of the command, by name: a goal (``bits=3``), ``effort``, ``recipe``, ``include=[...]``,
            ``exclude=[...]``, ``alloc="ramp=0.1"``, ``calibration=FILE`` and so on.

    Returns:
        What ``tenfold compress --json`` prints: sizes and rates of each tensor and of all of them.
    """
    source, target = os.path.abspath(input), os.path.abspath(output)
    arguments = _arguments(options)
    cluster = _Cluster.of(engine, cpus, retries)
    count = _count(parts, target, cluster.places * _PARTS_EACH)
    command = [source, "-o", target, "--engine", cluster.engine, "--threads", str(cpus), *arguments]
    if overwrite:
        command.append("--force")
    tasks = [([*command, "--part", f"{number}/{count}"],) for number in range(1, count + 1)]
    report: dict[str, Any] = cluster.run(_run, tasks, (_run, ([*command, "--join"],)), progress, "compress")
    return report


def calibrate(
    model: PathLike,
    output: PathLike,
    *,
    texts: Any = None,
    tokenizer: Any = None,
    context: int = 1024,
    contexts: int | None = None,
    weighted: bool = True,
    max_width: int | None = None,
    seed: int = 0,
    parts: int | None = None,
    cpus: int | None = None,
    engine: str | None = None,
    retries: int = 3,
    fresh: bool = False,
    progress: Progress = False,
) -> dict[str, Any]:
    """Calibrates a causal language model on a Ray cluster, and writes the file that ``calibration=`` of :func:`compress` takes.

    The text is split: each task runs the model on a part of the contexts and leaves its sums in the folder ``OUT.parts``, which
    all nodes must share. A last task adds them. The file is that of :func:`tenfold.torch.calibrate_layers` but for rounding, and
    the same parts give the same bytes. A node that dies costs the parts that it was at: others take them up at the layer where they
    were. A run that was stopped goes on where it was when it is started again. All nodes need torch and transformers.

    Args:
        model: a folder with ``config.json``, safetensors files and a tokenizer, at the same path on all nodes.
        output: the file to write.
        texts: a list of strings or of token ids; or several kinds of text by name, each a list or a pair of a list and its weight.
            Without any, those of :func:`tenfold.transformers.default_texts`.
        tokenizer: for texts that are strings; that of the model by default.
        context: tokens of a context.
        contexts: at most so many of each kind of text.
        weighted: whether tokens and outputs count by gradients of the loss on the model's own samples.
        max_width: columns above which a matrix is kept as blocks on its diagonal, as in :class:`tenfold.torch.Calibration`.
        seed: of the tokens that the model samples.
        parts: into how many parts to split the text [default: as before, if the folder has parts; else two for each task that can
            run at the same time]. Each loads the model and runs the first context once more.
        cpus: cores of a task, which has the whole model in its node's memory [default: all of the smallest node's, or one if
            tasks take GPUs].
        engine: "cpu" or "cuda", for all parts alike [default: "cuda" if the cluster has GPUs]. A task of "cuda" takes a GPU, on
            which one layer lies at a time.
        retries: how many times a part may be lost with its node, or to a failing machine, and be made again.
        fresh: whether to drop what an interrupted run has left for another model, other text or other options.
        progress: True for a tqdm bar, or a function that is called with the parts done and their number.

    Returns:
        ``weights``, how many are calibrated; ``tokens``, how many the most seen of them saw; ``parts``; and ``notes``, as in
        :class:`tenfold.torch.Calibration`.
    """
    source, target = os.path.abspath(model), os.path.abspath(output)
    cluster = _Cluster.of(engine, cpus, retries)
    if fresh:
        cluster.run(_drop, [], (_drop, (target,)), False, "drop")
    count = _count(parts, target, cluster.places * _CALIBRATED_EACH)
    options = {"tokenizer": tokenizer, "context": context, "contexts": contexts, "weighted": weighted, "seed": seed}
    if max_width is not None:
        options["max_width"] = max_width
    # Strings and token ids go to the nodes once, not with each task.
    given = ray.put(_listed(texts))
    about = (source, target, options, cluster.engine, cluster.cpus)
    tasks = [(given, *about, number, count) for number in range(1, count + 1)]
    report: dict[str, Any] = cluster.run(_collect, tasks, (_add, (target, count)), progress, "calibrate")
    for note in report["notes"][:2]:
        warnings.warn(note, stacklevel=2)
    return report


class _Cluster:
    """The cluster that this process is connected to, and what a task takes of it."""

    def __init__(self, engine: str, cpus: int, places: int, retries: int) -> None:
        self.engine, self.cpus, self.places, self._retries = engine, cpus, max(1, places), retries

    @classmethod
    def of(cls, engine: str | None, cpus: int | None, retries: int) -> _Cluster:
        """Connects, if that was not done yet. No number of cores stands for those of the smallest node, or one beside a GPU."""
        if retries < 0 or (cpus is not None and cpus < 1):
            raise ArgumentError("cpus must be positive, and retries not negative")
        if engine not in (None, "cpu", "cuda"):
            raise ArgumentError(f"engine must be 'cpu' or 'cuda', not {engine!r}")
        if not ray.is_initialized():
            ray.init()
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        if engine == "cuda" and gpus < 1:
            raise MachineError("the cluster has no GPU; state engine='cpu'")
        if engine == "cuda" or (engine is None and gpus):
            return cls("cuda", cpus or 1, gpus, retries)
        if cpus is None:
            nodes = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
            cpus = min((cores for cores in nodes if cores), default=1)
        return cls("cpu", cpus, int(resources.get("CPU", 1)) // cpus, retries)

    def run(
        self,
        work: Callable[..., Any],
        tasks: list[tuple[Any, ...]],
        last: tuple[Callable[..., Any], tuple[Any, ...]],
        progress: Progress,
        text: str,
    ) -> Any:
        """Runs all tasks anywhere, then the last one, whose result is returned."""
        task = self._task(work)
        waiting = [task.remote(*arguments) for arguments in tasks]
        try:
            with bar(progress, text, "part") as tell:
                while waiting:
                    done, waiting = ray.wait(waiting)
                    ray.get(done)
                    if tell is not None:
                        tell(len(tasks) - len(waiting), len(tasks))
            finish, arguments = last
            return ray.get(self._task(finish).remote(*arguments))
        except ray.exceptions.RayTaskError as error:
            # The cause is one of ours, but a class that Ray has made around it; what is caught should be what is documented.
            raise (error.cause if isinstance(error.cause, Error) else error) from None
        finally:
            for left in waiting:
                ray.cancel(left)
            if waiting:
                # A call that follows at once should not meet them.
                ray.wait(waiting, num_returns=len(waiting), timeout=_ENDING)

    def _task(self, work: Callable[..., Any]) -> Any:
        return ray.remote(work).options(
            num_cpus=self.cpus,
            num_gpus=1 if self.engine == "cuda" else 0,
            max_retries=self._retries,
            retry_exceptions=[MachineError],
            # Not all on one node: each has a disk, a link and memory of its own.
            scheduling_strategy="SPREAD",
        )


def _made(target: str) -> list[Path]:
    """Parts of an output that are there."""
    return sorted(Path(f"{target}.parts").glob("part-*-of-*"))


def _count(stated: int | None, target: str, usual: int) -> int:
    """Into how many parts to split: an interrupted run goes on with those that it has, whatever the cluster is now."""
    if stated is not None and stated < 1:
        raise ArgumentError("parts must be positive")
    found = {path.name.removesuffix(".safetensors").rpartition("-of-")[2] for path in _made(target)}
    before = found.pop() if len(found) == 1 else ""
    return stated or (int(before) if before.isdigit() else 0) or usual


def _listed(texts: Any) -> Any:
    """Texts that can be sent: what yields them once becomes a list."""
    if isinstance(texts, Mapping):
        return {name: _listed(one) for name, one in texts.items()}
    if isinstance(texts, tuple) and len(texts) == 2 and isinstance(texts[1], (int, float)):
        return (_listed(texts[0]), texts[1])
    return texts if texts is None or isinstance(texts, (str, bytes)) or hasattr(texts, "__len__") else list(texts)


def _collect(
    texts: Any, model: str, output: str, options: dict[str, Any], engine: str, cpus: int, part: int, of: int
) -> None:
    """Makes a part of a calibration on a node."""
    from .transformers._calibrate import calibrate_text_part

    calibrate_text_part(model, output, texts, part, of, device=engine, threads=cpus, **options)


def _add(output: str, of: int) -> dict[str, Any]:
    """Adds all parts of a calibration on a node."""
    from .torch import add_parts

    with warnings.catch_warnings():
        # They are handed back instead.
        warnings.simplefilter("ignore")
        whole = add_parts(output, of)
    tokens = max((layer.tokens for layer in whole.layers.values()), default=0)
    return {"weights": len(whole), "tokens": tokens, "parts": of, "notes": whole.notes}


def _drop(output: str) -> None:
    """Removes the parts of a calibration."""
    from .torch._parts import drop_parts

    drop_parts(Path(output))


def _arguments(options: dict[str, Any]) -> list[str]:
    """Options by name as the command takes them."""
    words: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if flag in ("--part", "--join", "--json", "--force", "--engine", "--threads", "--output"):
            raise ArgumentError(f"{name} is not an option of tenfold.ray.compress")
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, Iterable) and not isinstance(value, (str, os.PathLike)):
            words.extend(f"{flag}={item}" for item in value)
        else:
            # A worker has another folder to start from.
            words.append(f"{flag}={os.path.abspath(value) if name in _FILES else value}")
    return words


def _run(arguments: list[str]) -> dict[str, Any]:
    """Runs the command on a node, in a process of its own that ends with the task."""
    words = [sys.executable, "-m", "tenfold", "compress", *arguments, "--json", "--quiet"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_end_with_parent)
    try:
        out, complaint = process.communicate()
    finally:
        process.kill()
    if process.returncode == 0:
        report: dict[str, Any] = json.loads(out)
        return report
    message = complaint.strip().removeprefix("tenfold: ") or f"the command ended with status {process.returncode}"
    # Killed from outside, most often for memory: worth another try elsewhere.
    raise _ERRORS.get(process.returncode, MachineError if process.returncode < 0 else Error)(message)


def _end_with_parent() -> None:
    """Asks Linux to end the command when the worker ends: a part that nobody waits for should not go on."""
    if sys.platform == "linux":
        import ctypes

        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
