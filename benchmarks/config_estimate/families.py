"""The architectures with a FLOPs estimate, by `model_type`: which attention, feed-forward part and window each has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from akka_otel_callbacks.common.flops.module import MatmulParameters
from benchmarks.config_estimate.architecture import Architecture, Attention, Settings, Undescribed


def _hidden(settings: Settings) -> int:
    return int(settings("hidden_size", "n_embd"))


# Attention: the parameters of a layer's projections; its heads and the sizes of their keys and values.


def _grouped_query(settings: Settings) -> tuple[int, tuple[int, int, int]]:
    heads = settings("num_attention_heads", "n_head")
    return _projections(settings, heads, settings.get("num_key_value_heads") or heads)


def _falcon(settings: Settings) -> tuple[int, tuple[int, int, int]]:
    heads = settings("num_attention_heads")
    if settings.get("new_decoder_architecture"):
        return _projections(settings, heads, settings("num_kv_heads"))
    return _projections(settings, heads, 1 if settings.get("multi_query") else heads)


def _projections(settings: Settings, heads: int, groups: int) -> tuple[int, tuple[int, int, int]]:
    """Query and output for each head, key and value for each group of heads."""
    size = settings.get("head_dim") or _hidden(settings) // heads
    return 2 * _hidden(settings) * size * (heads + groups), (heads, size, size)


def _latent(settings: Settings) -> tuple[int, tuple[int, int, int]]:
    """Multi-head latent attention: keys and values, and mostly queries, pass through a low rank."""
    hidden, heads = _hidden(settings), settings("num_attention_heads")
    rotary, value_size = settings("qk_rope_head_dim"), settings("v_head_dim")
    key_size = settings("qk_nope_head_dim") + rotary
    query_rank, rank = settings.get("q_lora_rank"), settings("kv_lora_rank")
    query = query_rank * (hidden + heads * key_size) if query_rank else hidden * heads * key_size
    down, up = hidden * (rank + rotary), rank * heads * (key_size - rotary + value_size)
    return query + down + up + heads * value_size * hidden, (heads, key_size, value_size)


# Feed-forward: the parameters that one token meets in a layer.


def _gated(settings: Settings, layer: int) -> int:
    return 3 * _hidden(settings) * int(settings("intermediate_size"))


def _plain(settings: Settings, layer: int) -> int:
    size = settings.get("intermediate_size", "ffn_hidden_size", "n_inner") or 4 * _hidden(settings)
    return 2 * _hidden(settings) * int(size)


def _routed(settings: Settings, expert_size: int) -> int:
    """The router, and of the experts those that a token is sent to."""
    experts = settings("num_local_experts", "num_experts", "n_routed_experts")
    return _hidden(settings) * int(experts + 3 * settings("num_experts_per_tok") * expert_size)


def _experts(settings: Settings, layer: int) -> int:
    return _routed(settings, settings("intermediate_size"))


def _qwen_moe(settings: Settings, layer: int) -> int:
    """Experts in every n-th layer; Qwen2's beside one that is shared and weighed by a gate of its own."""
    if layer in (settings.get("mlp_only_layers") or ()) or (layer + 1) % (settings.get("decoder_sparse_step") or 1):
        return _gated(settings, layer)
    shared_size = settings.get("shared_expert_intermediate_size")
    shared = _hidden(settings) * (3 * shared_size + 1) if shared_size else 0
    return _routed(settings, settings("moe_intermediate_size")) + shared


def _deepseek_moe(settings: Settings, layer: int) -> int:
    """Experts, some of them shared, after the first layers."""
    if layer < (settings.get("first_k_dense_replace") or 0):
        return _gated(settings, layer)
    size = int(settings("moe_intermediate_size"))
    return _routed(settings, size) + 3 * _hidden(settings) * size * int(settings.get("n_shared_experts") or 0)


# Windows: how many tokens back a layer sees, None for all.


def _unlimited(settings: Settings, layer: int) -> int | None:
    return None


def _everywhere(settings: Settings, layer: int) -> int | None:
    window: int | None = settings.get("sliding_window")
    return None if settings.get("use_sliding_window") is False else window


def _by_layer(settings: Settings, layer: int) -> int | None:
    if settings.get("use_sliding_window") is False:
        return None
    kind = settings("layer_types")[layer]
    if kind == "full_attention":
        return None
    if kind == "sliding_attention":
        return int(settings("sliding_window"))
    raise Undescribed(f"its layers of type {kind} have no description")


@dataclass(frozen=True, slots=True)
class Family:
    """How architectures of one make are read from their configuration. Every one has an output head."""

    attention: Callable[[Settings], tuple[int, tuple[int, int, int]]] = _grouped_query
    feed_forward: Callable[[Settings, int], int] = _gated
    window: Callable[[Settings, int], int | None] = _unlimited

    def read(self, settings: Settings) -> Architecture:
        layers = range(settings("num_hidden_layers", "n_layer"))
        projections, sizes = self.attention(settings)
        parameters = sum(projections + self.feed_forward(settings, layer) for layer in layers)
        return Architecture(
            MatmulParameters(parameters, head=_hidden(settings) * int(settings("vocab_size"))),
            tuple(Attention(*sizes, self.window(settings, layer)) for layer in layers),
        )


_LLAMA = Family()
_WINDOWED = Family(window=_everywhere)
_ALTERNATING = Family(window=_by_layer)

FAMILIES = {
    "apertus": Family(feed_forward=_plain),
    "cohere": _LLAMA,
    "cohere2": _ALTERNATING,
    "deepseek_v2": Family(_latent, _deepseek_moe),
    "deepseek_v3": Family(_latent, _deepseek_moe),
    "ernie4_5": _LLAMA,
    "exaone4": _ALTERNATING,
    "falcon": Family(_falcon, _plain),
    "gemma": _LLAMA,
    "gemma2": _ALTERNATING,
    "gemma3_text": _ALTERNATING,
    "glm": _LLAMA,
    "glm4": _LLAMA,
    "glm4_moe": Family(feed_forward=_deepseek_moe),
    "gpt2": Family(feed_forward=_plain),
    "gpt_neox": Family(feed_forward=_plain),
    "gpt_oss": Family(feed_forward=_experts, window=_by_layer),
    "granite": _LLAMA,
    "hunyuan_v1_dense": _LLAMA,
    "llama": _LLAMA,
    "ministral": _ALTERNATING,
    "ministral3": _WINDOWED,
    "mistral": _WINDOWED,
    "mixtral": Family(feed_forward=_experts, window=_everywhere),
    "olmo": _LLAMA,
    "olmo2": _LLAMA,
    "olmo3": _ALTERNATING,
    "olmoe": Family(feed_forward=_experts),
    "phi": Family(feed_forward=_plain),
    "phi3": _WINDOWED,
    "phimoe": Family(feed_forward=_experts, window=_everywhere),
    "qwen2": _ALTERNATING,
    "qwen2_5_vl_text": _ALTERNATING,
    "qwen2_moe": Family(feed_forward=_qwen_moe, window=_by_layer),
    "qwen2_vl_text": _ALTERNATING,
    "qwen3": _ALTERNATING,
    "qwen3_moe": Family(feed_forward=_qwen_moe, window=_everywhere),
    "qwen3_vl_moe_text": Family(feed_forward=_qwen_moe),
    "qwen3_vl_text": _LLAMA,
    "seed_oss": _LLAMA,
    "smollm3": _ALTERNATING,
    "stablelm": _LLAMA,
    "starcoder2": Family(feed_forward=_plain, window=_everywhere),
}
