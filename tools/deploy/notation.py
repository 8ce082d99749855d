"""PromQL in the registry's names: `` `rl.step.count`{`run.id`="a"} `` becomes what a dialect calls the two."""

from __future__ import annotations

import re
from collections.abc import Container

from tools.model import PREFIX, Metric
from tools.prometheus import PARTS_OF_HISTOGRAM, Dialect, label_name, quoted, series_name
from tools.registry import Registry

NAME = re.compile(r'"`([^`]+)`"|`([^`]+)`(\{?)')
LABEL_IN_TEXT = re.compile(r"\{\{`([^`]+)`\}\}")


class UnknownName(Exception):
    """A name in backquotes is neither a metric nor an attribute of the registry."""


class Notation:
    """Writes PromQL, legends and annotations in one dialect.

    A name in backquotes is a metric or an attribute of the registry, with or without the prefix that all of them
    share. A histogram's name may end in `_bucket`, `_count` or `_sum`. An attribute within double quotes stays a
    string, as `label_replace` needs it. Everything else stays as it is, metrics of other programs above all.
    """

    def __init__(self, registry: Registry, dialect: Dialect) -> None:
        self.dialect: Dialect = dialect
        self._metrics = {metric.name: metric for metric in registry.metrics}
        self._attributes = registry.attributes

    def promql(self, text: str) -> str:
        """PromQL with every name in backquotes as the dialect has it.

        Raises:
            UnknownName: for a name that the registry does not have.
        """
        return NAME.sub(self._written, text)

    def legend(self, text: str) -> str:
        """A Grafana legend: ``{{`rl.term`}}`` becomes the label in double braces."""
        return LABEL_IN_TEXT.sub(lambda found: f"{{{{{self.label(found[1])}}}}}", text)

    def annotation(self, text: str) -> str:
        """A text of an alert: ``{{`run.id`}}`` becomes the template that prints the alert's label."""
        return LABEL_IN_TEXT.sub(lambda found: _printed(self.label(found[1])), text)

    def label(self, name: str) -> str:
        """The label that an attribute is, without quotes."""
        full = _full(name, self._attributes)
        if full is None:
            raise UnknownName(f"{name}: the registry has no such attribute")
        return label_name(full, self.dialect)

    def column(self, name: str) -> str:
        """The label that a column of a table has: of an attribute in backquotes, or any other as it is."""
        return self.label(name.strip("`")) if name.startswith("`") else name

    def metric(self, name: str) -> Metric:
        """The metric that a name means; of a histogram's part, the histogram."""
        full = _full(name, self._metrics) or _full(_split(name)[0], self._metrics)
        if full is None:
            raise UnknownName(f"{name}: the registry has no such metric or attribute")
        return self._metrics[full]

    def metrics(self, text: str) -> list[Metric]:
        """The metrics that a query reads, in the order in which it names them."""
        names = [bare for _, bare, _ in NAME.findall(text) if bare and _full(bare, self._attributes) is None]
        return [self.metric(name) for name in dict.fromkeys(names)]

    def _written(self, found: re.Match[str]) -> str:
        string, name, brace = found.groups()
        if string:
            return f'"{self.label(string)}"'
        if _full(name, self._attributes) is not None:
            return quoted(self.label(name)) + brace
        series = quoted(self._series(name))
        if not series.startswith('"'):
            return series + brace
        return f"{{{series}, " if brace else f"{{{series}}}"

    def _series(self, name: str) -> str:
        part = "" if _full(name, self._metrics) else _split(name)[1]
        return series_name(self.metric(name), self.dialect) + part


def _printed(label: str) -> str:
    """As Prometheus prints a label of an alert; `index` takes one with dots."""
    return f"{{{{ $labels.{label} }}}}" if quoted(label) == label else f'{{{{ index $labels "{label}" }}}}'


def _full(name: str, known: Container[str]) -> str | None:
    return next((full for full in (PREFIX + name, name) if full in known), None)


def _split(name: str) -> tuple[str, str]:
    """A name and the part of a histogram that it ends in, if it does."""
    part = next((part for part in PARTS_OF_HISTOGRAM if name.endswith(part)), "")
    return name.removesuffix(part), part
