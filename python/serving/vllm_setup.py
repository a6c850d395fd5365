"""How tests set vLLM up before they import it, and what they hear of the connector in its log. Needs nothing of vLLM itself."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

# Read when vLLM is imported.
os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_LOGGING_LEVEL="WARNING", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1"
)


@contextmanager
def said() -> Iterator[list[str]]:
    """What the connector says in vLLM's log."""
    messages: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logger, handler = logging.getLogger("vllm.tenfold"), Kept(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
