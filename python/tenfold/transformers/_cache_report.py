"""What a cache holds, in numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ._cache_layer import PagedLayer


@dataclass(frozen=True)
class CacheReport:
    """Sizes of a :class:`TenfoldCache`. Pages that several sequences share, as beams do, count once."""

    sequences: int
    # Of each sequence.
    tokens: int
    compressed_tokens: int
    # Bytes of pages, without the basis file, which all caches of a model share.
    compressed_bytes: int
    # Bytes of first and recent tokens.
    exact_bytes: int
    # Bytes of an equal transformers.DynamicCache.
    plain_bytes: int
    # Keys and values in pages.
    compressed_values: int
    # How keys are compressed.
    keys: str

    @property
    def bits(self) -> float:
        """Bits a compressed value, every byte of a page counted; 0 if nothing is compressed yet."""
        return 8 * self.compressed_bytes / self.compressed_values if self.compressed_values else 0.0

    @property
    def ratio(self) -> float:
        """Bytes of an uncompressed cache over those of this one."""
        total = self.compressed_bytes + self.exact_bytes
        return self.plain_bytes / total if total else 1.0

    def __str__(self) -> str:
        return (
            f"{self.sequences} x {self.tokens} tokens, {self.compressed_tokens} of them compressed to {self.bits:.2f} bits a value "
            f"(keys {self.keys}); {self.compressed_bytes} bytes in pages, {self.exact_bytes} exact, {self.ratio:.1f} times smaller"
        )


def report(layers: Iterable[PagedLayer], keys: str) -> CacheReport:
    """Counts."""
    sequences = tokens = compressed = exact = plain = values = 0
    blobs: dict[int, int] = {}
    for layer in layers:
        if not layer.is_initialized:
            continue
        sequences, tokens = len(layer.padding), max(tokens, layer.get_seq_length())
        compressed = max(compressed, sum(page.kept for page in layer.pages))
        exact += sum(states.numel() * states.element_size() for states in (*layer.first, *layer.last))
        width = sum(heads * columns for heads, columns in layer.widths)
        plain += layer.get_seq_length() * sequences * width * layer.dtype.itemsize
        for page in layer.pages:
            distinct = {id(blob): len(blob) for blob in page.blobs}
            blobs.update(distinct)
            values += len(distinct) * page.tokens * width
    return CacheReport(
        sequences=sequences,
        tokens=tokens,
        compressed_tokens=compressed,
        compressed_bytes=sum(blobs.values()),
        exact_bytes=exact,
        plain_bytes=plain,
        compressed_values=values,
        keys=keys,
    )
