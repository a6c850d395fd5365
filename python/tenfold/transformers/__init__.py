"""Models that ``tenfold compress`` made from Hugging Face folders, and compressed key-value caches, in transformers.

Importing this registers ``quant_method: "tenfold"``, so that ``from_pretrained`` loads such folders::

    import tenfold.transformers
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained("small")                       # decoded while it loads
    model = AutoModelForCausalLM.from_pretrained(
        "small", quantization_config=tenfold.transformers.TenfoldConfig(keep_compressed=True)
    )                                                                           # stays compressed in memory

:class:`TenfoldCache` is for ``generate(past_key_values=…)`` and works with any model::

    cache = tenfold.transformers.TenfoldCache(model.config, bits=2.5)

docs/transformers.md and docs/kv-cache.md have examples that run.
"""

try:
    import transformers as _transformers  # noqa: F401 - only to say what is missing
except ImportError as error:
    raise ImportError("tenfold.transformers needs transformers: pip install 'tenfold[transformers]'") from error

from ._bases import fit_bases
from ._cache import TenfoldCache
from ._cache_report import CacheReport
from ._compress import CompressReport, compress
from ._config import TenfoldConfig
from ._mixture import default_texts
from ._quantizer import TenfoldQuantizer
from ._register import register

register()

__all__ = ["CacheReport", "CompressReport", "TenfoldCache", "TenfoldConfig", "TenfoldQuantizer", "compress", "default_texts", "fit_bases"]
