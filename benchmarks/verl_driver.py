"""What a step costs the trainer's thread in verl, at 512 rollouts with three reward terms.

`python -m benchmarks.verl_driver` lets verl compute its own figures of a batch (`compute_data_metrics`) and log about
90 keys, with and without `akka_otel`, in turns in one process. The rollouts' tags come from a real TransferQueue,
which needs Ray; what they add to the trainer's poll of the queue is measured as well. Then the translation of a step on
the translator's thread.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import verl
from tensordict import TensorDict
from verl.protocol import DataProto
from verl.trainer.ppo import metric_utils
from verl.utils import tracking as verl_tracking

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.vocabulary.step import RLStep
from akka_otel_callbacks.verl.driver import batches, tracking
from akka_otel_callbacks.verl.environment import RUN_VARIABLE
from akka_otel_callbacks.verl.rollout import tags
from akka_otel_callbacks.verl.state import STATE

TARGET_MS = 30.0
ROLLOUTS, GROUP = 512, 8
TERMS = ("correct", "format", "brevity")
KEYS = [f"{row // GROUP}_{row % GROUP}_0" for row in range(ROLLOUTS)]
CONFIG = {
    "actor_rollout_ref": {"rollout": {"response_length": 4096, "n": GROUP}, "actor": {}, "model": {}},
    "trainer": {"device": "cpu"},
}


@contextmanager
def transfer_queue() -> Iterator[Any]:
    """verl's TransferQueue, in Ray actors of its own."""
    import ray
    import transfer_queue as queue
    from omegaconf import OmegaConf

    config = OmegaConf.load(Path(verl.__file__).parent / "trainer/config/transfer_queue/transfer_queue.yaml")
    config.enable = True
    ray.init(num_cpus=40, include_dashboard=False, object_store_memory=200_000_000, logging_level="ERROR")
    queue.init(config)
    yield queue
    queue.close()
    ray.shutdown()


def put(queue: Any, partition_id: str, lengths: list[int]) -> None:
    """Rollouts with three terms each, as an agent loop puts them."""
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    generator = np.random.default_rng(0)
    infos = [dict(zip(TERMS, generator.random(3).tolist(), strict=True)) for _ in KEYS]
    fields = list_of_dict_to_tensordict([{"extra_fields": {"reward_extra_info": info}} for info in infos])
    steps = {"global_steps": 1, "min_global_steps": 1, "max_global_steps": 1}
    tags = [{"status": "success", "prompt_len": 8, "response_len": n, "seq_len": 8 + n, **steps} for n in lengths]
    asyncio.run(queue.async_kv_batch_put(keys=KEYS, fields=fields, tags=tags, partition_id=partition_id))


def poll_ms(queue: Any, partition_id: str, repeat: int) -> float:
    """What the trainer waits for the tags of a step's rollouts, as often as it polls."""
    taken = []
    for _ in range(repeat):
        start = time.perf_counter()
        queue.kv_list(partition_id)
        taken.append((time.perf_counter() - start) * 1000)
    return statistics.median(taken)


class Trainer:
    """The part of the v1 trainers that looks at a finished step."""

    global_steps = 0

    def _compute_metrics(self, batch: Any, data: DataProto) -> dict[str, Any]:
        return metric_utils.compute_data_metrics(batch=data, use_critic=False)

    def _compute_reward_colocate(self, batch: Any) -> None: ...


def batch(lengths: torch.Tensor, tags: list[dict[str, Any]]) -> tuple[Any, DataProto]:
    """A batch as the v1 trainers have it: keys and tags, and the tensors that verl fetched by itself."""
    generator, length = torch.Generator().manual_seed(0), int(lengths.max())
    mask = (torch.arange(length) < lengths[:, None]).long()
    scores = torch.zeros(ROLLOUTS, length)
    scores[torch.arange(ROLLOUTS), lengths - 1] = torch.rand(ROLLOUTS, generator=generator)
    tensors = dict.fromkeys(("token_level_scores", "token_level_rewards", "advantages", "returns"), scores)
    tensors |= {"responses": mask, "response_mask": mask, "prompts": mask[:, :8]}
    tensors |= {"response_length": lengths.float(), "prompt_length": torch.full((ROLLOUTS,), 8.0)}
    meta = SimpleNamespace(keys=KEYS, tags=tags, partition_id="train")
    return meta, DataProto(batch=TensorDict(tensors, batch_size=ROLLOUTS))


