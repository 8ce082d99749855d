"""Tells the trainer of each rollout's terms and tools, in the tag that verl's TransferQueue keeps of the rollout.

The v1 trainers get a step's tags anyway, whereas fetching the rollouts' own fields of it would take them longer than
all that they compute of the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.patching.calls import Call, before
from akka_otel_callbacks.common.run.handed_on import is_active
from akka_otel_callbacks.verl.rollout.fields import GRADED, TALLY, TERMS


def install(transfer_queue: ModuleType) -> None:
    """The agent loops' processes put each finished rollout into the queue, with its tag."""
    before(transfer_queue, "async_kv_batch_put", _tell)


def _tell(put: Call) -> None:
    fields, tags = put.kwargs.get("fields"), put.kwargs.get("tags")
    if not is_active() or not tags or fields is None or "extra_fields" not in fields.keys():  # noqa: SIM118 - of a TensorDict
        return  # prompts, for one
    for tag, held in zip(tags, fields["extra_fields"], strict=True):
        extra = getattr(held, "data", held)  # tensordict wraps an object, or not, by its version
        tag[TERMS] = numbers(extra.get("reward_extra_info") or {})
        tag.update({name: extra[name] for name in (TALLY, GRADED) if name in extra})


def numbers(info: Mapping[str, Any]) -> dict[str, float]:
    """The numeric terms. A reward function may return anything beside them, such as the answer that it parsed. Their
    names are plain text: the queue's other processes may be unable to import the class of anything else."""
    return {_plain(term): value for term, raw in info.items() if (value := number(raw, truth=True)) is not None}


def _plain(term: Any) -> str:
    return str(term).encode(errors="replace").decode()
