"""Terms of a reward model on the trainer's own devices, which scores the whole batch after its rollouts were put."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.patching.calls import Call, after, around
from akka_otel_callbacks.common.run.handed_on import is_active
from akka_otel_callbacks.verl.rollout.fields import GRADED, TERMS
from akka_otel_callbacks.verl.rollout.scores import hide
from akka_otel_callbacks.verl.rollout.tags import numbers
from akka_otel_callbacks.verl.state import STATE

TRAINING = "train"
"""verl's partition of the queue for rollouts that are trained on."""


def install(trainer: type) -> None:
    around(trainer, "_compute_reward_colocate", _keep_terms)


def install_scores(reward_loop: ModuleType) -> None:
    """Hooks the function in which a reward model scores a batch."""
    after(reward_loop.RewardLoopManager, "compute_rm_score", _keep_scores)


def take_terms(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> list[dict[str, float]]:
    """The terms of the step's rollouts, in the order of the keys and tags."""
    terms = [{**tag.get(TERMS, {}), **STATE.reward_model_terms.get(key, {})} for key, tag in rows]
    STATE.reward_model_terms.clear()
    return terms


def take_graded(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str | None]:
    """How long the terms of the step's rollouts took, as text, in the order of the keys."""
    graded = [STATE.reward_model_graded.get(key, tag.get(GRADED)) for key, tag in rows]
    STATE.reward_model_graded.clear()
    return graded


def _keep_terms(compute: Call) -> Iterator[None]:
    """Keeps the terms in this process. They cannot go into the tag: if a tag is put again, verl takes the rollout's own
    terms from it once more."""
    if not is_active():
        return
    STATE.reward_model_scores = []
    after(type(compute.owner.reward_loop_manager), "compute_rm_score", _keep_scores)
    yield
    scores, STATE.reward_model_scores = STATE.reward_model_scores, None  # also where nobody needs its tensors
    batch = compute.get(1, "batch")
    if compute.error is None and scores and batch.partition_id == TRAINING:
        _keep(batch.keys, scores[-1])


def _keep_scores(compute: Call) -> None:
    hide(compute.result)
    if STATE.reward_model_scores is not None:
        STATE.reward_model_scores.append(compute.result)


def _keep(keys: Sequence[str], scores: Any) -> None:
    columns = {term: scores.non_tensor_batch[term] for term in scores.meta_info.get("reward_extra_keys", ())}
    for row, key in enumerate(keys):
        STATE.reward_model_terms[key] = numbers({term: column[row] for term, column in columns.items()})
        if GRADED in scores.non_tensor_batch:
            STATE.reward_model_graded[key] = str(scores.non_tensor_batch[GRADED][row])
