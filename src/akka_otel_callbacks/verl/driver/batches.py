"""Sees the rollouts of every step in the trainer's process, where verl computes its own figures of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.frames import variables
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.verl.driver.inbox import INBOX
from akka_otel_callbacks.verl.driver.rollouts import Rollouts, columns
from akka_otel_callbacks.verl.patching.importhook import wrap
from akka_otel_callbacks.verl.rollout import tags
from akka_otel_callbacks.verl.rollout.grading import GRADED
from akka_otel_callbacks.verl.rollout.tool_calls import TALLY


def install(metric_utils: ModuleType) -> None:
    """Every trainer calls `compute_data_metrics(batch, use_critic)` once for a step, or for a part of one."""
    wrap(metric_utils, "compute_data_metrics", _keeping)


def install_v1(trainer_base: ModuleType) -> None:
    """The v1 trainers hand that function tensors only; what else there is of a rollout is in its key and its tag."""
    install_trainer(trainer_base.PPOTrainer)


def install_trainer(trainer: type) -> None:
    wrap(trainer, "_compute_metrics", lambda compute: _describing(compute, _described_v1))
    tags.install_reward_model(trainer)


def install_main_trainer() -> None:
    """The v1 trainer of verl 0.8 runs as `__main__`, where no import hook sees it: it is found on the call stack."""
    for called in variables("self"):
        found = type(called["self"])
        if found.__module__ == "__main__" and hasattr(found, "_compute_metrics"):  # a user's own v0 trainer has none
            install_trainer(found)


def install_separation(ray_trainer: ModuleType) -> None:
    wrap(
        ray_trainer.SeparateRayPPOTrainer,
        "_fit_collect_metrics",
        lambda collect: _describing(collect, _described_separation),
    )


def _keeping(compute: Callable[..., Any]) -> Callable[..., Any]:
    def compute_data_metrics(*args: Any, **kwargs: Any) -> Any:
        metrics = compute(*args, **kwargs)
        if INBOX.listening:
            _keep(args[0] if args else kwargs.get("batch"))
        return metrics

    return compute_data_metrics


def _describing(compute: Callable[..., Any], describe: Callable[..., Rollouts | None]) -> Callable[..., Any]:
    def wrapped(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        if not INBOX.listening:
            return compute(self, batch, *args, **kwargs)
        INBOX.described = describe(self, batch)
        try:
            return compute(self, batch, *args, **kwargs)
        finally:
            INBOX.described = None

    return wrapped


@guarded
def _keep(batch: Any) -> None:
    entropy, kl = INBOX.take_means()
    INBOX.keep(replace(_seen(batch, INBOX.described or Rollouts()), entropy=entropy, kl=kl))


def _seen(batch: Any, described: Rollouts) -> Rollouts:
    """The batch's rows as verl has them for its own figures: padding rows are gone. Sums over tokens stay tensors."""
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


@guarded
def _described_v1(trainer: Any, batch: Any) -> Rollouts:
    """Keys are `{uid}_{session}_{index}`; an agent loop may leave several outputs of one session, of which the last
    holds the reward's completion. Tags tell the rows that only pad the batch."""
    rows = [(key, tag) for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding")]
    keys = [key for key, _ in rows]
    sessions = [key.rsplit("_", 1)[0] for key in keys]
    return Rollouts(
        step=trainer.global_steps,
        groups=[session.rsplit("_", 1)[0] for session in sessions],
        last_of_session=_last_of_session(keys),
        terms=columns(tags.take_terms(rows)),
        tools=[tag.get(TALLY) for _, tag in rows],
        graded=tags.take_graded(rows),
        tokens=sum(tag["prompt_len"] + tag["response_len"] for _, tag in rows),
    )


def _last_of_session(keys: Sequence[str]) -> list[bool]:
    last: dict[str, int] = {}
    for session, _, index in (key.rpartition("_") for key in keys):
        last[session] = max(last.get(session, 0), int(index))
    return [last[session] == int(index) for session, _, index in (key.rpartition("_") for key in keys)]


@guarded
def _described_separation(trainer: Any, batch: Any) -> Rollouts:
    return Rollouts(step=trainer.global_steps)