def step_ms(trainer: Trainer, logger: Any, seen: tuple[Any, DataProto]) -> float:
    """One step's own figures and its log call."""
    trainer.global_steps += 1
    other = {f"{group}/{key}": 0.5 for group in ("actor", "timing_s", "perf", "rollout_corr") for key in range(15)}
    start = time.perf_counter()
    row = {**trainer._compute_metrics(*seen), **other, "training/global_step": trainer.global_steps}
    logger.log(data=row, step=trainer.global_steps)
    return (time.perf_counter() - start) * 1000


def translation_ms(trainer: Trainer, backend: Any, seen: tuple[Any, DataProto], repeat: int) -> float:
    """The same step on the translator's thread, with histogram records that cost nothing."""
    recorder = Recorder(RLStep)
    captured: list[Any] = []
    backend._telemetry.capture = lambda capture, step=False: captured.append(capture)
    for _ in range(repeat):
        step_ms(trainer, SimpleNamespace(log=backend.log), seen)
    taken = []
    for capture in captured:
        start = time.perf_counter()
        capture.deliver(recorder)
        taken.append((time.perf_counter() - start) * 1000)
    return statistics.median(taken)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--length", type=int, default=4096, help="longest completion, in tokens")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ |= {"OTEL_METRICS_EXPORTER": "file", "OTEL_TRACES_EXPORTER": "none"}
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_prestart_worker_first_driver": "0"}
    tracking.install(verl_tracking)
    batches.install(metric_utils)
    lengths = torch.randint(1, options.length + 1, (ROLLOUTS,), generator=torch.Generator().manual_seed(0))
    with tempfile.TemporaryDirectory() as folder, transfer_queue() as queue:
        batches.install_trainer(Trainer)
        put(queue, "without", lengths.tolist())
        tags.install(queue)
        os.environ[RUN_VARIABLE] = "akka.optimize.training.run.id=bench"
        put(queue, "with", lengths.tolist())
        polls = [(poll_ms(queue, "without", 20), poll_ms(queue, "with", 20)) for _ in range(5)]
        os.environ["AKKA_OTEL_DIR"] = folder
        made = verl_tracking.Tracking("p", "e", ["akka_otel"], CONFIG)
        nobody, trainer, seen = (
            SimpleNamespace(log=lambda data, step: None),
            Trainer(),
            batch(lengths, list(queue.kv_list("with")["with"].values())),
        )
        without, with_ours = [], []
        for _ in range(options.repeat):
            STATE.inbox.listening = False
            without.append(step_ms(trainer, nobody, seen))
            STATE.inbox.listening = True
            with_ours.append(step_ms(trainer, made, seen))
            made.logger["akka_otel"]._telemetry.flush(60)  # a real step leaves the exporter more than the time for it
        added = min(with_ours) - min(without)  # what other processes disturb least
        translated = translation_ms(trainer, made.logger["akka_otel"], seen, options.repeat)
        made.finish()
    assert not guard.failures, guard.failures
    print(f"{ROLLOUTS} rollouts x {len(TERMS)} terms, completions of up to {options.length} tokens")
    print(f"verl's own figures of the batch: {min(without):.1f} ms (median {statistics.median(without):.1f})")
    medians = statistics.median(with_ours) - statistics.median(without)
    print(f"added by akka_otel:              {added:.1f} ms (medians {medians:.1f}, target {TARGET_MS:g})")
    poll_without, poll_with = (statistics.median(poll) for poll in zip(*polls, strict=True))
    print(f"a poll of the queue:             {poll_without:.1f} ms, with our tags {poll_with:.1f}")
    print(f"on the translator's thread:        {translated:.1f} ms")
    return added > TARGET_MS


if __name__ == "__main__":
    sys.exit(main())
