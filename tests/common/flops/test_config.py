"""The estimate from the configuration against the count on the live model and the attention measured on it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.flops import train_flops
from benchmarks.config_estimate.architecture import Attention
from benchmarks.config_estimate.estimate import architecture, estimate_from_config
from benchmarks.config_estimate.families import FAMILIES

MIXTRAL_8X7B = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
    "sliding_window": None,
}
QWEN2_5_0_5B = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "use_sliding_window": False,
    "tie_word_embeddings": True,
}


def models() -> list[str]:
    from tests.common.flops.models import MULTIMODAL_MODELS, TEXT_MODELS

    return [*TEXT_MODELS, *MULTIMODAL_MODELS]


try:
    MODELS = models()
except ImportError:
    MODELS = []


@pytest.mark.skipif(not MODELS, reason="torch or transformers is not installed")
@pytest.mark.parametrize("model_type", MODELS)
def test_a_configuration_tells_what_the_live_model_costs(model_type: str) -> None:
    from tests.common.flops.models import BATCH, LENGTH, TOKENS, sample

    config, counted, measured = sample(model_type)
    found = architecture(config)
    assert found is not None
    assert counted is not None
    assert found.parameters == counted
    assert found.attention_flops([LENGTH] * BATCH) == measured.attention
    expected = train_flops(counted, TOKENS) + 3 * measured.attention
    assert estimate_from_config(config, [LENGTH] * BATCH) == expected
    assert estimate_from_config(config.to_dict(), [LENGTH] * BATCH) == expected


@pytest.mark.skipif(not MODELS, reason="torch or transformers is not installed")
def test_every_described_architecture_is_measured() -> None:
    measured = {name for model in MODELS for name in (model, f"{model}_text")}
    assert set(FAMILIES) <= measured


def test_a_published_model_has_the_active_parameters_that_its_authors_state() -> None:
    """Mixtral 8x7B: 12.9 B active, of which 0.13 B are the embedding's lookup."""
    found = architecture(MIXTRAL_8X7B)
    assert found is not None
    assert found.parameters.total == pytest.approx(12.75e9, rel=0.002)


def test_a_published_model_has_the_parameters_that_its_authors_state() -> None:
    """Qwen2.5 0.5B: 0.36 B without the embedding, which as the tied head is 0.136 B more."""
    found = architecture(QWEN2_5_0_5B)
    assert found is not None
    assert found.parameters.layers == pytest.approx(0.3578e9, rel=0.001)
    assert found.parameters.head == 151936 * 896


def test_sequences_attend_to_themselves_only() -> None:
    together, apart = (estimate_from_config(QWEN2_5_0_5B, lengths) for lengths in ([4096], [2048, 2048]))
    found = architecture(QWEN2_5_0_5B)
    assert found is not None
    assert together is not None
    assert apart is not None
    assert together - apart == 3 * 24 * 2 * 14 * (64 + 64) * 2048**2
    assert apart - 3 * found.attention_flops([2048, 2048]) == 6 * found.parameters.total * 4096


@given(
    length=st.integers(0, 60),
    window=st.one_of(st.none(), st.integers(1, 80)),
)
def test_pairs_are_those_of_the_mask(length: int, window: int | None) -> None:
    seen = [(query, key) for query in range(length) for key in range(query + 1) if not window or query - key < window]
    assert Attention(1, 1, 1, window).pairs(length) == len(seen)


UNDESCRIBED = [
    ({"model_type": "qwen9"}, "'qwen9': the architecture has no description"),
    ({}, "'None': the architecture has no description"),
    ({**MIXTRAL_8X7B, "num_local_experts": None}, "has no num_local_experts or num_experts or n_routed_experts"),
    ({**MIXTRAL_8X7B, "num_experts_per_tok": None}, "has no num_experts_per_tok"),
    ({**QWEN2_5_0_5B, "use_sliding_window": True}, "has no layer_types"),
    ({**QWEN2_5_0_5B, "use_sliding_window": None, "layer_types": ["linear_attention"] * 24}, "linear_attention"),
    ({**QWEN2_5_0_5B, "use_sliding_window": None, "layer_types": ["full_attention"]}, "IndexError"),
    ({**MIXTRAL_8X7B, "num_attention_heads": "many"}, "TypeError"),
    ({"model_type": "llava", "text_config": {"model_type": "qwen9"}}, "'qwen9'"),
]


@pytest.mark.parametrize(("config", "reason"), UNDESCRIBED)
def test_what_is_not_described_has_no_estimate_and_one_line(
    config: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    from benchmarks.config_estimate import estimate as module

    module._report.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert [estimate_from_config(config, [8]), estimate_from_config(config, [9])] == [None, None]
    assert len(caplog.records) == 1
    assert reason in caplog.text


@given(
    st.sampled_from(sorted(FAMILIES)),
    st.dictionaries(
        st.sampled_from(sorted({*MIXTRAL_8X7B, *QWEN2_5_0_5B, "layer_types", "head_dim", "text_config", "n_layer"})),
        st.one_of(st.none(), st.integers(-2, 40), st.text(max_size=3), st.booleans(), st.lists(st.text(max_size=3))),
    ),
)
def test_whatever_a_configuration_holds_there_is_an_estimate_or_none(model_type: str, changes: dict[str, Any]) -> None:
    estimate = estimate_from_config({**MIXTRAL_8X7B, "model_type": model_type, **changes}, [4, 0])
    assert estimate is None or isinstance(estimate, int)
