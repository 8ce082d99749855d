"""How long reward functions take, what their judges say of tokens and failures: in real trainings."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForSequenceClassification

pytest.importorskip("uvicorn", reason="the judge of these tests is a real server")

from akka_otel_callbacks.common.graders.failure import CAUSES
from akka_otel_callbacks.common.graders.ledger import _open
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.graders import GraderFailure, JsonLabelMatch, Judge, JudgeStopped, graded
from akka_otel_callbacks.testing import telemetry_in_memory
from akka_otel_callbacks.trl import AkkaTelemetryCallback, scoring
from tests.support import tiny
from tests.support.judge_server import judge_server, score_of
from tests.trl.runs import Run, exported_run
from tests.trl.trainings import common, online

ASYNC = "async" in inspect.getsource(trl.GRPOTrainer._calculate_rewards)
needs_async = pytest.mark.skipif(not ASYNC, reason=f"TRL {trl.__version__} has no asynchronous rewards")
GROUP, ROWS, STEPS = 4, 8, 3
DURATION = names.RL_GRADER_DURATION


class Watch:
    """Reward functions that measure themselves."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    def slow(self, completions: list[Any], **_: Any) -> list[float]:
        begin = time.perf_counter()
        time.sleep(0.008)
        self.calls["slow"] += 1
        self.seconds["slow"] += time.perf_counter() - begin
        return [float(len(text)) for text in completions]

    async def waiting(self, completions: list[Any], **_: Any) -> list[float]:
        begin = time.perf_counter()
        await asyncio.sleep(0.02)
        self.calls["waiting"] += 1
        self.seconds["waiting"] += time.perf_counter() - begin
        return [0.5] * len(completions)


def trained(model: str, rewards: list[Any], kind: str = "GRPO", drive: Any = None, **options: Any) -> Run:
    trainer = options.pop("trainer", {})
    expected = options.pop("expected", ())
    settings = {"num_generations": GROUP, "max_completion_length": 6, "max_steps": STEPS, **options}

    def make(callbacks: Any) -> Any:
        return getattr(trl, f"{kind}Trainer")(
            model=model,
            args=getattr(trl, f"{kind}Config")(**common(settings)),
            reward_funcs=rewards,
            train_dataset=tiny.prompts(16),
            eval_dataset=tiny.prompts(4),
            callbacks=callbacks,
            **trainer,
        )

    return exported_run(make, drive or (lambda trainer: trainer.train()), expected=expected)


def counted(run: Run, metric: Any) -> dict[tuple[str, str], float]:
    """A counter's totals by term and its other attribute."""
    found = {}
    for point in run.points():
        if point.name == metric.name:
            others = [value for key, value in point.attributes.items() if key != names.ATTR_RL_TERM.name]
            found[point.attributes[names.ATTR_RL_TERM.name], others[0]] = point.value
    return found


def scored_s(run: Run) -> float:
    """Seconds that all of the scoring took."""
    return sum(run.shown(names.RL_STEP_TIMING, step, of="reward") or 0.0 for step in run.steps)


def timed_terms(run: Run) -> set[str]:
    return {p.attributes[names.ATTR_RL_TERM.name] for p in run.points() if p.name == DURATION.name}


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_a_function_is_timed_without_a_change_and_its_time_divided_by_its_rows(kind: str, tiny_model: str) -> None:
    watch = Watch()
    run = trained(tiny_model, [watch.slow], kind)
    for step in range(1, STEPS + 1):
        histogram = run.histogram(DURATION, step, "slow")
        assert histogram is not None
        assert histogram.count == ROWS * step, "a step's rollouts are there when the step is reported"
    assert histogram is not None
    assert watch.calls["slow"] == STEPS
    assert watch.seconds["slow"] <= histogram.sum <= scored_s(run)
    assert histogram.min * ROWS >= 0.008


@needs_async
def test_an_asynchronous_function_is_timed_from_its_own_start_to_its_own_end(tiny_model: str) -> None:
    watch = Watch()
    run = trained(tiny_model, [watch.waiting, watch.slow])
    for name in ("waiting", "slow"):
        histogram = run.histogram(DURATION, of=name)
        assert histogram is not None
        assert histogram.count == ROWS * STEPS
        assert watch.seconds[name] <= histogram.sum <= scored_s(run)


