"""The kinds of module that a language model is made of, and how many matmul parameters of each one token meets."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

# How the weights of batched experts are named, each of shape (experts, …, …). Any other name may be the scales of a
# quantised weight.
_EXPERT_WEIGHTS = {"gate_up_proj", "gate_proj", "up_proj", "down_proj", "weight", "w1", "w2", "w3"}

# What models and their configurations call the experts of a layer, and how many of them one token is sent to. A
# module's own `top_k` comes first; a configuration's is a sampling parameter.
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_EXPERTS_PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_k", "moe_topk")

# PEFT's adapters that add no matrix product: they replace rows of a weight, scale a layer's input or output (IA3), or
# train a norm.
_WITHOUT_MATRICES = ("trainable_tokens_delta", "ia3_l", "ln_tuning_layers")

_CROSS_ATTENTION = {"cross_attn", "crossattention", "cross_attention", "encoder_attn"}


class Uncountable(Exception):
    """The model has a part of which it is not known how often a token meets it. The text names the part."""


@dataclass(frozen=True, slots=True)
class Place:
    """A module of the model, its dotted path and the module that holds it."""

    module: Any
    path: str
    parent: Any = None

    def child(self, name: str) -> Place:
        return Place(self.module._modules[name], f"{self.path}.{name}".lstrip("."), self.module)

    def children(self) -> list[Place]:
        return [self.child(name) for name, module in self.module._modules.items() if module is not None]

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Logical shapes of the module's own parameters, vectors (biases, norms) left out."""
        own = {name: _shape(weight) for name, weight in self.module._parameters.items() if weight is not None}
        return {name: shape for name, shape in own.items() if sum(size > 1 for size in shape) > 1 and name != "A_log"}


@dataclass(slots=True)
class Walk:
    """Adds up a tree of modules. Every matrix in it is of a known kind, or the walk ends with `Uncountable`.

    Attributes:
        config: the model's configuration, asked for what the modules do not say of themselves.
        apart: a module that stands in the tree but is counted apart from it.
    """

    config: Any
    apart: Any = None
    seen: set[int] = field(default_factory=set)

    def parameters(self, place: Place) -> int:
        """Matmul parameters that one token meets in this module and below it."""
        if place.module is self.apart:
            return 0
        if id(place.module) in self.seen and next(place.module.parameters(), None) is not None:
            raise Uncountable(f"{place.path} stands in the model twice, and a token may meet it twice")
        self.seen.add(id(place.module))
        if place.path.rpartition(".")[2] in _CROSS_ATTENTION:
            raise Uncountable(f"{place.path} attends to something else than the batch's tokens")
        return next(count for kind in _KINDS if (count := kind(self, place)) is not None)

    def below(self, place: Place) -> int:
        return sum(self.parameters(child) for child in place.children())


def _adapted(walk: Walk, place: Place) -> int | None:
    """A layer wrapped by PEFT: the layer itself and, for LoRA and AdaLoRA, the A and B of each adapter in use."""
    if "base_layer" not in place.module._modules:
        return None
    layer, base = place.module, walk.parameters(Place(place.module.base_layer, place.path, place.parent))
    if any(hasattr(layer, name) for name in _WITHOUT_MATRICES):
        return base
    if not hasattr(layer, "lora_A"):
        raise Uncountable(f"{place.path} is adapted by {type(layer).__name__}, which is not LoRA")
    if hasattr(layer, "parameter_name"):  # adds the product of B and A to the weight: work per pass, not per token
        return base
    return base + sum(_lora(layer, adapter) for adapter in _in_use(layer))


def _in_use(layer: Any) -> list[str]:
    return [] if layer.disable_adapters or layer.merged_adapters else list(layer.active_adapters)


def _lora(layer: Any, adapter: str) -> int:
    """A and B of one adapter; AdaLoRA's are bare matrices. Of an embedding's, A is looked up like it and only B
    is multiplied."""
    if adapter in layer.lora_embedding_B:
        return math.prod(_shape(layer.lora_embedding_B[adapter]))
    halves = [half[adapter] for half in (layer.lora_A, layer.lora_B) if adapter in half]
    return sum(math.prod(_shape(getattr(half, "weight", half))) for half in halves)


def _copied(walk: Walk, place: Place) -> int | None:
    """PEFT's `modules_to_save`: the adapter's own copy runs, the original behind it does not."""
    if "modules_to_save" not in place.module._modules:
        return None
    copies = place.module.modules_to_save
    running = [copies[adapter] for adapter in _in_use(place.module) if adapter in copies]
    return walk.parameters(Place((running or [place.module.original_module])[0], place.path, place.parent))


def _lookup(walk: Walk, place: Place) -> int | None:
    from torch import nn

    return 0 if isinstance(place.module, nn.Embedding) else None


