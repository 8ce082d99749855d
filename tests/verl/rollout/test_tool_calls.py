"""Tool calls of a completion, counted in verl's real agent loop."""

from __future__ import annotations

import asyncio
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed in this environment")

import torch
from verl.experimental.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop import agent_loop as verl_workers
from verl.experimental.agent_loop import tool_agent_loop as verl_loops
from verl.experimental.agent_loop.tool_parser import FunctionCall
from verl.protocol import DataProto
from verl.tools.function_tool import FunctionTool

from akka_otel_callbacks.common.run.handed_on import RUN_VARIABLE
from akka_otel_callbacks.verl.rollout import tool_calls
from akka_otel_callbacks.verl.rollout.fields import TALLY


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """verl's module, hooked, in a process of a run."""
    monkeypatch.setenv(RUN_VARIABLE, "akka.optimize.training.run.id=r")
    for name in ("run", "_call_tool", "_handle_processing_tools_state"):
        monkeypatch.setattr(verl_loops.ToolAgentLoop, name, getattr(verl_loops.ToolAgentLoop, name))
    for name in ("_postprocess", "_compute_score"):
        monkeypatch.setattr(verl_workers.AgentLoopWorker, name, getattr(verl_workers.AgentLoopWorker, name))
    tool_calls.install(verl_loops)
    tool_calls.install_worker(verl_workers)
    return verl_loops


def add(a: int, b: int) -> str:
    """Adds.

    Args:
        a: one number.
        b: another.
    """
    return str(a + b)


def quote_an_error(text: str) -> str:
    """Says what a failed call would say.

    Args:
        text: anything.
    """
    return "Error executing tool 'x': not really"


def loop(monkeypatch: pytest.MonkeyPatch, scripts: list[list[FunctionCall]], declared: bool = True) -> Any:
    """verl's loop with real tools and a script in the model's place: each completion makes its calls at once."""
    made = verl_loops.ToolAgentLoop.__new__(verl_loops.ToolAgentLoop)
    made.tools = (
        {f.__name__: FunctionTool(fn=f, name=f.__name__, tool_schema=None) for f in (add, quote_an_error)}
        if declared
        else {}
    )
    made.max_tool_response_length, made.tool_response_truncate_side = 256, "middle"

    async def scripted(self: Any, sampling_params: Any, *, completion: int) -> AgentLoopOutput:
        agent_data = SimpleNamespace(extra_fields={}, _active_tools=self.tools)
        calls = [self._call_tool(call, {}, agent_data) for call in scripts[completion]]
        await asyncio.gather(*calls)
        return AgentLoopOutput(
            prompt_ids=[1], response_ids=[2], response_mask=[1], metrics={}, extra_fields={"kept": 1}
        )

    monkeypatch.setattr(verl_loops.ToolAgentLoop, "run", scripted)
    tool_calls.install(verl_loops)
    return made


def worker() -> Any:
    """verl's worker where the reward is computed elsewhere."""
    made = verl_workers.AgentLoopWorker.__new__(verl_workers.AgentLoopWorker)
    made.reward_loop_worker_handles = None
    return made


async def completed(made: Any, completion: int = 0) -> AgentLoopOutput:
    """A completion from its start to its score, as verl's worker does it in one task."""
    output = await made.run({}, completion=completion)
    assert TALLY not in output.extra_fields, "a reward function would be given it"
    await worker()._compute_score([output], kwargs={})
    return output


def call(name: str, arguments: str) -> FunctionCall:
    return FunctionCall(name=name, arguments=arguments)


GOOD = call("add", '{"a": 1, "b": 2}')
UNKNOWN = call("substract", "{}")
NO_JSON = call("add", "one and two")
WRONG = call("add", '{"c": 1}')