def test_a_reward_model_counts_like_a_function(tiny_model: str, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, num_labels=1, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    model = Qwen3ForSequenceClassification(config)
    model.config._name_or_path = "org/tiny-reward"
    run = trained(tiny_model, [model], trainer={"reward_processing_classes": tokenizer})
    histogram = run.histogram(DURATION, of="tiny-reward")
    assert histogram is not None
    assert histogram.count == ROWS * STEPS
    assert histogram.min > 0


def test_a_judge_and_rules_have_their_own_terms_failures_and_tokens(tiny_model: str) -> None:
    @graded(term="rule:length.py")
    def length(completion: str, answer: int) -> float:
        if answer % 2:
            raise GraderFailure("ungradable")
        return len(completion) / 10

    def behave(asked: Any) -> str:
        return "prose" if len(server.asked) % 4 == 0 else "score"

    with judge_server(behave) as server:
        judge = Judge("org/judge-4b", base_url=server.url, api_key="k", prompt="{completion}", retries=0)
        run = trained(tiny_model, [length, judge, JsonLabelMatch("answer")])
    rollouts = ROWS * STEPS
    for term in ("rule:length.py", "model:judge-4b", "json-label-match"):
        histogram = run.histogram(DURATION, of=term)
        assert histogram is not None
        assert histogram.count == rollouts, term
        assert run.shown(names.RL_STEP_REWARD_TERM, of=term) is not None, "its rewards go by the same name"
    assert timed_terms(run) == {"rule:length.py", "model:judge-4b", "json-label-match"}
    assert len(server.asked) == rollouts
    assert counted(run, names.RL_GRADER_TOKENS) == {
        ("model:judge-4b", "input"): server.tokens("input"),
        ("model:judge-4b", "output"): server.tokens("output"),
    }
    failures = counted(run, names.RL_GRADER_FAILURES)
    assert failures.keys() == {(term, cause) for term in timed_terms(run) for cause in CAUSES}
    failed = {series: count for series, count in failures.items() if count}
    assert failed.keys() == {("model:judge-4b", "unreadable"), ("rule:length.py", "ungradable")}
    assert failed["model:judge-4b", "unreadable"] == rollouts // 4
    assert 0 < failed["rule:length.py", "ungradable"] < rollouts


def test_failures_are_published_from_zero_before_the_first_step(tiny_model: str) -> None:
    """So that the increase over a time has those of the first step, too."""
    seen: list[float] = []
    series = {"rl.term": "rule:never.py", "rl.grader.failure.cause": "ungradable"}

    @graded(term="rule:never.py")
    def never(completion: str) -> float:
        seen.append(memory.latest("rl.grader.failures", series))
        raise GraderFailure("ungradable")

    with telemetry_in_memory() as memory:
        callback = AkkaTelemetryCallback(meter_provider=memory.meter_provider)
        online(
            "GRPO", tiny_model, [callback], rewards={never: 1.0}, max_steps=1, trainer={"reward_funcs": [never]}
        ).train()
        assert memory.latest("rl.grader.failures", series) == len(seen)
    assert seen == [0] * len(seen) != []


@needs_async
def test_an_asynchronous_judge_scores_as_the_plain_one(tiny_model: str) -> None:
    with judge_server() as server:
        judge = Judge("judge-4b", base_url=server.url, api_key="k", prompt="{completion}")
        run = trained(tiny_model, [judge.asynchronous])
    histogram = run.histogram(DURATION, of="model:judge-4b")
    assert histogram is not None
    assert histogram.count == len(server.asked) == ROWS * STEPS
    means = [score_of(asked.text) for asked in server.asked[-ROWS:]]
    assert run.shown(names.RL_STEP_REWARD) == pytest.approx(sum(means) / ROWS, rel=1e-5)


def test_a_function_that_asks_a_judge_is_a_term_beside_it(tiny_model: str) -> None:
    with judge_server() as server:
        judge = Judge("judge-4b", base_url=server.url, api_key="k", prompt="{completion}")

        def half(completions: list[str], **_: Any) -> list[float]:
            return [judge(completion=text) / 2 for text in completions]

        run = trained(tiny_model, [half])
    outer, inner = run.histogram(DURATION, of="half"), run.histogram(DURATION, of="model:judge-4b")
    assert outer is not None
    assert inner is not None
    assert outer.count == inner.count == ROWS * STEPS
    assert 0 < inner.sum <= outer.sum


def test_two_of_one_name_stay_apart(tiny_model: str) -> None:
    def make(seconds: float) -> Any:
        def same(completions: list[str], **_: Any) -> list[float]:
            time.sleep(seconds)
            return [1.0] * len(completions)

        return same

    rule = graded(lambda completion: 0.0, term="rule:a")
    other = graded(lambda completion: 1.0, term="rule:a")
    run = trained(tiny_model, [make(0), rule, make(0.016), other])
    assert timed_terms(run) == {"same", "same#2", "rule:a", "rule:a#2"}
    fast, slow = run.histogram(DURATION, of="same"), run.histogram(DURATION, of="same#2")
    assert fast is not None
    assert slow is not None
    assert fast.count == slow.count == ROWS * STEPS
    assert slow.min >= 0.002
    assert fast.min < slow.min


def test_evaluations_and_steps_that_reuse_rollouts_add_nothing(tiny_model: str) -> None:
    watch = Watch()
    run = trained(tiny_model, [watch.slow], max_steps=4, num_iterations=2, eval_strategy="steps", eval_steps=1)
    histogram = run.histogram(DURATION, of="slow")
    assert histogram is not None
    assert histogram.count == 2 * ROWS
    assert watch.calls["slow"] > 2


def test_a_refused_judge_ends_the_training(tiny_model: str) -> None:
    with judge_server(lambda asked: "401" if len(server.asked) > ROWS else "score") as server:
        judge = Judge("judge-4b", base_url=server.url, api_key="sk-secret", prompt="{completion}")
        run = trained(tiny_model, [judge], expected=(JudgeStopped,))
    assert isinstance(run.error, JudgeStopped)
    assert server.url in str(run.error)
    histogram = run.histogram(DURATION, of="model:judge-4b")
    assert histogram is not None
    assert histogram.count == ROWS, "the step that it ended was not reported"
    assert counted(run, names.RL_GRADER_FAILURES) == dict.fromkeys((("model:judge-4b", cause) for cause in CAUSES), 0)
    (job,) = run.sink.spans()
    assert "secret" not in str(job)


def test_a_function_that_raises_leaves_nothing_behind(tiny_model: str) -> None:
    watch, broken = Watch(), [True]

    def sometimes(completions: list[str], **_: Any) -> list[float]:
        if broken[0]:
            raise LookupError("no")
        return [0.0] * len(completions)

    def drive(trainer: Any) -> None:
        with pytest.raises(LookupError):
            trainer.train()
        broken[0] = False
        trainer.train()

    run = trained(tiny_model, [watch.slow, sometimes], drive=drive)
    for name in ("slow", "sometimes"):
        histogram = run.histogram(DURATION, of=name)
        assert histogram is not None
        assert histogram.count == ROWS * STEPS
    assert not _open


def test_a_trainer_of_ones_own_that_scores_by_itself_is_heard_of_its_graders(tiny_model: str) -> None:
    class Own(trl.GRPOTrainer):  # type: ignore[misc]
        def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
            rows = [rule(completion=text) for text in completions]
            return torch.tensor(rows).unsqueeze(1)

    rule = graded(lambda completion: 0.5, term="rule:own.py")
    run = exported_run(
        lambda callbacks: Own(
            model=tiny_model,
            args=trl.GRPOConfig(**common({"num_generations": GROUP, "max_completion_length": 6, "max_steps": STEPS})),
            reward_funcs=[lambda completions, **_: []],
            train_dataset=tiny.prompts(16),
            callbacks=callbacks,
        )
    )
    histogram = run.histogram(DURATION, of="rule:own.py")
    assert histogram is not None
    assert histogram.count == ROWS * STEPS


def test_regions_of_other_trainers_and_other_names_are_left_alone(tiny_model: str) -> None:
    trained(tiny_model, [Watch().slow], max_steps=1)
    from trl.extras import profiling

    class Stranger:
        class args:
            report_to: tuple[str, ...] = ()

        class state:
            global_step = 0

        class accelerator:
            is_main_process = True

    with profiling.profiling_context(Stranger(), "slow") as entered:
        assert not isinstance(entered, scoring._Timed)
    assert hasattr(profiling.profiling_context, scoring.TAPPED)
    assert AkkaTelemetryCallback
