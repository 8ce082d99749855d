"""Sees the rollouts of every step in the trainer's process, where verl computes its own figures of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.patching.calls import Call, after, around
from akka_otel_callbacks.verl.callers import calling_trainer
from akka_otel_callbacks.verl.driver import reward_model
from akka_otel_callbacks.verl.driver.rollouts import Rollouts, columns
from akka_otel_callbacks.verl.rollout.fields import GRADED, TALLY
from akka_otel_callbacks.verl.state import STATE


def install(metric_utils: ModuleType) -> None:
    """Every trainer calls `compute_data_metrics(batch, use_critic)` once for a step, or for a part of one."""
    after(metric_utils, "compute_data_metrics", _keep)


def install_v1(trainer_base: ModuleType) -> None:
    """The v1 trainers hand that function tensors only. Whatever else there is of a rollout is in its key and its
    tag."""
    install_trainer(trainer_base.PPOTrainer)


def install_trainer(trainer: type) -> None:
    around(trainer, "_compute_metrics", _describe)
    reward_model.install(trainer)


def install_main_trainer() -> None:
    """The v1 trainer of verl 0.8 runs as `__main__`, where no import hook sees it: it is found on the call stack."""
    trainer = calling_trainer("_compute_metrics")  # a user's own v0 trainer has none
    if trainer is not None and type(trainer).__module__ == "__main__":
        install_trainer(type(trainer))


def install_separation(ray_trainer: ModuleType) -> None:
    around(ray_trainer.SeparateRayPPOTrainer, "_fit_collect_metrics", _describe_separation)


def _describe(compute: Call) -> Iterator[None]:
    """Notes for the inbox what is known of the rollouts whose figures verl computes in this call."""
    if STATE.inbox.listening:
        STATE.inbox.described = described_v1(compute.owner, compute.get(1, "batch"))
        yield
        STATE.inbox.described = None


def _describe_separation(collect: Call) -> Iterator[None]:
    if STATE.inbox.listening:
        STATE.inbox.described = Rollouts(step=collect.owner.global_steps)
        yield
        STATE.inbox.described = None


def _keep(compute: Call) -> None:
    inbox = STATE.inbox
    if inbox.listening:
        entropy, kl = inbox.take_means()
        seen = _seen(compute.get(0, "batch"), inbox.described or Rollouts())
        inbox.keep(replace(seen, entropy=entropy, kl=kl))


def _seen(batch: Any, described: Rollouts) -> Rollouts:
    """The rows of the batch from which verl computes its own figures, without the rows that only pad. Sums over tokens
    stay tensors."""
    tensors, others = batch.batch, batch.non_tensor_batch
    fields, width = set(tensors.keys()), tensors["responses"].shape[-1]
    mask = tensors["response_mask"] if "response_mask" in fields else tensors["attention_mask"][:, -width:]
    has_lengths = "response_length" in fields
    seen = replace(
        described,
        scores=tensors["token_level_scores"].sum(-1),
        prompt_lengths=tensors["prompt_length"] if has_lengths else tensors["attention_mask"][:, :-width].sum(-1),
        lengths=tensors["response_length"] if has_lengths else tensors["attention_mask"][:, -width:].sum(-1),
        own_lengths=mask.sum(-1),
    )
    if seen.groups is not None and len(seen.groups) != len(seen.scores):
        return replace(seen, groups=None, last_of_session=None, terms={}, tools=None, graded=None, tokens=None)
    if seen.groups is None and "uid" in others:
        seen.groups = list(others["uid"])
        seen.terms = {key: others[key] for key in batch.meta_info.get("reward_extra_keys", ()) if key in others}
        seen.tools = list(others[TALLY]) if TALLY in others else None
        seen.graded = list(others[GRADED]) if GRADED in others else None
    return seen


def described_v1(trainer: Any, batch: Any) -> Rollouts:
    """What keys and tags say of the rows. A key is `{uid}_{session}_{index}`. An agent loop may leave several outputs
    of one session, and the last of them holds the completion that was scored. A tag says whether its row only pads the
    batch."""
    rows = [(key, tag) for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding")]
    keys = [key for key, _ in rows]
    sessions = [key.rsplit("_", 1)[0] for key in keys]
    return Rollouts(
        step=trainer.global_steps,
        groups=[session.rsplit("_", 1)[0] for session in sessions],
        last_of_session=_last_of_session(keys),
        terms=columns(reward_model.take_terms(rows)),
        tools=[tag.get(TALLY) for _, tag in rows],
        graded=reward_model.take_graded(rows),
        tokens=sum(tag["prompt_len"] + tag["response_len"] for _, tag in rows),
    )


def _last_of_session(keys: Sequence[str]) -> list[bool]:
    last: dict[str, int] = {}
    for session, _, index in (key.rpartition("_") for key in keys):
        last[session] = max(last.get(session, 0), int(index))
    return [last[session] == int(index) for session, _, index in (key.rpartition("_") for key in keys)]
