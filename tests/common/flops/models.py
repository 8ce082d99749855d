"""Tiny models of the architectures that are trained, built in code, and a measurement of what their forward costs."""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from akka_otel_callbacks.common.flops import MatmulParameters, matmul_parameters

BATCH, LENGTH = 2, 24
TOKENS = BATCH * LENGTH

_COMMON = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 20,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
}
_DEEPSEEK_MOE = {
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "n_shared_experts": 2,
    "moe_intermediate_size": 28,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
_QWEN_MOE = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 28, "decoder_sparse_step": 2}
_ALTERNATE = {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 7}
_QWEN_WINDOWS = {"use_sliding_window": True, "max_window_layers": 2, "sliding_window": 7}
_WIDE_HEADS = {"head_dim": 20}  # not hidden_size / num_attention_heads

# What each architecture sets beside `_COMMON`, by `model_type`.
TEXT_MODELS: dict[str, dict[str, Any]] = {
    "apertus": {},
    "cohere": {},
    "cohere2": _ALTERNATE,
    "deepseek_v2": {**_LATENT, **_DEEPSEEK_MOE, "q_lora_rank": None},
    "deepseek_v3": {**_LATENT, **_DEEPSEEK_MOE},
    "ernie4_5": _WIDE_HEADS,
    "exaone4": _ALTERNATE,
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 2},
    "gemma": {**_WIDE_HEADS, "num_key_value_heads": 1},
    "gemma2": {**_WIDE_HEADS, **_ALTERNATE},
    "gemma3_text": {**_WIDE_HEADS, **_ALTERNATE},
    "glm": {"head_dim": 12},
    "glm4": {"head_dim": 12},
    "glm4_moe": {**_DEEPSEEK_MOE, **_WIDE_HEADS},
    "gpt2": {"n_embd": 48, "n_layer": 4, "n_head": 4, "n_positions": 64, "n_inner": None},
    "gpt_neox": {},
    "gpt_oss": {**_WIDE_HEADS, **_ALTERNATE, "num_local_experts": 6, "num_experts_per_tok": 2},
    "granite": {},
    "hunyuan_v1_dense": {"head_dim": 12},
    "llama": {},
    "ministral": {**_WIDE_HEADS, **_ALTERNATE},
    "ministral3": {**_WIDE_HEADS, "sliding_window": 7},
    "mistral": {**_WIDE_HEADS, "sliding_window": 7},
    "mixtral": {"sliding_window": 7, "num_local_experts": 6, "num_experts_per_tok": 2},
    "olmo": {},
    "olmo2": {},
    "olmo3": _ALTERNATE,
    "olmoe": {"num_experts": 6, "num_experts_per_tok": 2},
    "phi": {},
    "phi3": {"sliding_window": 7},
    "phimoe": {"sliding_window": 7, "num_local_experts": 6, "num_experts_per_tok": 2},
    "qwen2": _QWEN_WINDOWS,
    "qwen2_moe": {**_QWEN_MOE, "shared_expert_intermediate_size": 52},
    "qwen3": {**_WIDE_HEADS, **_QWEN_WINDOWS},
    "qwen3_moe": {**_WIDE_HEADS, **_QWEN_WINDOWS, **_QWEN_MOE, "mlp_only_layers": [3], "decoder_sparse_step": 1},
    "seed_oss": _WIDE_HEADS,
    "smollm3": {"use_sliding_window": True, "sliding_window": 7},
    "stablelm": {"num_attention_heads": 2, "num_key_value_heads": 1},
    "starcoder2": {"sliding_window": 7},
}

_ROPE = "rope_parameters" if transformers.__version__ >= "5" else "rope_scaling"
_ROTARY_3D = {_ROPE: {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 2, 2]}}

# Multimodal models: what their text section sets beside `_COMMON`, and their vision section.
MULTIMODAL_MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gemma3": ({**_WIDE_HEADS, **_ALTERNATE}, {"model_type": "siglip_vision_model"}),
    "llava": ({"model_type": "llama"}, {"model_type": "clip_vision_model", "projection_dim": 16}),
    "qwen2_vl": (_ROTARY_3D, {"embed_dim": 16, "hidden_size": 48}),
    "qwen2_5_vl": (_ROTARY_3D, {"fullatt_block_indexes": [0]}),
    "qwen3_vl": ({**_ROTARY_3D, "head_dim": 12}, {"deepstack_visual_indexes": [0]}),
    "qwen3_vl_moe": ({**_ROTARY_3D, **_QWEN_MOE, "head_dim": 12}, {"deepstack_visual_indexes": [0]}),
}
_VISION = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "depth": 1,
    "num_heads": 2,
    "image_size": 28,
    "patch_size": 14,
    "out_hidden_size": 48,
}


