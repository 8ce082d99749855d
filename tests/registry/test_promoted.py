"""The labels of a run that every series in Prometheus has, on a scrape, through a Collector and over OTLP."""

from __future__ import annotations

import re
from typing import Any

import yaml

from akka_otel_callbacks.common.export.targets.prometheus import LABELS
from akka_otel_callbacks.common.vocabulary import names
from tools.generate import COLLECTOR, PROMOTED, ROOT

STATEMENT = re.compile(
    r'set\(attributes\["([^"]+)"\], resource\.attributes\["([^"]+)"\]\) '
    r'where attributes\["([^"]+)"\] == nil and resource\.attributes\["([^"]+)"\] != nil'
)


def _yaml(path: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_a_scrape_a_collector_and_a_server_promote_the_same() -> None:
    server = _yaml(PROMOTED)["otlp"]["promote_resource_attributes"]
    (statements,) = _yaml(COLLECTOR)["processors"]["transform/run_labels"]["metric_statements"]
    assert statements["context"] == "datapoint"
    copied = [STATEMENT.fullmatch(statement).groups() for statement in statements["statements"]]
    assert all(len({*attributes}) == 1 for attributes in copied)
    assert [attributes[0] for attributes in copied] == server
    assert {*server} == LABELS
    assert len({*server}) == len(server)


def test_what_is_promoted() -> None:
    assert {*names.PROMOTED_ATTRIBUTES} == {
        names.ATTR_RUN_ID,
        names.ATTR_RUN_ATTEMPT,
        names.ATTR_RUN_ENGINE,
        names.ATTR_RUN_METHOD,
        names.ATTR_PROJECT,
        names.ATTR_PIPELINE_ID,
        names.ATTR_PIPELINE_STAGE_NAME,
    }


def test_nothing_is_promoted_that_a_metric_of_a_job_has_itself() -> None:
    """Of two values of one label only one would stay."""
    own = {attribute for metric in names.JOB_METRICS for attribute in metric.attributes}
    assert own.isdisjoint(names.PROMOTED_ATTRIBUTES)


def test_each_pipeline_of_the_collector_uses_only_what_is_there() -> None:
    collector = _yaml(COLLECTOR)
    for pipeline in collector["service"]["pipelines"].values():
        for kind, used in pipeline.items():
            assert {*used} <= collector[kind].keys()
