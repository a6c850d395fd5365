"""Causal language models: their weights as arrays, and their perplexity on fixed contexts of tokens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from common import llama2c, zoo
from common.registry import cache_folder

DATA = Path(__file__).resolve().parent.parent / "data"
SMOLLM2 = "SmolLM2-135M-Instruct, GGUF Q4_1 dequantised to f32"


@dataclass
class Causal:
    """A model, the contexts it is judged on, and others for what may be chosen with data: slopes, importance."""

    name: str
    model: PreTrainedModel
    judged: torch.Tensor
    """Contexts × tokens."""
    chosen: torch.Tensor
    source: str
    """Where model and tokens come from, in words."""

    def block_weights(self) -> dict[str, np.ndarray]:
        """The matrices of the transformer blocks, as copies. Embeddings and norms stay as they are."""
        state = self.model.state_dict()
        return {name: value.numpy().copy() for name, value in state.items() if _is_block(name, value)}

    def put(self, weights: Mapping[str, np.ndarray]) -> None:
        """Puts weights back into the model."""
        state = self.model.state_dict()
        with torch.no_grad():
            for name, value in weights.items():
                state[name].copy_(torch.from_numpy(np.ascontiguousarray(value)))

    def perplexity(self, contexts: torch.Tensor) -> float:
        """exp of the mean loss over all tokens but the first of each context."""
        total, count = 0.0, 0
        with torch.inference_mode():
            for context in contexts:
                logits = self.model(context[None], use_cache=False).logits[0, :-1]
                total += torch.nn.functional.cross_entropy(logits, context[1:], reduction="sum").item()
                count += len(context) - 1
        return float(np.exp(min(total / count, 700.0)))


def _is_block(name: str, value: torch.Tensor) -> bool:
    return ".layers." in name and value.dim() == 2


@contextlib.contextmanager
def rough_products() -> Iterator[None]:
    """Matrix products that may round to bfloat16, where the processor gains from it: for searches, never for results."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def smollm2(
    text: Path | None,
    contexts: int = 2,
    length: int = 1024,
    *,
    fit_text: Path | None = None,
    fit_contexts: int | None = None,
    between: bool = False,
    folder: Path | None = None,
) -> Causal:
    """SmolLM2-135M-Instruct from GGUF, dequantised to f32, on the start of WikiText-2's test set; what is chosen with
    data sees the start of its validation set, or `fit_contexts` contexts spread over `fit_text`. `between` judges on contexts of
    `fit_text` that lie half-way between two of those: for what is chosen by trying. `folder` has the model as `load_smollm2` takes it."""
    model, tokenizer = load_smollm2(folder)

    def tokens(path: Path) -> torch.Tensor:
        # Only the start is needed; eight characters a token are more than English takes.
        ids = tokenizer(path.read_text(encoding="utf-8")[: contexts * length * 8]).input_ids
        if len(ids) < contexts * length:
            raise ValueError(f"{path} has {len(ids)} tokens; {contexts * length} are needed")
        return torch.tensor(ids[: contexts * length]).view(contexts, length)

    def spread(path: Path, count: int, shift: float = 0.0) -> torch.Tensor:
        ids = tokenizer(path.read_text(encoding="utf-8")).input_ids
        whole = len(ids) // length
        if whole < count:
            raise ValueError(f"{path} has {whole} contexts of {length} tokens; {count} are needed")
        starts = [length * int((index + shift) * whole / count) for index in range(count)]
        return torch.tensor([ids[start : start + length] for start in starts])

    start = DATA / "wikitext2_valid_start.txt"
    if fit_text is None and fit_contexts is None:
        chosen = tokens(start)
    else:
        chosen = spread(fit_text or start, fit_contexts or contexts)
    if between:
        apart = spread(fit_text or start, fit_contexts or contexts, 0.5)
        if any(torch.equal(one, other) for one in apart for other in chosen):
            raise ValueError("there are no contexts between those that bases are made from")
        judged, where = apart[:: max(1, len(apart) // contexts)][:contexts], "contexts between those of bases"
    else:
        judged, where = tokens(text or DATA / "wikitext2_test_start.txt"), text.name if text else "WikiText-2 test"
    return Causal("smollm2", model, judged, chosen, f"{SMOLLM2}; {where}")


def load_smollm2(folder: Path | None = None) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model and its tokenizer; from a folder that `save_smollm2` has filled, if one is stated."""
    if folder is not None:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), tokenizer
    path = zoo.smollm2_gguf()
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    return AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval(), tokenizer


def save_smollm2(folder: Path) -> None:
    """Leaves the model and its tokenizer in a folder, for machines without the package gguf."""
    model, tokenizer = load_smollm2()
    config = model.config.to_dict()
    # What came from GGUF is plain weights by now, and says otherwise.
    config.pop("quantization_config", None)
    with torch.device("meta"):
        plain = type(model)(type(model.config).from_dict(config))
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def stories(contexts: int = 8) -> Causal:
    """stories15M, on stories it tells itself."""
    model = llama2c.load(zoo.stories_bin()).eval()
    path = cache_folder() / f"stories-{contexts}.npy"
    if not path.exists():
        np.save(path, tell(model, 2 * contexts, model.config.max_position_embeddings, seed=1).numpy())
    both = torch.from_numpy(np.load(path))
    source = "stories15M, f32; on samples of its own (temperature 1)"
    return Causal("stories15M", model, both[:contexts], both[contexts:], source)


def tell(model: PreTrainedModel, count: int, length: int, seed: int) -> torch.Tensor:
    """Samples contexts from a model, from the token that starts a text (1)."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.ones(count, 1, dtype=torch.long)
    past, last = None, tokens
    with torch.inference_mode():
        for _ in range(length - 1):
            out = model(last, past_key_values=past, use_cache=True)
            past = out.past_key_values
            last = torch.multinomial(out.logits[:, -1].softmax(-1), 1, generator=generator)
            tokens = torch.cat([tokens, last], dim=1)
    return tokens
