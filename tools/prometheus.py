"""What a metric and its attributes are called in Prometheus, by the way that they take there."""

from __future__ import annotations

import re
from typing import Literal, Protocol, get_args

Dialect = Literal["scrape", "collector", "utf8"]
"""The ways to Prometheus.

`scrape` is the endpoint of a job itself, served by opentelemetry-exporter-prometheus, which knows no `ratio`.
`collector` is OTLP through a Collector or into Prometheus itself, as both translate it by default
(`UnderscoreEscapingWithSuffixes`). `utf8` is the same where Prometheus 3 or the Collector is set to
`NoUTF8EscapingWithSuffixes`: dots stay.
"""
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)

UNITS = {
    "": "",
    "1": "",
    "s": "seconds",
    "By": "bytes",
    "Cel": "celsius",
    "W": "watts",
    "J": "joules",
    "Hz": "hertz",
}
PER_UNITS = {"": "", "s": "per_second"}
PARTS_OF_HISTOGRAM = ("_bucket", "_sum", "_count")
NEEDS_NO_QUOTES = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class Named(Protocol):
    """What a metric's name in Prometheus depends on: the registry's own metric has it, and the package's."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def unit(self) -> str: ...


def series_name(metric: Named, dialect: Dialect) -> str:
    """The metric's name in Prometheus; of a histogram, what `_bucket`, `_sum` and `_count` follow.

    The rules are those of prometheus/otlptranslator, which Collectors and Prometheus share. Where dots become
    underscores, a word that the name has already is not added again, and the last word moves there: the gauge
    `clip_ratio.high` of unit 1 is `clip_high_ratio`. Where dots stay, only the end of the name is looked at:
    `clip_ratio.high_ratio`.

    Raises:
        ValueError: for an unknown dialect, and for a unit whose word is not known.
    """
    units, last = _unit_words(metric), _last_word(metric, _known(dialect))
    if dialect == "utf8":
        return _with_suffixes(metric.name, *units, last)
    words = re.split(r"[^a-zA-Z0-9]+", metric.name)
    words += [word for word in units if word and word not in words]
    return "_".join([word for word in words if word != last] + [last] if last else words)


def all_series(metric: Named, dialect: Dialect) -> tuple[str, ...]:
    """The names of all series of the metric: three of a histogram, one of any other."""
    name = series_name(metric, dialect)
    return tuple(name + part for part in PARTS_OF_HISTOGRAM) if metric.kind == "histogram" else (name,)


def label_name(attribute: str, dialect: Dialect) -> str:
    """The label that an attribute becomes, promoted ones of the resource too.

    Raises:
        ValueError: for an unknown dialect.
    """
    return attribute if _known(dialect) == "utf8" else re.sub(r"[^a-zA-Z0-9]+", "_", attribute)


def selector(series: str, *matchers: str) -> str:
    """A PromQL selector of a series: `x{a="b"}`, and `{"x.y",a="b"}` for a name with dots.

    Args:
        series: the name, of any dialect.
        matchers: such as `a="b"`, or `"a.b"="c"` where the label has dots.
    """
    if NEEDS_NO_QUOTES.fullmatch(series):
        return f"{series}{{{','.join(matchers)}}}" if matchers else series
    return f"{{{','.join([quoted(series), *matchers])}}}"


def quoted(name: str) -> str:
    """A label, or a series within braces, as PromQL wants it written: in quotes only where it has dots."""
    return name if NEEDS_NO_QUOTES.fullmatch(name) else f'"{name}"'


def _known(dialect: str) -> str:
    if dialect not in DIALECTS:
        raise ValueError(f"the dialect {dialect!r} is unknown; it is one of {', '.join(DIALECTS)}")
    return dialect


def _unit_words(metric: Named) -> tuple[str, str]:
    amount, _, per = re.sub(r"\{[^}]*\}", "", metric.unit).partition("/")
    if amount not in UNITS or per not in PER_UNITS:
        raise ValueError(f"{metric.name}: no Prometheus word is known for the unit {metric.unit!r}")
    return UNITS[amount], PER_UNITS[per]


def _last_word(metric: Named, dialect: str) -> str:
    if metric.kind == "counter":
        return "total"
    return "ratio" if metric.kind == "gauge" and metric.unit == "1" and dialect != "scrape" else ""


def _with_suffixes(name: str, unit: str, per_unit: str, last: str) -> str:
    """The name with what it does not end in yet."""
    for word in (last, per_unit):
        if word and name.endswith(word) and len(name) > len(word) + 1:
            name = name[: -len(word) - 1]
    if unit and not name.endswith(unit):
        name = f"{name}_{unit}"
    return "_".join(word for word in (name, per_unit, last) if word)
