"""Names come from the registry: no other source file of the package holds one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import akka_otel_callbacks
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Kind

SOURCE = Path(akka_otel_callbacks.__file__).parent
OWN = ("akka.optimize.", "hw.")


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Every string of a file but its docstrings, which may speak of names."""
    tree = ast.parse(path.read_text())
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.lineno, node.value


def test_no_string_but_the_generated_ones_is_a_name() -> None:
    files = [path for path in SOURCE.rglob("*.py") if path != Path(names.__file__)]
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {text!r}"
        for path in files
        for line, text in strings(path)
        if text.startswith(OWN)
    ]
    assert len(files) > 20
    assert found == []


def test_the_search_finds_what_it_searches() -> None:
    assert any(text.startswith(OWN) for _, text in strings(Path(names.__file__)))


def test_every_name_of_an_attribute_or_a_metric_is_one_of_a_kind() -> None:
    for things in (names.METRICS, names.RESOURCE_ATTRIBUTES):
        spelled = [thing.name for thing in things]
        assert len(spelled) == len(set(spelled))


def test_histograms_and_only_they_have_buckets() -> None:
    for metric in names.METRICS:
        has_buckets = bool(metric.buckets) != metric.exponential
        assert has_buckets == (metric.kind is Kind.HISTOGRAM), metric.name
        assert list(metric.buckets) == sorted(set(metric.buckets)), metric.name
