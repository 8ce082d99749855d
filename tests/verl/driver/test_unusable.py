"""Keys of verl that are no figures under a run's settings, by the sources of each version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.verl.driver import unusable
from akka_otel_callbacks.verl.driver.unusable import (
    CLIP,
    EARLY_REWARD_KL,
    ENTROPY,
    ENTROPY_OF_UPDATE,
    KL,
    LOSS,
    REWARD_KL,
    WHOLE_LOSS,
    unusable_keys,
)

NEWEST = (0, 9, 1)
ONE_UPDATE: dict[str, Any] = {
    "actor_rollout_ref": {"actor": {"ppo_mini_batch_size": 8, "ppo_epochs": 1, "use_kl_loss": True}},
    "data": {"train_batch_size": 8},
    "trainer": {"nnodes": 1, "n_gpus_per_node": 2},
}


def keys(version: tuple[int, ...] = NEWEST, data: Any = None, trainer: Any = None, **actor: Any) -> frozenset[str]:
    """Without the whole loss, which is one key of a version and not of a configuration."""
    found = unusable_keys(
        {
            "actor_rollout_ref": {"actor": ONE_UPDATE["actor_rollout_ref"]["actor"] | actor, "rollout": {"n": 4}},
            "data": ONE_UPDATE["data"] | (data or {}),
            "trainer": ONE_UPDATE["trainer"] | (trainer or {}),
        },
        version,
    )
    assert (WHOLE_LOSS in found) == (version < (0, 8))
    return found - {WHOLE_LOSS}


def test_everything_is_usable_by_default() -> None:
    assert unusable_keys({}, NEWEST) == keys() == frozenset()


@pytest.mark.parametrize("loss_mode", ["sapo", "geo_mean", "clip_cov", "dppo_tv", "dppo_kl", "a-users-own", 7, [1]])
def test_a_loss_that_logs_something_else_under_the_key_has_no_clip_ratio(loss_mode: Any) -> None:
    assert keys(policy_loss={"loss_mode": loss_mode}) == {CLIP}


@pytest.mark.parametrize("loss_mode", ["vanilla", "gspo", "cispo", "bypass_mode", None])
def test_a_loss_that_clips_ratios_has_one(loss_mode: str | None) -> None:
    assert keys(policy_loss={"loss_mode": loss_mode}) == frozenset()


@pytest.mark.parametrize(
    "mode", ["seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm", "token-sum", "a-later-one"]
)
def test_what_is_not_aggregated_by_tokens_is_no_figure_per_token(mode: str) -> None:
    assert keys(loss_agg_mode=mode) == {ENTROPY, ENTROPY_OF_UPDATE, KL}
    assert keys(loss_agg_mode="token-mean") == frozenset()


@pytest.mark.parametrize("estimator", ["abs", "mse", "k2", "k2+", "full", "a-later-one"])
def test_an_estimator_of_something_else_is_no_kl_divergence(estimator: str) -> None:
    assert keys(kl_loss_type=estimator) == {KL}
    assert unusable_keys({"algorithm": {"kl_penalty": estimator}}, NEWEST) == {REWARD_KL, EARLY_REWARD_KL}


@pytest.mark.parametrize("estimator", ["kl", "k1", "k3", "low_var_kl", "k3+", "low_var_kl+"])
def test_an_estimator_of_the_kl_divergence_is_one(estimator: str) -> None:
    assert keys(kl_loss_type=estimator) == frozenset()
    assert unusable_keys({"algorithm": {"kl_penalty": estimator}}, NEWEST) == frozenset()


@pytest.mark.parametrize("version", [(0, 7), (0, 7, 1), (0, 6, 1)])
def test_the_earlier_workers_say_one_updates_figures_only(version: tuple[int, ...]) -> None:
    assert keys(version) == frozenset()
    assert keys(version, use_kl_loss=False) == {KL}  # 0.7 logs a 0
    assert keys(version, ppo_epochs=2) == {LOSS, KL}
    assert keys(version, data={"train_batch_size": 16}) == {LOSS, KL}
    assert keys(version, data={"train_batch_size": 9}) == {LOSS, KL}
    assert keys(version, data={"train_batch_size": 0}) == {LOSS, KL}  # fully_async does not say it there
    assert keys(version, ppo_epochs=2, strategy="megatron") == frozenset()  # it averages


@pytest.mark.parametrize("version", [(0, 7, 1), (0, 8), NEWEST])
def test_the_later_workers_average_a_steps_mini_batches(version: tuple[int, ...]) -> None:
    assert keys(version, ppo_epochs=2, use_kl_loss=None, trainer={"use_legacy_worker_impl": "disable"}) == frozenset()


@pytest.mark.parametrize(("version", "trainer"), [((0, 6, 1), {}), ((0, 7, 0), {"use_legacy_worker_impl": "disable"})])
def test_versions_that_divide_by_the_micro_batches_say_nothing_of_several(version: Any, trainer: Any) -> None:
    """8 prompts of 4 rollouts on 2 devices are 16 rollouts each."""
    assert keys(version, trainer=trainer, ppo_micro_batch_size_per_gpu=16) == frozenset()
    assert keys(version, trainer=trainer, ppo_micro_batch_size_per_gpu=8) == {LOSS, KL}
    assert keys(version, trainer=trainer, use_dynamic_bsz=True, ppo_micro_batch_size_per_gpu=16) == {LOSS, KL}
    two_devices_a_rollout = {"ppo_micro_batch_size_per_gpu": 16, "ulysses_sequence_parallel_size": 2}
    assert keys(version, trainer=trainer, **two_devices_a_rollout) == {LOSS, KL}
    assert keys((0, 7, 1), ppo_micro_batch_size_per_gpu=1) == frozenset()


def test_after_a_rejection_of_tokens_v1_divides_by_all_of_them() -> None:
    config = {"algorithm": {"rollout_correction": {"rollout_rs": "token_k1"}}, "trainer": {"use_v1": True}}
    rejected = {KL, unusable.KL_PER_TOKEN, ENTROPY_OF_UPDATE, unusable.ENTROPY_PER_TOKEN}
    assert unusable_keys(config, NEWEST) == rejected
    assert unusable_keys({**config, "trainer": {"use_v1": False}}, NEWEST) == frozenset()


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(
        st.sampled_from(
            "actor_rollout_ref actor policy_loss loss_mode loss_agg_mode kl_loss_type ppo_epochs ppo_mini_batch_size "
            "data train_batch_size trainer use_legacy_worker_impl algorithm kl_penalty rollout_correction".split()
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)


@given(anything, st.sampled_from([(0, 4), (0, 6), (0, 7, 0), (0, 7, 1), (0, 8), NEWEST]))
def test_any_configuration_gives_keys_and_never_an_error(config: Any, version: tuple[int, ...]) -> None:
    assert all(isinstance(key, str) for key in unusable_keys(config, version))
