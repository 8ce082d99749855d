"""The log keys of verl that are misleading under a run's settings and its version of verl."""

from __future__ import annotations

import math
from typing import Any

from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.verl.config import get
from akka_otel_callbacks.verl.driver.per_token import ENTROPY as ENTROPY_PER_TOKEN
from akka_otel_callbacks.verl.driver.per_token import KL as KL_PER_TOKEN
from akka_otel_callbacks.verl.driver.per_token import TOKEN_MEAN, is_kl
from akka_otel_callbacks.verl.settings import trainer_processes

ACTOR = "actor_rollout_ref.actor"
CLIPS_RATIOS = frozenset({"vanilla", "gspo", "cispo", "bypass_mode"})
"""Policy losses whose `actor/pg_clipfrac` is the share of tokens with a clipped ratio. verl's others log a constant 0
(`sapo`), one side only (`geo_mean`), tokens left out by covariance (`clip_cov`), or a divergence above its threshold
(`dppo_*`); what a user's own loss logs is not known."""
CLIP, LOSS, WHOLE_LOSS, ENTROPY, ENTROPY_OF_UPDATE, KL, REWARD_KL, EARLY_REWARD_KL = (
    "actor/pg_clipfrac",
    "actor/pg_loss",
    "actor/loss",
    "actor/entropy",
    "actor/entropy_loss",
    "actor/kl_loss",
    "actor/reward_kl_penalty",
    "critic/kl",
)


def unusable_keys(config: Any, verl_version: tuple[int, ...]) -> frozenset[str]:
    """The keys that are no figure of ours.

    Args:
        config: verl's configuration.
        verl_version: as numbers.
    """
    keys = set()
    if str(get(config, f"{ACTOR}.policy_loss.loss_mode", "vanilla")) not in CLIPS_RATIOS:
        keys |= {CLIP}
    if get(config, f"{ACTOR}.loss_agg_mode", TOKEN_MEAN) != TOKEN_MEAN:
        keys |= {ENTROPY, ENTROPY_OF_UPDATE, KL}
    if not is_kl(get(config, f"{ACTOR}.kl_loss_type", "low_var_kl")):
        keys |= {KL}
    if not is_kl(get(config, "algorithm.kl_penalty", "kl")):
        keys |= {REWARD_KL, EARLY_REWARD_KL}
    if rejects_tokens(config) and get(config, "trainer.use_v1"):  # the rest is divided by the tokens of all of it
        keys |= {KL, KL_PER_TOKEN, ENTROPY_OF_UPDATE, ENTROPY_PER_TOKEN}
    if verl_version < (0, 8):
        keys |= {WHOLE_LOSS}  # as the policy's own, and no recorded run tells when it would be right
        keys |= _unusable_before_0_8(config, verl_version)
    return frozenset(keys)


def rejects_tokens(config: Any) -> bool:
    """Whether the run takes tokens out of the batch on which trainer and rollout server differ too much."""
    correction = "algorithm.rollout_correction"
    return get(config, f"{correction}.rollout_rs") is not None and not get(config, f"{correction}.bypass_mode")


def _unusable_before_0_8(config: Any, verl_version: tuple[int, ...]) -> set[str]:
    """The keys that are misleading before verl 0.8. The earlier workers, which 0.7 has by default, add up loss and
    divergence over the mini-batches and epochs of a step. The new workers of 0.7 and the earlier ones of 0.6 divide
    them by the number of micro-batches. The workers of Megatron and those of 0.5 average them. Up to 0.4 the divergence
    is that of the last micro-batch.
    """
    if verl_version < (0, 6):
        return {KL} if verl_version < (0, 5) else set()
    earlier = get(config, "trainer.use_legacy_worker_impl") != "disable"
    keys = set()
    if earlier and not get(config, f"{ACTOR}.use_kl_loss"):
        keys |= {KL}  # 0.7 logs a 0 for it
    if earlier and get(config, f"{ACTOR}.strategy") != "megatron" and not _is_one_update(config):
        keys |= {LOSS, KL}
    divides = verl_version < (0, 7) if earlier else (0, 7) <= verl_version < (0, 7, 1)
    if divides and get(config, f"{ACTOR}.strategy") != "megatron" and _has_micro_batches(config):
        keys |= {LOSS, KL}
    return keys


def _is_one_update(config: Any) -> bool:
    """Whether a step is one mini-batch and one epoch. False if that is not known."""
    prompts = number(get(config, "data.train_batch_size"))
    mini_batch = number(get(config, f"{ACTOR}.ppo_mini_batch_size"))
    epochs = number(get(config, f"{ACTOR}.ppo_epochs", 1))
    if not prompts or not mini_batch:
        return False
    return epochs == 1 and math.ceil(prompts / mini_batch) == 1


def _has_micro_batches(config: Any) -> bool:
    """Whether a worker's mini-batch has several micro-batches. True if their sizes follow the tokens, and False if
    nothing is known."""
    if get(config, f"{ACTOR}.use_dynamic_bsz"):
        return True
    prompts = number(get(config, f"{ACTOR}.ppo_mini_batch_size"))
    size = number(get(config, f"{ACTOR}.ppo_micro_batch_size_per_gpu"))
    if not prompts or not size:
        return False
    rollouts = prompts * (number(get(config, "actor_rollout_ref.rollout.n")) or 1)
    processes_per_share = number(get(config, f"{ACTOR}.ulysses_sequence_parallel_size")) or 1
    return rollouts * processes_per_share / (trainer_processes(config) or 1) > size
