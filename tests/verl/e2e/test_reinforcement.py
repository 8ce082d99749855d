"""Every figure of real reinforcement trainings against verl's own log, its dump of the rollouts, and what the rollout
server generated."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("verl_cpu", reason="it needs the environment of constraints/verl.txt with examples/verl_cpu")

from verl_cpu.reward import compute_score

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.names import MemoryComponent as Part
from tests.support.points import SpanRecord
from tests.support.traces import check_trace, named
from tests.verl.e2e import fills, seen
from tests.verl.e2e.harness import CLUSTER_POD, DRIVER_POD, PARENT_ID, TRACE_ID, Case, Run, trained
from tests.verl.e2e.replays import check_replays
from tests.verl.e2e.saves import check_saves, saves

UPDATES = (
    "actor_rollout_ref.actor.use_kl_loss=True",
    "actor_rollout_ref.actor.ppo_epochs=2",  # the first update of a policy has a ratio of 1, which is never clipped
    "actor_rollout_ref.actor.clip_ratio=0.000001",  # any change clips, however small a step of the tiny model is
)
COSINE = "actor_rollout_ref.actor.optim.lr_scheduler_type=cosine"
"""Every step has a learning rate of its own, and the first the full one."""
OTHER_SCALES = (
    "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum",  # verl's own entropy and divergence are per sequence
    "actor_rollout_ref.actor.kl_loss_type=mse",  # which is not the KL divergence
)
NEVER_MS = "864000000"
LIMIT = 24
"""Tokens at which the recipe cuts a completion."""
WINDOW = 45
"""Tokens that the rollout server has for prompt and completion of a run with such a window."""
ONLY_AT_THE_END = {"OTEL_METRIC_EXPORT_INTERVAL": NEVER_MS}
FILLS, SEEN, SPANS = "tests.verl.e2e.fills", "tests.verl.e2e.seen", "tests.verl.e2e.spans"
CASES = {
    "v1-cluster": Case(
        "grpo",
        workers=2,
        cluster=True,
        extra=(*UPDATES, *OTHER_SCALES, COSINE, "trainer.test_freq=2"),
        environ={**ONLY_AT_THE_END, "AKKA_OTEL_SPANS": "phase"},
        external=f"{FILLS},{SEEN},{SPANS}",
    ),
    "v1-tools": Case(
        "tools",
        extra=(
            COSINE,
            "data.train_batch_size=2",
            "actor_rollout_ref.actor.ppo_mini_batch_size=2",
            "trainer.save_freq=2",
        ),
        external=SPANS,
        loggers=("tensorboard",),
    ),
    "v0-cluster": Case(
        "grpo-v0",
        cluster=True,
        extra=(*UPDATES, COSINE, f"actor_rollout_ref.rollout.max_model_len={WINDOW}", "trainer.save_freq=3"),
        environ={**ONLY_AT_THE_END, "AKKA_OTEL_SPANS": "step"},
        external=SPANS,
    ),
}
GAUGES = {
    names.RL_STEP_REWARD: "critic/score/mean",
    names.RL_STEP_LOSS: "actor/loss",
    names.RL_STEP_POLICY_LOSS: "actor/pg_loss",
    names.RL_STEP_NUMBER: "training/global_step",
    names.JOB_EPOCH: "training/epoch",
    names.RL_STEP_GRAD_NORM: "actor/grad_norm",
    names.RL_STEP_ENTROPY: "actor/entropy",
    names.RL_STEP_KL: "actor/kl_loss",
    names.RL_STEP_CLIP_RATIO: "actor/pg_clipfrac",
    names.RL_STEP_TOKENS: "perf/total_num_tokens",
    names.RL_STEP_THROUGHPUT: "perf/throughput",
    names.RL_STEP_MFU: "perf/mfu/actor",
}
LENGTHS = {
    names.RL_STEP_COMPLETION_LENGTH: "response_length/mean",
    names.RL_STEP_COMPLETION_LENGTH_MAX: "response_length/max",
    names.RL_STEP_COMPLETION_LENGTH_MIN: "response_length/min",
}
PER_TOKEN = {names.RL_STEP_ENTROPY, names.RL_STEP_KL}
OWN = (names.ATTR_SERVICE_INSTANCE_ID, names.ATTR_PROCESS_PID, names.ATTR_HOST_NAME, names.ATTR_K8S_POD_NAME)
"""What tells processes apart."""
TERM = names.ATTR_RL_TERM


@pytest.fixture(scope="module", params=CASES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with trained(CASES[request.param], tmp_path_factory.mktemp("run")) as run:
        yield run


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-6, abs=1e-9)


def has_tools(run: Run) -> bool:
    return run.case.recipe == "tools"


def has_other_scales(run: Run) -> bool:
    return SEEN in (run.case.external or "")


def has_fills(run: Run) -> bool:
    return FILLS in (run.case.external or "")


def has_window(run: Run) -> bool:
    return any("max_model_len" in setting for setting in run.case.extra)


def scores(run: Run, step: int) -> list[float]:
    return [rollout["score"] for rollout in run.rollouts[step]]


def terms(run: Run, step: int) -> dict[str, list[float]]:
    """What the reward function gives for the texts that verl dumped."""
    found = defaultdict(list)
    for rollout in run.rollouts[step]:
        for term, value in compute_score("", rollout["output"], "").items():
            if not isinstance(value, str) and term != "score":
                found[term].append(float(value))
    return {**found, names.RlTerm.TOTAL: scores(run, step)}


def test_it_trains_and_nothing_of_the_telemetry_fails(run: Run) -> None:
    assert run.status == 0, run.output[-3000:]
    assert len(run.steps) == 3
    assert "telemetry failed" not in run.output
    assert "lacks what" not in run.output


def test_its_logs_replay_to_the_same_figures(run: Run) -> None:
    check_replays(run)


def test_gauges_are_what_verl_logged(run: Run) -> None:
    logged = {metric: run.steps[-1][key] for metric, key in GAUGES.items() if key in run.steps[-1]}
    assert GAUGES.keys() - logged.keys() == ({names.RL_STEP_KL} if has_tools(run) else set())
    for metric in GAUGES.keys() - (PER_TOKEN if has_other_scales(run) else set()):
        expected = logged.get(metric)
        assert run.value(metric) == (None if expected is None else close(expected)), metric.name


def test_the_loss_is_the_policys_with_its_penalty(run: Run) -> None:
    last = run.steps[-1]
    penalty = last["actor/kl_coef"] * last["actor/kl_loss"] if "actor/kl_loss" in last else 0.0
    assert run.value(names.RL_STEP_LOSS) == pytest.approx(last["actor/pg_loss"] + penalty, rel=1e-4, abs=1e-7)


def test_the_reward_of_a_validation_is_of_its_data_source(run: Run) -> None:
    logged = [
        (key.split("/")[1], value)
        for _, row in run.log
        for key, value in row.items()
        if key.startswith("val-") and "/reward/mean@" in key
    ]
    found = {
        point.attributes[names.ATTR_EVAL_DATASET.name]: point.value
        for point in run.points
        if point.name == names.RL_EVAL_REWARD.name
    }
    assert found == {source: close(value) for source, value in dict(logged).items()}
    assert bool(found) == any("test_freq" in setting for setting in run.case.extra)


def test_the_plan_is_known_from_the_start(run: Run) -> None:
    assert run.value(names.JOB_STEPS_PLANNED) == len(run.steps)


def test_entropy_and_divergence_are_per_token_whatever_the_scale_of_verls_own(run: Run) -> None:
    if not has_other_scales(run):
        pytest.skip("verl's own are per token")
    last = run.steps[-1]
    entropy, divergence = seen.entropy(run.directory), seen.divergence(run.directory)
    assert run.value(names.RL_STEP_ENTROPY) == pytest.approx(entropy, rel=1e-5)
    assert run.value(names.RL_STEP_KL) == pytest.approx(divergence, rel=1e-3, abs=1e-7)
    assert last["actor/entropy"] > 2 * entropy
    assert last["actor/kl_loss"] != pytest.approx(divergence, rel=0.1)


def test_the_learning_rate_is_the_one_that_the_step_used(run: Run) -> None:
    assert run.steps[-2]["actor/lr"] > run.steps[-1]["actor/lr"]
    assert run.value(names.RL_STEP_LEARNING_RATE) == close(run.steps[-2]["actor/lr"])


def test_phases_are_what_verl_timed(run: Run) -> None:
    timed = {key.removeprefix("timing_s/"): seconds for key, seconds in run.steps[-1].items() if key[:9] == "timing_s/"}
    expected = {phase: close(seconds) for phase, seconds in timed.items() if "/" not in phase}
    phases = run.by(names.RL_STEP_TIMING, names.ATTR_RL_STEP_PHASE)
    assert {phase: point.value for phase, point in phases.items()} == expected
    assert {"gen", "old_log_prob", "update_actor", "step"} <= expected.keys()


def test_steps_are_counted_and_timed(run: Run) -> None:
    assert run.value(names.RL_STEP_COUNT) == 3
    durations = run.point(names.RL_STEP_DURATION).histogram
    assert durations.count == 3
    assert durations.sum == close(sum(step["timing_s/step"] for step in run.steps))


def test_rewards_are_those_of_the_dumped_rollouts(run: Run) -> None:
    totals = scores(run, 3)
    groups = defaultdict(list)
    for rollout in run.rollouts[3]:
        groups[rollout["input"]].append(rollout["score"])
    assert all(len(group) == 4 for group in groups.values())
    assert run.value(names.RL_STEP_ROLLOUTS) == len(totals)
    assert run.value(names.RL_STEP_REWARD_STD) == close(statistics.stdev(totals))
    assert run.value(names.RL_STEP_REWARD_ZERO_RATIO) == close(totals.count(0) / len(totals))
    without_spread = [len(set(group)) == 1 for group in groups.values()]
    assert run.value(names.RL_STEP_FRAC_REWARD_ZERO_STD) == close(statistics.mean(without_spread))


def test_reward_terms_are_those_of_the_dumped_rollouts(run: Run) -> None:
    expected = terms(run, 3)
    assert {"digit", "brevity", "acc", "total"} == expected.keys()
    means, stds = run.by(names.RL_STEP_REWARD_TERM, TERM), run.by(names.RL_STEP_REWARD_TERM_STD, TERM)
    assert {term: point.value for term, point in means.items()} == {
        term: close(statistics.mean(values)) for term, values in expected.items()
    }
    assert {term: point.value for term, point in stds.items()} == {
        term: close(statistics.stdev(values)) for term, values in expected.items()
    }


def test_reward_histograms_hold_every_rollout(run: Run) -> None:
    expected = defaultdict(list)
    for step in (1, 2, 3):
        for term, values in terms(run, step).items():
            expected[term] += values
    histograms = run.by(names.RL_ROLLOUT_REWARD, TERM)
    assert histograms.keys() == expected.keys()
    for term, values in expected.items():
        histogram = histograms[term].histogram
        assert (histogram.count, histogram.sum) == (len(values), close(sum(values))), term
        at_most_half = sum(histogram.counts[: histogram.bounds.index(0.5) + 1])
        assert at_most_half == sum(value <= 0.5 for value in values), term


def test_lengths_are_what_the_model_generated(run: Run) -> None:
    histogram = run.point(names.RL_ROLLOUT_COMPLETION_LENGTH).histogram
    assert histogram.count == sum(len(rollouts) for rollouts in run.rollouts.values())
    assert histogram.scale is not None
    if has_tools(run):  # verl's own lengths have the tools' responses in them
        assert 0 < run.value(names.RL_STEP_COMPLETION_LENGTH) < run.steps[-1]["response_length/mean"]
        return
    for metric, key in LENGTHS.items():
        assert run.value(metric) == close(run.steps[-1][key]), metric.name
    sampled = [line for version in (0, 1, 2) for line in run.completions[version] if line["temperature"] > 0]
    assert histogram.sum == sum(line["tokens"] for line in sampled)


def test_truncated_completions_are_those_that_the_server_cut(run: Run) -> None:
    """verl drops the reason of the end, so that an end at the very last allowed token counts as a cut."""
    if has_tools(run):
        pytest.skip("a completion of several turns is not one text of the server")
    sampled = [line for line in run.completions[2] if line["temperature"] > 0]
    assert len(sampled) == len(run.rollouts[3])
    ended = [line["tokens"] for line in sampled if line["tokens"] < line["limit"]]
    assert all(line["tokens"] == line["limit"] for line in sampled if line["reason"] == "length")
    limits = {line["limit"] for line in sampled}
    assert max(limits) < LIMIT if has_window(run) else limits == {LIMIT}
    assert run.value(names.RL_STEP_COMPLETION_CLIPPED_RATIO) == close(1 - len(ended) / len(sampled))
    assert run.value(names.RL_STEP_COMPLETION_LENGTH_TERMINATED) == close(statistics.mean(ended))


def test_both_sides_of_the_clip_make_up_what_verl_logged(run: Run) -> None:
    high, low = run.value(names.RL_STEP_CLIP_RATIO_HIGH), run.value(names.RL_STEP_CLIP_RATIO_LOW)
    assert high + low == close(run.steps[-1]["actor/pg_clipfrac"])
    if not has_tools(run):  # the later steps of the tiny model may be too small for bfloat16 to clip anything
        first = run.steps[0]
        assert 0 < first["actor/pg_clipfrac_high"] < first["actor/pg_clipfrac"] < 1


def test_tool_calls_are_the_scripted_ones(run: Run) -> None:
    """Of four completions one calls a tool well, one a tool that fails, one a tool that is not there."""
    expected = (close(3 / 4), close(2 / 3)) if has_tools(run) else (None, None)
    assert (run.value(names.RL_STEP_TOOL_CALLS), run.value(names.RL_STEP_TOOL_FAILURE_RATIO)) == expected


def test_memory_is_that_of_the_fuller_worker(run: Run) -> None:
    parts = {part: point.value for part, point in run.by(names.STEP_MEMORY, names.ATTR_MEMORY_COMPONENT).items()}
    marks = run.value(names.RL_STEP_MEMORY_MAX_ALLOCATED), run.value(names.RL_STEP_MEMORY_MAX_RESERVED)
    if not has_fills(run):  # a CPU has no device memory
        assert (parts, marks) == ({}, (None, None))
        return
    most = fills.HELD + fills.LOADING
    assert marks == (most, most)
    assert sum(parts.values()) == fills.TOTAL
    assert parts.keys() == {part for name, part in vars(Part).items() if name.isupper()}
    update = fills.update_of(rank=1)  # of the first of two mini-batches
    assert parts[Part.GRADIENTS] + parts[Part.ACTIVATIONS] == update
    assert parts[Part.WEIGHTS] + parts[Part.OPTIMIZER] + parts[Part.OTHER] == fills.HELD
    assert parts[Part.GRADIENTS] > 0
    assert parts[Part.WEIGHTS] == pytest.approx(parts[Part.GRADIENTS], rel=0.01)  # and buffers, which do not train
    assert parts[Part.OPTIMIZER] == pytest.approx(2 * parts[Part.GRADIENTS], rel=0.01)  # Adam's moments and counters
    assert parts[Part.FREE] == fills.TOTAL - fills.EXTERNAL - fills.HELD - update
    assert parts[Part.EXTERNAL] == fills.EXTERNAL
    assert parts[Part.ADAPTER] == parts[Part.GENERATION] == parts[Part.ALLOCATOR] == 0


def test_verls_own_figures_of_memory_stay_true(run: Run) -> None:
    """The counters that verl reads have been reset meanwhile; on a CPU they are always 0."""
    most = fills.HELD + fills.LOADING if has_fills(run) else 0
    for key in ("actor/perf/max_memory_allocated_gb", "actor/perf/max_memory_reserved_gb"):
        assert [step[key] for step in run.steps] == [most / 1024**3] * 3


def test_no_role_of_a_colocated_trainer_idles(run: Run) -> None:
    assert run.value(names.RL_IDLE, {names.ATTR_RL_ROLE: names.RlRole.TRAINER}) is None


def test_every_worker_says_where_it_runs(run: Run) -> None:
    role = "actor_rollout_ref" if "use_kl_loss=True" in "".join(run.case.extra) else "actor_rollout"
    placements = run.placements()
    assert placements.keys() == {(role, rank) for rank in range(run.case.workers)}
    pod = CLUSTER_POD if run.case.cluster else DRIVER_POD
    for points in placements.values():
        assert {point.value for point in points} == {1}
        (items,) = {tuple(point.attributes.items()) for point in points}
        attributes = dict(items)
        assert attributes[names.ATTR_K8S_POD_NAME.name] == pod
        assert names.ATTR_HW_ID.name not in attributes  # there is no GPU to read
        assert len({point.resource[names.ATTR_PROCESS_PID.name] for point in points}) == 1
    assert run.last[0].resource[names.ATTR_K8S_POD_NAME.name] == pod


def test_workers_export_every_few_seconds_and_are_flushed_at_the_end(run: Run) -> None:
    last_log_call_ns = (run.directory / "log.jsonl").stat().st_mtime_ns
    for points in run.placements().values():
        times = [point.time_ns for point in points]
        assert times[-1] > last_log_call_ns
        if run.case.environ.get("OTEL_METRIC_EXPORT_INTERVAL") == NEVER_MS:
            assert len(times) == 1
        else:
            gaps_s = [(later - earlier) / 1e9 for earlier, later in pairwise(times[:-1])]
            assert gaps_s
            assert min(gaps_s) > 4.5


def test_all_processes_name_the_same_run(run: Run) -> None:
    own = {attribute.name for attribute in OWN}
    shared = {tuple(sorted((k, v) for k, v in p.resource.items() if k not in own)) for p in run.points}
    (resource,) = map(dict, shared)
    assert resource[names.ATTR_RUN_ENGINE.name] == names.RunEngine.VERL
    assert resource[names.ATTR_RUN_METHOD.name] == "GRPO"
    assert resource[names.ATTR_RUN_BASE_MODEL.name] == "model"
    assert resource[names.ATTR_RUN_LEARNING_RATE.name] == 1e-3
    assert resource[names.ATTR_RUN_GROUP_SIZE.name] == 4
    assert resource[names.ATTR_RUN_ATTEMPT.name] == 1
    assert resource[names.ATTR_PROJECT.name] == resource[names.ATTR_WORKLOAD.name] == "e2e"
    assert resource["team"] == "red"
    instance, pid = names.ATTR_SERVICE_INSTANCE_ID.name, names.ATTR_PROCESS_PID.name
    instances = {(point.resource[instance], point.resource[pid]) for point in run.points}
    assert len(instances) == 1 + run.case.workers
    assert len(dict(instances)) == len(instances)


def test_each_checkpoint_is_a_stage_for_as_long_as_verl_says(run: Run) -> None:
    saved = [row["timing_s/save_checkpoint"] for row in run.steps if "timing_s/save_checkpoint" in row]
    assert len(saved) == {"tools": 2, "grpo-v0": 1}.get(run.case.recipe, 0)
    if saved:
        check_saves(run, len(saved), names.CheckpointArtifactKind.FULL_STATE)
        measured = [(span.end_ns - span.start_ns) / 1e9 for span in saves(run)]
        assert measured == [pytest.approx(seconds, abs=0.1) for seconds in saved]
    else:
        assert saves(run) == []


# -- spans


OPERATION = names.CheckpointOperation.MATERIALIZE
"""That each worker does, see `spans`."""


def detail(run: Run) -> str:
    return run.case.environ.get("AKKA_OTEL_SPANS", "job")


def test_all_spans_are_one_trace_with_the_right_parents_also_the_workers(run: Run) -> None:
    spans = run.sink.spans()
    of_worker = names.SPAN_CHECKPOINT_OPERATION.of(OPERATION)
    job = check_trace(spans, TRACE_ID, PARENT_ID, earlier=[of_worker])  # verl makes the workers first
    assert job.status != 2
    of_workers = named(spans, of_worker)
    instance = names.ATTR_SERVICE_INSTANCE_ID.name
    placed = {point.resource[instance] for points in run.placements().values() for point in points}
    assert {span.resource[instance] for span in of_workers} == placed
    assert len(of_workers) == len(placed) == run.case.workers
    assert {span.parent_span_id for span in of_workers} == {job.span_id}


def test_every_validation_has_its_span(run: Run) -> None:
    validations = sum(any(key.startswith("val-") for key in data) for _, data in run.log)
    evaluations = named(run.sink.spans(), names.SPAN_EVAL.name)
    assert len(evaluations) == validations
    assert validations or not any("test_freq" in setting for setting in run.case.extra)
    timed = [row["timing_s/testing"] for row in run.steps if "timing_s/testing" in row]
    for seconds, span in zip(reversed(timed), reversed(evaluations), strict=False):
        assert 0 < (span.end_ns - span.start_ns) / 1e9 <= seconds


def test_steps_and_phases_are_as_long_as_verl_says(run: Run) -> None:
    spans, attribute = run.sink.spans(), names.ATTR_RL_STEP_PHASE.name
    steps = named(spans, names.SPAN_RL_STEP.name)
    phases = [span for span in spans if attribute in span.attributes]
    assert len(steps) == (0 if detail(run) == "job" else len(run.steps))
    assert bool(phases) == (detail(run) == "phase")
    for number, (row, span) in enumerate(zip(run.steps, steps, strict=False), start=1):
        assert span.attributes == {names.ATTR_SPAN_STEP.name: number}
        assert seconds(span) == pytest.approx(row["timing_s/step"], abs=0.1)  # a busy machine comes in between
        of_step = [phase for phase in phases if phase.attributes[names.ATTR_SPAN_STEP.name] == number]
        expected = {key.removeprefix("timing_s/") for key in row if key.startswith("timing_s/") and key.count("/") == 1}
        if detail(run) == "phase":
            assert {phase.attributes[attribute] for phase in of_step} == expected - {"step"} > {"gen", "update_actor"}
        for phase in of_step:
            assert phase.name == names.SPAN_RL_STEP_PHASE.of(phase.attributes[attribute])
            assert phase.parent_span_id in (span.span_id, phase.parent_span_id if starts_outside(phase, span) else "")
        for name in {phase.attributes[attribute] for phase in of_step}:
            total = sum(seconds(phase) for phase in of_step if phase.attributes[attribute] == name)
            assert total == pytest.approx(row[f"timing_s/{name}"], abs=0.1), name


def seconds(span: SpanRecord) -> float:
    return (span.end_ns - span.start_ns) / 1e9


def starts_outside(phase: SpanRecord, step: SpanRecord) -> bool:
    return not step.start_ns <= phase.start_ns <= step.end_ns
