"""What transformers calls while it loads and saves a compressed model.

transformers finds the blobs as tensors of bytes under the weights' own names and puts them in the weights' place. Then they are
decoded, or those of layers stay as they are and each layer gets its weights when it runs.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn
from transformers.cache_utils import StaticCache
from transformers.core_model_loading import ConversionOps, WeightConverter, WeightRenaming, rename_source_key
from transformers.quantizers.base import HfQuantizer

from .._errors import ArgumentError, UnsupportedError
from ..torch.kept import Held, Layers, decode_named, restore
from ._checkpoint import Checkpoint
from ._config import TenfoldConfig
from ._places import stage_of, stages_of
from ._placing import Arrived, place
from ._saving import state_to_save


class TenfoldQuantizer(HfQuantizer):
    """Loads and saves compressed models; registered as ``quant_method: "tenfold"``."""

    quantization_config: TenfoldConfig

    def __init__(self, quantization_config: TenfoldConfig, **kwargs: Any) -> None:
        super().__init__(quantization_config, **kwargs)
        if not hasattr(HfQuantizer, "get_new_dtype"):
            raise UnsupportedError(
                f"transformers {transformers.__version__} does not ask how tensors of a file are cast, without which blobs cannot be "
                "loaded: install transformers 5.22 or newer"
            )
        if not self.pre_quantized:
            raise ArgumentError(
                "the folder is not compressed: run `tenfold compress FOLDER -o SMALL --bits 4` and load SMALL; "
                "a TenfoldConfig says how to load it, it does not compress"
            )
        self._checkpoint = Checkpoint([])
        self._shapes: dict[str, torch.Size] = {}
        self._arrived: dict[str, Arrived] = {}
        self._held: list[Held] = []
        self._decoded: dict[str, str] = {}
        self._layers: Layers | None = None

    @property
    def layers(self) -> Layers | None:
        """The layers whose weights stay compressed, and their buffers."""
        return self._layers

    def validate_environment(self, *args: Any, device_map: Any = None, **kwargs: Any) -> None:
        places = {str(place) for place in device_map.values()} if isinstance(device_map, dict) else {str(device_map)}
        if "disk" in places or ("cpu" in places and len(places) > 1):
            raise UnsupportedError(
                f"the device map puts parts of the model on {' and '.join(sorted(places))}; compressed models are not "
                "offloaded by a device map: name one device, and TenfoldConfig(keep_compressed=True), which takes less memory, or "
                'blobs="pinned" with it, which keeps layers in host memory'
            )

    def _process_model_before_weight_loading(
        self, model: nn.Module, checkpoint_files: list[str] | None = None, **_: Any
    ) -> None:
        if checkpoint_files is None:
            raise ArgumentError("a compressed model is loaded from its folder; a state_dict cannot be passed")
        self._checkpoint = Checkpoint(checkpoint_files)
        self._shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}

    def param_element_size(self, model: nn.Module, param_name: str, param: torch.Tensor) -> float:
        """Bytes a value in memory, by which transformers shares a model among devices and takes memory beforehand."""
        stored = self._checkpoint.blobs.get(param_name)
        keep = self.quantization_config.keep_compressed and stage_of(model, param_name) is not None
        if stored is None or not keep or param.numel() == 0:
            return float(super().param_element_size(model, param_name, param))  # type: ignore[arg-type]
        return stored.stored_bytes / param.numel()

    def get_new_dtype(self, converter: Any, param: Any, dtype: torch.dtype | None) -> torch.dtype | None:
        """Called for each tensor of the files: blobs are not cast, and their target dtype is recorded."""
        if isinstance(converter, WeightRenaming):
            key, name = converter.source_patterns[0], converter.target_patterns[0]
            blob = self._checkpoint.blobs.get(key)
            if blob is not None:
                stored: torch.dtype = getattr(torch, blob.dtype)
                wanted = dtype if dtype is not None and stored.is_floating_point else stored
                self._arrived[name] = Arrived(key, blob.shape, stored, wanted)
                return None
        elif _is_bytes(param):
            return None  # _Decode casts what comes out
        return dtype if _is_float(param) else None

    def update_weight_conversions(self, weight_conversions: list[Any], model: nn.Module | None = None) -> list[Any]:
        """Some models merge tensors of the files into one weight, such as experts: those are decoded before that."""
        converters = [one for one in weight_conversions if isinstance(one, WeightConverter)]
        if self.quantization_config.keep_compressed:
            renamings = [one for one in weight_conversions if isinstance(one, WeightRenaming)]
            for key in self._checkpoint.blobs:
                # In the conversion it would be too late: transformers only logs what goes wrong there.
                if rename_source_key(key, renamings, converters)[1] is not None:
                    raise UnsupportedError(
                        f"transformers makes one weight of {key!r} and others, which cannot stay compressed then; load this "
                        "model with TenfoldConfig(keep_compressed=False)"
                    )
        for converter in converters:
            converter.operations.insert(0, _Decode())
        return weight_conversions

    def _process_model_after_weight_loading(self, model: nn.Module, **_: Any) -> nn.Module:
        config = self.quantization_config
        self._held, self._decoded = place(model, self._arrived, self._shapes, config.keep_compressed)
        self._arrived.clear()
        if config.keep_compressed:
            model.requires_grad_(False)
        if self._held:
            self._layers = Layers(
                model,
                stages_of(model, self._held),
                buffers=config.buffers,
                prefetch=config.prefetch,
                pinned=config.blobs == "pinned",
                wanted=is_step if config.graph else None,
                multiply=config.multiply,
                checksums=config.checksums,
            )
            self._layers.check(self._device_of(model) if config.blobs == "pinned" else None)
        return model

    def _device_of(self, model: nn.Module) -> torch.device | None:
        """Where the model is; blobs in pinned memory say nothing of that."""
        blobs = {id(held.blob()) for held in self._held}
        return next((one.device for one in model.parameters() if id(one) not in blobs), None)

    def _dequantize(self, model: nn.Module, dtype: torch.dtype | None = None) -> nn.Module:
        if self._layers is not None:
            self._layers.remove()
        restore(self._held, self._device_of(model))
        self._layers, self._held, self._decoded = None, [], {}
        for parameter in model.parameters():
            if parameter.is_floating_point():
                # Not model.to: buffers, such as frequencies, keep their precision.
                if dtype is not None and dtype != model.config.dtype:
                    parameter.data = parameter.data.to(dtype)
                parameter.requires_grad_(True)
        return model

    def get_state_dict_and_metadata(self, model: nn.Module) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
        """What ``save_pretrained`` writes."""
        return state_to_save(model, self._held, self._decoded, self._checkpoint)

    def is_serializable(self) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        """Decoded models can be trained."""
        return not self.quantization_config.keep_compressed


class _Decode(ConversionOps):
    """Decodes blobs that transformers is about to merge or to split."""

    def convert(
        self, input_dict: dict[str, Any], source_patterns: list[str], target_patterns: list[str], **kwargs: Any
    ) -> dict[str, list[torch.Tensor]]:
        full_layer_name: str = kwargs["full_layer_name"]
        dtype = kwargs["model"].get_parameter_or_buffer(full_layer_name).dtype
        return {
            key: [
                decode_named(full_layer_name, one, dtype) if one.dtype == torch.uint8 and one.ndim == 1 else one
                for one in (found if isinstance(found, list) else [found])
            ]
            for key, found in input_dict.items()
        }

    @property
    def reverse_op(self) -> ConversionOps:
        """Saving needs no more than what the other operations do."""
        return _Same()


class _Same(ConversionOps):
    """Leaves everything as it is."""

    def convert(
        self, input_dict: dict[str, Any], source_patterns: list[str], target_patterns: list[str], **kwargs: Any
    ) -> dict[str, list[torch.Tensor]]:
        return input_dict

    @property
    def reverse_op(self) -> ConversionOps:
        return self


def is_step(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call adds one token to a cache that does not grow, as ``generate`` does again and again."""
    ids = kwargs.get("input_ids", args[0] if args else None)
    one = isinstance(ids, torch.Tensor) and ids.ndim == 2 and ids.shape[1] == 1
    return one and isinstance(kwargs.get("past_key_values"), StaticCache)


def _is_bytes(param: Any) -> bool:
    """Whether a tensor, or a part of a file that has not been read, holds bytes."""
    return bool(param.get_dtype() == "U8" if hasattr(param, "get_dtype") else param.dtype == torch.uint8)


def _is_float(param: Any) -> bool:
    name = param.get_dtype() if hasattr(param, "get_dtype") else None
    return bool(name.startswith(("F", "BF"))) if name is not None else bool(param.is_floating_point())