def tiny_config(model_type: str, **settings: Any) -> Any:
    """The configuration of a tiny model, with eager attention and experts, whose products torch can count.

    Raises:
        KeyError: this version of transformers does not have the architecture.
    """
    config_class = transformers.CONFIG_MAPPING[model_type]
    if model_type in MULTIMODAL_MODELS:
        text, vision = MULTIMODAL_MODELS[model_type]
        config = config_class(
            text_config={**_COMMON, **text, **settings}, vision_config={**_VISION, **vision}, image_token_id=95
        )
    else:
        known = {
            *inspect.signature(config_class.__init__).parameters,
            *getattr(config_class, "__dataclass_fields__", ()),
        }
        common = {name: value for name, value in _COMMON.items() if name in known}
        config = config_class(**{**common, **TEXT_MODELS.get(model_type, {}), **settings})
    for section in (config, config.get_text_config()):
        section._attn_implementation = "eager"
        section._experts_implementation = "eager"
    return config


def tiny_model(config: Any) -> torch.nn.Module:
    """A model of this configuration with random weights, in training mode without dropout."""
    torch.manual_seed(0)
    multimodal = config.get_text_config() is not config
    auto = transformers.AutoModelForImageTextToText if multimodal else transformers.AutoModelForCausalLM
    model = auto.from_config(config).float().train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


@functools.cache
def sample(model_type: str) -> tuple[Any, MatmulParameters | None, Measured]:
    """The configuration of a tiny model, the count on the live model, and what its forward pass was measured to cost.

    Skips the test that asks for an architecture which this version of transformers does not have.
    """
    if model_type not in transformers.CONFIG_MAPPING:
        pytest.skip(f"this version of transformers has no {model_type}")
    config = tiny_config(model_type)
    model = tiny_model(config)
    return config, matmul_parameters(model), measure(model)


@dataclass(frozen=True)
class Measured:
    """FLOPs of a pass: of linear layers, and of attention, of which only what the masks let through."""

    linear: int
    attention: Fraction


def batch(length: int = LENGTH) -> torch.Tensor:
    """Token ids of shape (BATCH, length)."""
    return torch.randint(3, 90, (BATCH, length), generator=torch.Generator().manual_seed(0))


def measure(model: torch.nn.Module, length: int = LENGTH) -> Measured:
    """Measures a forward pass with torch's own counter.

    With eager attention and experts a linear layer is an `mm` or `addmm` (or, among the experts of transformers 4, a
    `bmm` over a batch of one) and attention a `bmm`. Eager attention multiplies every query with every key and masks
    afterwards, so each layer's products are scaled by the share of its own mask that lets through: what a kernel does
    that skips what is masked.
    """
    let_through: dict[str, Fraction] = {}

    def see(name: str) -> Any:
        def hook(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
            mask = kwargs.get("attention_mask")
            if isinstance(mask, torch.Tensor) and mask.ndim == 4:
                visible = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
                let_through[name] = Fraction(
                    int(visible[..., :length].sum()), mask.shape[0] * mask.shape[1] * length**2
                )

        return hook

    hooks = [module.register_forward_pre_hook(see(name), with_kwargs=True) for name, module in model.named_modules()]
    with FlopCounterMode(display=False) as counter:
        model(input_ids=batch(length), use_cache=False)
    for hook in hooks:
        hook.remove()
    by_module = {name.partition(".")[2]: _by_product(counts) for name, counts in counter.get_flop_counts().items()}
    linear = _by_product(counter.get_flop_counts()["Global"])
    experts = [name for name in by_module if name.endswith(".experts")]
    attention = [name for name in let_through if name.rpartition(".")[2] in _ATTENTION]
    return Measured(
        linear=linear["mm"] + linear["addmm"] + sum(by_module[name]["bmm"] for name in experts),
        attention=sum((by_module[name]["bmm"] * let_through[name] for name in attention), Fraction()),
    )


_ATTENTION = ("self_attn", "attn", "attention", "self_attention")


def _by_product(counts: dict[Any, int]) -> Counter[str]:
    return Counter({operator.__name__: flops for operator, flops in counts.items()})
