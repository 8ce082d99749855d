"""Writes down the sums over single tokens of what verl aggregates, in every process of a job that aggregates something.

verl loads it with `VERL_USE_EXTERNAL_MODULES`.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.patching.imports import after_import

EPOCHS, MICRO_BATCHES = 2, 2
"""Of each worker, in a step of the tests."""


def path(directory: Path) -> Path:
    return directory / "seen.jsonl"


def read(directory: Path, what: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path(directory).read_text().splitlines()]
    return [line for line in found if line["what"] == what]


def entropy(directory: Path) -> float:
    """Nats per token of the last step's batch."""
    last = read(directory, "entropy")[-1]
    return float(last["nats"] / last["tokens"])


def penalized(directory: Path) -> float:
    """Nats per token that the last step's rewards are reduced for."""
    last = read(directory, "penalty")[-1]
    return float(last["nats"] / last["tokens"])


def divergence(directory: Path) -> float:
    """Nats per token in the updates of the last step: the mean of its epochs."""
    by_worker: dict[int, list[dict[str, Any]]] = {}
    for line in read(directory, "divergence"):
        by_worker.setdefault(line["pid"], []).append(line)
    last = [lines[-EPOCHS * MICRO_BATCHES :] for lines in by_worker.values()]
    means = []
    for epoch in range(EPOCHS):
        calls = [call for lines in last for call in lines[epoch * MICRO_BATCHES : (epoch + 1) * MICRO_BATCHES]]
        means.append(sum(call["nats"] for call in calls) / sum(call["tokens"] for call in calls))
    return sum(means) / EPOCHS


def _write(what: str, values: Any, mask: Any) -> None:
    counted = [
        value
        for row, flags in zip(values.tolist(), mask.tolist(), strict=True)
        for value, flag in zip(row, flags, strict=True)
        if flag
    ]
    with open(path(Path(os.environ["VERL_CPU_COMPLETIONS"]).parent), "a") as file:
        line = {"what": what, "pid": os.getpid(), "nats": sum(counted), "tokens": len(counted)}
        file.write(json.dumps(line) + "\n")


def _means_of_the_batch(trainer: Any) -> None:
    """The trainer's own copies of the names; the workers' losses have others."""
    aggregate = trainer.agg_loss

    @functools.wraps(aggregate)
    def agg_loss(*args: Any, loss_mat: Any, loss_mask: Any, **kwargs: Any) -> Any:
        _write("entropy", loss_mat, loss_mask)
        return aggregate(*args, loss_mat=loss_mat, loss_mask=loss_mask, **kwargs)

    trainer.agg_loss = agg_loss
    penalize = trainer.apply_kl_penalty

    @functools.wraps(penalize)
    def apply_kl_penalty(data: Any, *args: Any, **kwargs: Any) -> Any:
        log_ratio = data.batch["old_log_probs"].double() - data.batch["ref_log_prob"].double()
        _write("penalty", log_ratio, data.batch["response_mask"])
        return penalize(data, *args, **kwargs)

    trainer.apply_kl_penalty = apply_kl_penalty


def _divergence_of_the_update(losses: Any) -> None:
    loss: Callable[..., Any] = losses.ppo_loss

    @functools.wraps(loss)
    def ppo_loss(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        if config.use_kl_loss:
            log_prob = losses.no_padding_2_padding(model_output["log_probs"], data).detach().float()
            padded = data.select("response_mask", "ref_log_prob").to_padded_tensor()
            log_ratio = padded["ref_log_prob"] - log_prob
            _write("divergence", log_ratio.exp() - 1 - log_ratio, padded["response_mask"])
        return loss(config, model_output, data, dp_group)

    losses.ppo_loss = ppo_loss


def _hooks() -> Iterator[tuple[str, Callable[[ModuleType], None]]]:
    yield "verl.trainer.ppo.v1.trainer_base", _means_of_the_batch
    yield "verl.workers.utils.losses", _divergence_of_the_update


after_import(dict(_hooks()))
