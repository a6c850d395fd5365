"""An engine as far as a bench needs one: a batch that generates token after token over raw keys and values in blocks on the device.

All sequences have the same length, and a sequence's blocks lie side by side, so torch's own attention reads them where they are. A new
token takes the place of the oldest, so that every step attends to as many tokens. A step is a CUDA graph if the device has graphs; the
host is told the tokens of a step while the next one runs, as engines do.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from _kv_made import Made, build, rotary
from torch.nn.functional import scaled_dot_product_attention

# Tokens of a block.
BLOCK = 16
# The name under which attention is known to transformers.
ATTENTION = "tenfold-engine"
# Steps before a graph is captured.
_WARM = 3


class Engine:
    """A model, its batch and its blocks.

    Args:
        made: what keys and values are made of.
        config: of the model.
        batch: sequences.
        context: tokens of each, whole blocks.
        more: tokens in blocks behind those of the sequences, which steps leave alone.
        graph: whether steps are a CUDA graph.
    """

    def __init__(self, made: Made, config: Any, *, batch: int, context: int, more: int, graph: bool) -> None:
        from transformers import AttentionInterface

        self.shape, self.device, self.batch, self.context = made.shape, made.device, batch, context
        self.model = build(config, made.device)
        AttentionInterface.register(ATTENTION, _attention)
        for layer in self.model.model.layers:
            layer.self_attn.config._attn_implementation = ATTENTION
        # cuDNN plans attention anew for every length.
        torch.backends.cuda.enable_cudnn_sdp(False)
        size = ((batch * context + more) // BLOCK, BLOCK, self.shape.kv_heads, self.shape.head)
        # Keys and values of each layer, in blocks.
        self.pools = [
            [torch.empty(size, dtype=torch.bfloat16, device=self.device) for _ in range(self.shape.layers)] for _ in range(2)
        ]
        self._fill(made, more)
        # The blocks of the batch, (sequence, token, head, column).
        own = batch * context // BLOCK
        self._own = [[pool[:own].view(batch, context, *size[2:]) for pool in side] for side in self.pools]
        self._turns = self._table(config)
        self._tokens = torch.ones((batch, 1), dtype=torch.long, device=self.device)
        # Where the next token goes; the same for all sequences.
        self._at = torch.zeros(1, dtype=torch.long, device=self.device)
        self.steps = 0
        self._told: deque[tuple[torch.Tensor, Any]] = deque()
        on_cuda = self.device.type == "cuda"
        self._host = [torch.empty((batch, 1), dtype=torch.long, pin_memory=True) for _ in range(2)] if on_cuda else []
        self._graph = self._captured() if graph and self.device.type == "cuda" else None

    @property
    def graph(self) -> bool:
        """Whether steps are a graph."""
        return self._graph is not None

    def step(self) -> None:
        """Generates a token of each sequence, and waits for those of the step before."""
        if self._graph is None:
            self._step()
        else:
            self._graph.replay()
        self.steps += 1
        if self.device.type == "cuda":
            host = self._host[self.steps % 2].copy_(self._tokens, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
            self._told.append((host, event))
            if len(self._told) > 1:
                self._told.popleft()[1].synchronize()

    def wait(self) -> None:
        """Waits for all steps."""
        self._told.clear()
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def check(self) -> None:
        """Raises if the last tokens are none, or the first layer has no numbers in it."""
        if not bool(((self._tokens >= 0) & (self._tokens < self.shape.vocabulary)).all()):
            raise RuntimeError("a token is none of the vocabulary")
        if not all(bool(torch.isfinite(side[-1]).all()) for side in self._own):
            raise RuntimeError("keys or values of the last layer are not finite")

    # For the model's layers, which take it for a cache.

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int, *args: Any, **kwargs: Any) -> Any:
        """Writes a new token of each sequence, and returns all of them: (sequence, head, token, column)."""
        for side, new in zip(self._own, (keys, values)):
            side[layer].index_copy_(1, self._at, new.transpose(1, 2))
        return tuple(side[layer].transpose(1, 2) for side in self._own)

    def _step(self) -> None:
        inside = self.model.model
        hidden = inside.embed_tokens(self._tokens)
        turns = tuple(table.index_select(0, self._at)[None].expand(self.batch, -1, -1) for table in self._turns)
        for layer in inside.layers:
            hidden = layer(hidden, attention_mask=None, position_embeddings=turns, past_key_values=self)
        logits = self.model.lm_head(inside.norm(hidden))[:, -1]
        self._tokens.copy_(logits.argmax(-1, keepdim=True))
        self._at.add_(1).remainder_(self.context)

    def _captured(self) -> Any:
        """A graph of a step; None, and a line that says why, if there is none."""
        current = torch.cuda.current_stream(self.device)
        # The kernels of a graph have the priority of the stream that it was captured on.
        beside = torch.cuda.Stream(self.device, priority=current.priority)
        beside.wait_stream(current)
        with torch.cuda.stream(beside):
            for _ in range(_WARM):
                self._step()
        torch.cuda.synchronize(self.device)
        graph: Any = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=beside):
                self._step()
        except RuntimeError as error:
            print(f"steps are no graph: {error}", flush=True)
            graph = None
        torch.cuda.synchronize(self.device)
        # Steps so far do not count.
        self._at.zero_()
        return graph

    def _fill(self, made: Made, more: int) -> None:
        """Puts made-up tokens into all blocks: the same into each sequence, and behind them."""
        places = [(one * self.context, self.context) for one in range(self.batch)] + [(self.batch * self.context, more)]
        for side, layers in enumerate(self.pools):
            for number, pool in enumerate(layers):
                flat = pool.view(-1, *pool.shape[2:])
                for start, rows in made.parts(number, side, max(self.context, more)):
                    for first, room in places:
                        count = max(min(len(rows), room - start), 0)
                        flat[first + start : first + start + count] = rows[:count]

    def _table(self, config: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """The rotary embedding of all positions."""
        like = torch.empty(1, dtype=torch.bfloat16, device=self.device)
        cos, sin = rotary(config, self.device)(like, torch.arange(self.context, device=self.device)[None])
        return cos[0], sin[0]


def _attention(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **kwargs: Any) -> Any:
    found = scaled_dot_product_attention(query, key, value, scale=kwargs["scaling"], enable_gqa=True)
    return found.transpose(1, 2), None
