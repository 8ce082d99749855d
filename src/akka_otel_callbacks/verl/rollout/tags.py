"""Tells the trainer of each rollout's terms and tools, in the tag that verl's TransferQueue keeps of the rollout.

The v1 trainers get a step's tags anyway, whereas fetching the rollouts' own fields of it would take them longer than
all that they compute of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.run.handed_on import is_active
from akka_otel_callbacks.verl.patching.importhook import wrap
from akka_otel_callbacks.verl.rollout.grading import GRADED, hide
from akka_otel_callbacks.verl.rollout.tool_calls import TALLY

TERMS = "akka_otel_terms"
"""The reward function's numbers by name, in a rollout's tag; its tools are there under the name of the tally."""

TRAINING = "train"
"""verl's partition of the queue for rollouts that are trained on."""

_scores: list[Any] = []
"""What the reward model said last."""
_scored: dict[str, dict[str, float]] = {}
"""Its terms of the step's rollouts, by their key. In tags they would be lost: every put of verl's reads those anew."""
_graded: dict[str, str] = {}
"""Likewise how long it took for each."""
_expects_scores = False
"""Whether a v1 trainer has its batch scored now; nobody takes those of others from here."""


def install(transfer_queue: ModuleType) -> None:
    """The agent loops' processes put each finished rollout into the queue, with its tag."""
    wrap(transfer_queue, "async_kv_batch_put", _telling)


def install_reward_model(trainer: type) -> None:
    """A reward model on the trainer's own devices scores the whole batch at once, after the rollouts were put."""
    wrap(trainer, "_compute_reward_colocate", _scored_later)


def install_scores(reward_loop: ModuleType) -> None:
    """What a reward model says of a batch."""
    wrap(reward_loop.RewardLoopManager, "compute_rm_score", _remembering)


def take_graded(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str | None]:
    """How long the terms of the step's rollouts took, as text, in their order."""
    graded = [_graded.get(key, tag.get(GRADED)) for key, tag in rows]
    _graded.clear()
    return graded


def take_terms(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> list[dict[str, float]]:
    """The terms of the step's rollouts, given by key and tag, in their order."""
    terms = [{**tag.get(TERMS, {}), **_scored.get(key, {})} for key, tag in rows]
    _scored.clear()
    return terms


def _telling(put: Callable[..., Any]) -> Callable[..., Any]:
    async def async_kv_batch_put(*args: Any, **kwargs: Any) -> Any:
        if is_active():
            _tell(kwargs.get("fields"), kwargs.get("tags"))
        return await put(*args, **kwargs)

    return async_kv_batch_put


@guarded
def _tell(fields: Any, tags: Sequence[dict[str, Any]] | None) -> None:
    if not tags or fields is None or "extra_fields" not in fields.keys():  # noqa: SIM118 - of a TensorDict
        return  # prompts, for one
    for tag, held in zip(tags, fields["extra_fields"], strict=True):
        extra = getattr(held, "data", held)  # tensordict wraps an object, or not, by its version
        tag[TERMS] = numbers(extra.get("reward_extra_info") or {})
        tag.update({name: extra[name] for name in (TALLY, GRADED) if name in extra})


def _scored_later(compute: Callable[..., Any]) -> Callable[..., Any]:
    def _compute_reward_colocate(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        _listen_to(self)
        scored = compute(self, batch, *args, **kwargs)
        _tell_scores(batch)
        return scored

    return _compute_reward_colocate


@guarded
def _listen_to(trainer: Any) -> None:
    global _expects_scores
    _scores.clear()
    _expects_scores = is_active()
    if _expects_scores:
        wrap(type(trainer.reward_loop_manager), "compute_rm_score", _remembering)


def _remembering(compute: Callable[..., Any]) -> Callable[..., Any]:
    def compute_rm_score(*args: Any, **kwargs: Any) -> Any:
        scores = compute(*args, **kwargs)
        hide(scores)
        if _expects_scores:
            _scores.append(scores)
        return scores

    return compute_rm_score


@guarded
def _tell_scores(batch: Any) -> None:
    global _expects_scores
    _expects_scores = False
    if not _scores:
        return
    scores = _scores.pop()  # also where nobody needs it: it holds the batch's tensors
    if batch.partition_id != TRAINING or not is_active():
        return
    terms = {key: scores.non_tensor_batch[key] for key in scores.meta_info.get("reward_extra_keys", ())}
    for row, key in enumerate(batch.keys):
        _scored[key] = numbers({term: column[row] for term, column in terms.items()})
        if GRADED in scores.non_tensor_batch:
            _graded[key] = str(scores.non_tensor_batch[GRADED][row])


def numbers(info: Mapping[str, Any]) -> dict[str, float]:
    """The numeric terms. A reward function may return anything beside them, such as the answer that it parsed. Their
    names are plain text: the queue's other processes may be unable to import the class of anything else."""
    return {_plain(term): value for term, raw in info.items() if (value := number(raw, truth=True)) is not None}


def _plain(term: Any) -> str:
    return str(term).encode(errors="replace").decode()
