"""What holds for the vocabulary itself: against OpenTelemetry's conventions, and what dashboards rely on."""

from __future__ import annotations

import ast
import re
from types import SimpleNamespace

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes, hw_attributes
from opentelemetry.semconv._incubating.metrics import hw_metrics

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Attribute, Kind, Metric
from tools.generate import NAMES, ROOT
from tools.model import PREFIX

SOURCE = ROOT / "src"
HARDWARE = [metric for metric in names.METRICS if metric.name.startswith("hw.")]
ATTRIBUTES = [value for value in vars(names).values() if isinstance(value, Attribute)]
IDENTITIES = {
    names.ATTR_RUN_ID,
    names.ATTR_CHECKPOINT_SNAPSHOT_ID,
    names.ATTR_CHECKPOINT_SOURCE_RUN_ID,
    names.ATTR_CHECKPOINT_SOURCE_ATTEMPT,
    names.ATTR_CHECKPOINT_SOURCE_ENGINE_STEP,
}


class Recorder:
    """A meter that only notes what is made with it."""

    def __getattr__(self, method: str) -> object:
        kind = method.removeprefix("create_").removeprefix("observable_").replace("_", "")
        return lambda name, unit, **_: SimpleNamespace(name=name, kind=kind, unit=unit)


@pytest.mark.parametrize("metric", HARDWARE, ids=lambda metric: metric.name)
def test_a_hardware_metric_is_the_one_of_the_conventions(metric: Metric) -> None:
    create = getattr(hw_metrics, f"create_{metric.name.replace('.', '_')}")
    callbacks = [[]] if metric.kind is Kind.GAUGE else []
    made = create(Recorder(), *callbacks)
    assert (made.name, made.kind, made.unit) == (metric.name, metric.kind.value, metric.unit)


def test_hardware_attributes_are_those_of_the_conventions() -> None:
    known = {value for name, value in vars(hw_attributes).items() if name.startswith("HW_")}
    assert {attribute.name for attribute in ATTRIBUTES if attribute.name.startswith("hw.")} <= known
    assert set(names.ATTR_HW_TYPE.values) <= {value.value for value in hw_attributes.HwTypeValues}
    assert set(names.ATTR_HW_STATE.values) <= {value.value for value in hw_attributes.HwStateValues}
    assert set(names.ATTR_HW_GPU_TASK.values) <= {value.value for value in hw_attributes.HwGpuTaskValues}


def test_token_types_are_those_of_the_conventions() -> None:
    known = {value.value for value in gen_ai_attributes.GenAiTokenTypeValues}
    assert set(names.ATTR_RL_GRADER_TOKEN_TYPE.values) <= known


def test_every_other_name_has_the_prefix() -> None:
    standard = {"error.type", "host.name", "k8s.node.name", "k8s.pod.name", "process.pid", "service.name"}
    standard |= {"service.instance.id"}
    used = {*(metric.name for metric in names.METRICS), *(attribute.name for attribute in ATTRIBUTES)}
    assert {name for name in used if not name.startswith((PREFIX, "hw."))} == standard


def test_every_gpu_series_says_which_gpu() -> None:
    gpu = [metric for metric in names.JOB_METRICS if metric.name.startswith(("hw.", f"{PREFIX}gpu."))]
    assert len(gpu) == 18
    assert all(metric.attributes[:2] == (names.ATTR_HW_ID, names.ATTR_HW_NAME) for metric in gpu)


def test_no_metric_carries_an_exact_identity() -> None:
    """The number of series grows with projects, not with runs; a job's identity is on its resource."""
    assert [metric for metric in names.METRICS if IDENTITIES & set(metric.attributes)] == []


def test_a_service_metric_is_no_job_metric() -> None:
    assert set(names.JOB_METRICS) & set(names.SERVICE_METRICS) == set()
    assert {names.ATTR_JOB_RANK, names.ATTR_HW_ID, names.ATTR_RL_TERM}.isdisjoint(
        attribute for metric in names.SERVICE_METRICS for attribute in metric.attributes
    )


def test_a_gauge_that_each_instance_reports_alike_names_the_instance() -> None:
    capacity = [metric for metric in names.METRICS if re.search(r"\.(pool|project)\.", metric.name)]
    assert len(capacity) == 6
    assert all(names.ATTR_INSTANCE in metric.attributes for metric in capacity)


def test_every_attribute_is_used() -> None:
    used = set(names.RESOURCE_ATTRIBUTES)
    used |= {attribute for carrier in (*names.METRICS, *names.SPANS, *names.EVENTS) for attribute in carrier.attributes}
    assert [attribute.name for attribute in ATTRIBUTES if attribute not in used] == []


def test_the_reward_histogram_sets_nothing_and_a_full_score_apart() -> None:
    assert names.RL_ROLLOUT_REWARD.buckets == (0, *(tenth / 10 for tenth in range(1, 10)), 0.99, 1, 2, 5)


def test_only_completion_lengths_are_exponential() -> None:
    assert [metric for metric in names.METRICS if metric.exponential] == [names.RL_ROLLOUT_COMPLETION_LENGTH]


@pytest.mark.parametrize("metric", [names.RL_STEP_DURATION, names.SFT_STEP_DURATION], ids=lambda metric: metric.name)
def test_step_buckets_reach_from_a_tiny_model_to_a_long_agent(metric: Metric) -> None:
    assert (metric.buckets[0], metric.buckets[-1]) == (0.05, 3600)
    assert all(high / low <= 2.5 for low, high in zip(metric.buckets, metric.buckets[1:], strict=False))


def test_what_outlives_the_step_that_had_it() -> None:
    sticky = {metric: metric.sticky_values or True for metric in names.METRICS if metric.sticky or metric.sticky_values}
    assert sticky == {
        names.RL_EVAL_REWARD: True,
        names.SFT_EVAL_LOSS: True,
        names.SFT_DATA_ROWS: True,
        names.GPU_XID_LAST: True,
        names.SFT_STEP_TIMING: {names.SftStepPhase.EVAL, names.SftStepPhase.SAVE_CHECKPOINT},
        names.RL_STEP_TIMING: {names.RlStepPhase.TESTING, names.RlStepPhase.SAVE_CHECKPOINT},
    }


def test_the_resource_is_typed() -> None:
    types = {attribute: attribute.type for attribute in names.RESOURCE_ATTRIBUTES if attribute.type is not str}
    assert types == {
        names.ATTR_RUN_ATTEMPT: int,
        names.ATTR_RUN_GROUP_SIZE: int,
        names.ATTR_RUN_LORA_RANK: int,
        names.ATTR_RUN_LEARNING_RATE: float,
        names.ATTR_PROCESS_PID: int,
    }


def test_names_stand_in_the_generated_module_only() -> None:
    """A name that is typed in elsewhere would miss the next change of the registry; docstrings may mention one."""
    found = [
        f"{path.relative_to(SOURCE)}:{text.lineno}: {text.value!r}"
        for path in SOURCE.rglob("*.py")
        if path != ROOT / NAMES
        for text in _texts(ast.parse(path.read_text(encoding="utf-8")))
        if "akka.optimize." in text.value or text.value.startswith("hw.")
    ]
    assert found == []


def _texts(tree: ast.AST) -> list[ast.Constant]:
    """Every string of a module that is not a docstring or another bare string."""
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [node for node in constants if id(node) not in bare]