def test_calls_and_failures_of_each_completion_stay_apart(loops: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """All completions of a worker run as tasks of one event loop."""
    scripts = [[GOOD, GOOD], [GOOD, UNKNOWN, NO_JSON, WRONG], []]
    made = loop(monkeypatch, scripts)

    async def all_at_once() -> list[AgentLoopOutput]:
        return await asyncio.gather(*(completed(made, index) for index in range(len(scripts))))

    outputs = asyncio.run(all_at_once())
    assert [output.extra_fields[TALLY] for output in outputs] == [(2, 0, False), (4, 3, False), (0, 0, False)]
    assert all(output.extra_fields["kept"] == 1 for output in outputs)


def test_a_tool_that_answers_like_a_failure_counts_as_one(loops: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's answer for a tool that raised cannot be told from the same words of a tool: the one known blind spot."""
    made = loop(monkeypatch, [[call("quote_an_error", '{"text": "x"}')]])
    assert asyncio.run(completed(made)).extra_fields[TALLY] == (1, 1, False)


def test_a_tool_with_a_result_of_its_own_did_not_fail() -> None:
    response = SimpleNamespace(text="Error executing tool 'x': quoted")
    assert not tool_calls.is_failure((response, 0.5, {}))
    assert not tool_calls.is_failure((response, 0.0, {"state": 1}))
    assert tool_calls.is_failure((response, 0.0, {}))
    assert not tool_calls.is_failure((SimpleNamespace(text=None), 0.0, {}))


def test_a_loop_without_tools_says_nothing(loops: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    made = loop(monkeypatch, [[]], declared=False)
    assert TALLY not in asyncio.run(completed(made)).extra_fields


def test_outside_a_run_nothing_is_counted(loops: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    made = loop(monkeypatch, [[GOOD]])
    monkeypatch.delenv(RUN_VARIABLE)
    assert TALLY not in asyncio.run(completed(made)).extra_fields


def test_of_several_outputs_the_last_has_the_tally(loops: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    async def with_two_outputs() -> list[Any]:
        last = await loop(monkeypatch, [[GOOD, NO_JSON]]).run({}, completion=0)
        outputs = [last.model_copy(update={"extra_fields": {}}), last]
        await worker()._compute_score(outputs, kwargs={})
        return outputs

    first, last = asyncio.run(with_two_outputs())
    assert (first.extra_fields, last.extra_fields) == ({}, {"kept": 1, TALLY: (2, 1, False)})


@pytest.mark.parametrize(("window", "ended"), [(9, False), (8, True), (3, True)])
def test_a_response_that_does_not_fit_is_told(
    loops: ModuleType, monkeypatch: pytest.MonkeyPatch, window: int, ended: bool
) -> None:
    """verl's own step with the tools: it drops the responses where they fill the window, and ends the completion."""

    async def eight_tokens(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(token_ids=[1] * 9), [1, 1, 0, 0, 0, 0, 0, 0], None

    async def with_tools(self: Any, sampling_params: Any, *, completion: int) -> AgentLoopOutput:
        agent_data = SimpleNamespace(
            tool_calls=[GOOD],
            tools_kwargs={},
            messages=[],
            metrics={},
            tool_rewards=[],
            prompt_ids=[1, 2, 3],
            response_mask=[1, 1],
            response_logprobs=None,
            user_turns=0,
            extra_fields={},
            _active_tools=self.tools,
        )
        state = await self._handle_processing_tools_state(agent_data)
        assert (state == loops.AgentState.TERMINATED) == ended
        return AgentLoopOutput(prompt_ids=[1], response_ids=[2], response_mask=[1], metrics={}, extra_fields={})

    made = loop(monkeypatch, [])
    made.response_length, made.max_parallel_calls, made.tool_schemas = window, 4, []
    made.ct_merge_context_msg, made._assert_mm_supported = eight_tokens, lambda _: None
    monkeypatch.setattr(loops.ToolAgentLoop, "run", with_tools)
    tool_calls.install(loops)
    assert asyncio.run(completed(made)).extra_fields[TALLY] == (1, 0, ended)


def test_a_call_that_raises_is_a_failure_and_still_raises(loops: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: Any, *args: Any) -> None:
        raise ConnectionError("sandbox is gone")

    monkeypatch.setattr(verl_loops.ToolAgentLoop, "_call_tool", broken)
    made = loop(monkeypatch, [[GOOD]])

    with pytest.raises(ConnectionError, match="sandbox is gone"):
        asyncio.run(completed(made))


def row(**extra: Any) -> Any:
    """A completion as verl's worker joins it with others."""
    ids = {
        name: torch.ones(1, width, dtype=torch.long)
        for name, width in {
            "prompt_ids": 3,
            "response_ids": 4,
            "response_mask": 4,
            "input_ids": 7,
            "position_ids": 7,
            "attention_mask": 7,
        }.items()
    }
    own = {"reward_extra_info": {"score": 1.0}, **extra}
    metrics = verl_workers.AgentLoopMetrics()
    return verl_workers._InternalAgentLoopOutput(
        **ids, reward_score=1.0, num_turns=2, metrics=metrics, extra_fields=own
    )


@pytest.mark.parametrize("with_tools", [(True, False), (False, True), (True, True), (False, False)])
def test_batches_of_workers_with_other_loops_can_be_joined(loops: ModuleType, with_tools: tuple[bool, bool]) -> None:
    chunks = [worker()._postprocess([row(**{TALLY: (2, 1)} if tools else {}), row()]) for tools in with_tools]
    for chunk in chunks:
        chunk.meta_info.pop("metrics")
    joined = DataProto.concat(chunks).non_tensor_batch[TALLY]
    assert list(joined) == [tally for tools in with_tools for tally in ((2, 1) if tools else None, None)]


def test_outside_a_run_batches_stay_as_they_are(loops: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_VARIABLE)
    assert TALLY not in worker()._postprocess([row()]).non_tensor_batch


def test_a_verl_whose_workers_do_not_score_is_reported() -> None:
    with pytest.raises(AttributeError):
        tool_calls.install_worker(SimpleNamespace(AgentLoopWorker=type("AgentLoopWorker", (), {})))  # type: ignore[arg-type]