def _linear(walk: Walk, place: Place) -> int | None:
    """`nn.Linear`, GPT-2's `Conv1D` and the quantised layers that stand for them, whatever shape they store."""
    from torch import nn

    module, name = place.module, type(place.module).__name__
    if name == "Conv1D":
        return math.prod(_shape(module.weight))
    if not isinstance(module, nn.Linear) and "Linear" not in name:
        return None
    if "Grouped" in name:
        raise Uncountable(f"{place.path} is a {name}, of which a token meets a part")
    for sides in (("in_features", "out_features"), ("infeatures", "outfeatures")):
        features = [size for side in sides if isinstance(size := getattr(module, side, None), int)]
        if len(features) == 2:
            return _checked(math.prod(features), place)
    if name.endswith("Linear") and not place.children():
        raise Uncountable(f"{place.path} is a {name}, which does not say its features")
    return None


def _checked(features: int, place: Place) -> int:
    """What a layer says of its size, which is wrong where its weight is a matrix of another: a shard, or patched."""
    from torch import nn

    weight = place.module.weight if isinstance(place.module, nn.Linear) else None
    if weight is not None and weight.is_floating_point() and math.prod(_shape(weight)) != features:
        raise Uncountable(f"{place.path} has {features} parameters by its features, but a weight of {_shape(weight)}")
    return features


def _expert_list(walk: Walk, place: Place) -> int | None:
    """Experts that are modules of their own, as transformers 4 has them."""
    from torch import nn

    if not (isinstance(place.module, nn.ModuleList) and place.path.endswith("experts")):
        return None
    of_each = {walk.parameters(expert) for expert in place.children()}
    if len(of_each) != 1:
        raise Uncountable(f"{place.path} are not all of one size")
    return of_each.pop() * _experts_met(walk, place, len(place.module))


def _expert_tensors(walk: Walk, place: Place) -> int | None:
    """Experts batched into tensors of shape (experts, …, …), as transformers 5 has them."""
    weights = {name: shape for name, shape in place.weights().items() if not name.endswith("bias")}
    if not any(len(shape) == 3 for shape in weights.values()) or _is_convolution(place.module):
        return None
    for name, shape in weights.items():
        if len(shape) != 3 or name not in _EXPERT_WEIGHTS or not place.module._parameters[name].is_floating_point():
            raise Uncountable(f"{place.path}.{name}, a weight of shape {shape}, is not that of known experts")
    per_expert = sum(math.prod(shape[1:]) for shape in weights.values())
    return per_expert * _experts_met(walk, place, next(iter(weights.values()))[0])


def _experts_met(walk: Walk, place: Place, experts: int) -> int:
    """How many of these experts one token meets: all that are shared, the top-k of those that it is routed to."""
    if "shared" in place.path:
        return experts
    siblings = place.parent._modules.values() if place.parent is not None else ()
    modules = (place.module, place.parent, *siblings)
    sources = [(module, "top_k") for module in modules]
    sources += [(holder, name) for holder in (*modules, walk.config) for name in _EXPERTS_PER_TOKEN]
    for holder, name in sources:
        if isinstance(count := getattr(holder, name, None), int):
            return count
    raise Uncountable(f"{place.path}: nothing says how many of its experts one token is sent to")


def _router(walk: Walk, place: Place) -> int | None:
    """A router that holds its matrix, of shape (experts, hidden), itself."""
    weights = place.weights()
    experts = {getattr(holder, name, None) for holder in (place.module, walk.config) for name in _EXPERTS}
    if set(weights) == {"weight"} and len(weights["weight"]) == 2 and weights["weight"][0] in experts:
        return math.prod(weights["weight"]) + walk.below(place)
    return None


def _convolution(walk: Walk, place: Place) -> int | None:
    """A depthwise convolution, as in state-space and hybrid layers, is no matrix product; any other is one."""
    if not _is_convolution(place.module):
        return None
    if place.module.groups != place.module.in_channels:
        raise Uncountable(f"{place.path} is a convolution over channels")
    return 0


def _is_convolution(module: Any) -> bool:
    from torch import nn

    return isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d))


def _container(walk: Walk, place: Place) -> int:
    """Anything else holds modules and vectors. A matrix of its own takes part in a way that is not known."""
    for name, shape in place.weights().items():
        raise Uncountable(f"{place.path}.{name}, a matrix of shape {shape}, is of no known kind")
    return walk.below(place)


def _shape(weight: Any) -> tuple[int, ...]:
    """The shape that a weight stands for: packed to 4 bits and partitioned by ZeRO-3 it is stored as another."""
    quantised = getattr(getattr(weight, "quant_state", None), "shape", None)
    return tuple(quantised or getattr(weight, "ds_shape", None) or weight.shape)


# The first kind that a module is of decides.
_KINDS: tuple[Callable[[Walk, Place], int | None], ...] = (
    _adapted,
    _copied,
    _lookup,
    _linear,
    _expert_list,
    _expert_tensors,
    _router,
    _convolution,
    _container,
)
