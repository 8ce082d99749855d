"""A rollout server for machines without a GPU: transformers, sampling token by token with the trainer's weights."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

from verl_cpu.assets import ASSISTANT

RECORD = "VERL_CPU_COMPLETIONS"
"""The environment variable that names a file which gets one JSON line for each generated text, for those who check
what verl makes of it."""
END_PROBABILITY = 0.03
"""An untrained model hardly ever ends a completion by itself; each token may end it, so that lengths differ."""


def server_name(replica: int) -> str:
    return f"verl_cpu_server_{replica}"


class WeightSender(BaseRollout):
    """The trainer's end of the rollout: hands every new set of weights to the server of its replica."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1, **_: Any) -> None:
        super().__init__(config, model_config, device_mesh)
        ranks = self.config.tensor_model_parallel_size * self.config.data_parallel_size
        ranks *= self.config.pipeline_model_parallel_size
        rank = int(os.environ["RANK"])
        self._replica = rank // ranks if replica_rank == -1 else replica_rank
        self._sends = rank % ranks == 0

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(
        self,
        weights: Iterable | AsyncIterable,
        wire_format: str = "named_tensors",
        global_steps: int | None = None,
        **_: Any,
    ) -> None:
        state = await _gather(weights)  # gathering a sharded weight is a collective, so every rank takes part
        if self._sends:
            await ray.get_actor(server_name(self._replica)).load.remote(state, global_steps)


async def _gather(weights: Iterable | AsyncIterable) -> dict[str, torch.Tensor]:
    if isinstance(weights, AsyncIterable):
        return {name: tensor.detach().cpu().clone() async for name, tensor in weights}
    return {name: tensor.detach().cpu().clone() for name, tensor in weights}


class Server:
    """Answers generation requests of the agent loops.

    Args:
        path: the folder of model and tokenizer.
        limit: completion length, in tokens, where a request sets none.
        context: length of prompt and completion together, in tokens; None is no bound.
        openings: texts that the completions of a first turn are made to begin with, in turn; an empty one leaves the
            completion to the model. It is how an untrained model comes to call tools.
        seed: of the sampling.
    """

    def __init__(self, path: str, limit: int, context: int | None, openings: list[str], seed: int) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(1)
        self._model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(path)
        self._limit = limit
        self._context = context
        self._openings = itertools.cycle([self._tokenizer.encode(text) for text in openings] or [[]])
        self._random = torch.Generator().manual_seed(seed)
        self._version = 0
        self._running = asyncio.Event()
        self._running.set()

    def address(self) -> str:
        return f"{ray.util.get_node_ip_address()}:0"

    def load(self, state: Mapping[str, torch.Tensor], version: int | None) -> None:
        self._model.load_state_dict(state, strict=False)
        self._version = self._version if version is None else version

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: Mapping[str, Any], **_: Any
    ) -> TokenOutput:
        await self._running.wait()
        limit = sampling_params.get("max_tokens") or sampling_params.get("max_new_tokens") or self._limit
        if self._context is not None:
            limit = min(limit, max(1, self._context - len(prompt_ids)))
        temperature = sampling_params.get("temperature", 1.0)
        opening = self._opening(prompt_ids)
        tokens: list[int] = []
        log_probs: list[float] = []
        reason, cache, unseen = "length", None, torch.tensor([list(prompt_ids)])
        while len(tokens) < limit:
            with torch.no_grad():  # as a decorator it would hide from Ray that this method is a coroutine
                output = self._model(unseen, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            distribution = torch.log_softmax(output.logits[0, -1].float() / max(temperature, 1e-6), -1)
            token = opening[len(tokens)] if len(tokens) < len(opening) else self._sample(distribution, temperature)
            tokens.append(token)
            log_probs.append(float(distribution[token]))
            unseen = torch.tensor([[token]])
            if token == self._tokenizer.eos_token_id:
                reason = "completed"
                break
            await asyncio.sleep(0)
            if not self._running.is_set():
                reason = "aborted"
                break
        self._record(tokens=len(tokens), limit=limit, reason=reason, temperature=temperature)
        return TokenOutput(
            token_ids=tokens,
            log_probs=log_probs if sampling_params.get("logprobs") else None,
            stop_reason=reason,
            num_preempted=0,
            extra_fields={"global_steps": self._version},
        )

    def _record(self, **what: Any) -> None:
        if RECORD in os.environ:
            with open(os.environ[RECORD], "a") as record:
                record.write(json.dumps({"version": self._version, **what}) + "\n")

    def _opening(self, prompt_ids: list[int]) -> list[int]:
        prompt = self._tokenizer.decode(prompt_ids)
        first_turn = prompt.endswith(ASSISTANT) and prompt.count(ASSISTANT) == 1  # else: later, or an interrupted one
        return next(self._openings) if first_turn else []

    def _sample(self, distribution: torch.Tensor, temperature: float) -> int:
        if temperature == 0:
            return int(distribution.argmax())
        if torch.rand(1, generator=self._random) < END_PROBABILITY:
            return int(self._tokenizer.eos_token_id)
        return int(torch.multinomial(distribution.exp(), 1, generator=self._random))

    async def wake_up(self, **_: Any) -> None:
        self._running.set()

    async def resume_generation(self) -> None:
        self._running.set()

    async def abort_all_requests(self, **_: Any) -> None:
        self._running.clear()

    async def sleep(self, **_: Any) -> None: ...

    async def clear_kv_cache(self) -> None: ...

    async def release_kv_cache(self) -> None: ...

    async def resume_kv_cache(self) -> None: ...

    async def start_profile(self, **_: Any) -> None: ...

    async def stop_profile(self) -> None: ...


class Replica(RolloutReplica):
    """One server, as one Ray actor. Its options are `rollout.custom`: `openings`, a list of texts."""

    async def launch_servers(self) -> None:
        path = self.model_config["path"] if isinstance(self.model_config, Mapping) else self.model_config.path
        openings = list((self.config.custom or {}).get("openings", []))
        actor = ray.remote(Server).options(
            name=server_name(self.replica_rank), num_cpus=0.1, max_concurrency=self.max_concurrency
        )
        limits = self.config.response_length, self.config.max_model_len
        self._server_handle = actor.remote(path, *limits, openings, seed=1234 + self.replica_rank)
        self.servers = [self._server_handle]
        self._server_address = f"{await self._server_handle.address.remote()}#{self.replica_rank}"
