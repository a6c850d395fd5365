"""Keeps an inference process up to date with a trainer: each training step sends a delta, bit for bit.

    python python/examples/weight_sync.py

starts two processes in a group of gloo. Rank 0 trains a small model in bf16; rank 1 has a replica of it and applies what comes.
Every update is acknowledged. Where one does not belong to the replica, since another was lost or came late, the replica stays as
it is, says so, and gets the whole model once.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import tenfold
import tenfold.torch

TRAINER, REPLICA = 0, 1
STEPS = 6
DELTA, WHOLE, END = 0, 1, 2


def make_model() -> torch.nn.Module:
    """The model; tied weights, as language models have them, are sent once for each name and stored once."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(256, 64), torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64), torch.nn.Linear(64, 256)
    )
    model[-1].weight = model[0].weight
    return model.to(torch.bfloat16)


def send(kind: int, data: bytes = b"") -> None:
    """Broadcasts what comes, how long it is, and the bytes."""
    dist.broadcast(torch.tensor([kind, len(data)]), TRAINER)
    if data:
        dist.broadcast(torch.frombuffer(bytearray(data), dtype=torch.uint8), TRAINER)


def receive() -> tuple[int, bytes]:
    """Receives the same."""
    head = torch.empty(2, dtype=torch.int64)
    dist.broadcast(head, TRAINER)
    kind, length = head.tolist()
    data = torch.empty(length, dtype=torch.uint8)
    if length:
        dist.broadcast(data, TRAINER)
    return kind, data.numpy().tobytes()


def acknowledge(is_right: bool) -> None:
    """Tells the trainer whether an update was applied."""
    dist.broadcast(torch.tensor([int(is_right)]), REPLICA)


def was_applied() -> bool:
    """Hears the same."""
    answer = torch.empty(1, dtype=torch.int64)
    dist.broadcast(answer, REPLICA)
    return bool(answer.item())


def train(lose: Callable[[int], bool] = lambda step: False) -> dict[str, Any]:
    """Trains and sends. `lose` says which updates never leave, to show what comes of it."""
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tracker = tenfold.torch.DeltaTracker(model, optimizer)
    sizes, repaired = [], []
    # Both start from the same weights, here since both made them; else this sends them.
    for step in range(STEPS):
        tokens = torch.randint(0, 256, (8, 32), generator=torch.Generator().manual_seed(step))
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(-1, 1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for delta in tracker.collect():
            if lose(step):
                continue
            send(DELTA, delta)
            sizes.append(len(delta))
            if not was_applied():
                # The whole model as a delta of nothing: compressed without loss, and checked as deltas are.
                send(WHOLE, tenfold.delta.make({}, model.state_dict()))
                assert was_applied()
                repaired.append(step)
    send(END, bytes.fromhex(tracker.version))
    nbytes = sum(tensor.nbytes for tensor in model.state_dict().values())
    return {"version": tracker.version, "sizes": sizes, "repaired": repaired, "nbytes": nbytes}


def infer() -> dict[str, Any]:
    """Follows the trainer. A server would answer requests between two updates."""
    model = make_model()
    state, refused = model.state_dict(), []
    while True:
        kind, data = receive()
        if kind == END:
            break
        try:
            if kind == WHOLE:
                model.load_state_dict(tenfold.delta.apply({}, data, device="cpu"))
            else:
                tenfold.delta.apply_(state, data)
        except tenfold.WrongBaseError as error:
            refused.append(str(error))
            acknowledge(False)
        else:
            acknowledge(True)
    version = tenfold.delta.fingerprint(state)
    assert version == data.hex(), "the replica is not the model"
    return {"version": version, "refused": refused}


def run(rank: int, store: str, lost: tuple[int, ...] = ()) -> dict[str, Any]:
    """One of the two processes."""
    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)
    try:
        return train(lambda step: step in lost) if rank == TRAINER else infer()
    finally:
        dist.destroy_process_group()


def main() -> None:
    """Starts both, and says what was sent."""
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        replica = torch.multiprocessing.get_context("spawn").Process(target=run, args=(REPLICA, store))
        replica.start()
        told = run(TRAINER, store)
        replica.join()
    print(f"{len(told['sizes'])} updates of {told['nbytes']} bytes took {told['sizes']} bytes")
    sys.exit(replica.exitcode)


if __name__ == "__main__":
    main()
