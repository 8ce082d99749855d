"""One place that a signal goes to: what is made, opened and probed alike for every kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from akka_otel_callbacks.common.text import one_line

if TYPE_CHECKING:
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace.export import SpanExporter

    from akka_otel_callbacks.common.export.address_files import AddressFile
    from akka_otel_callbacks.common.logs.push import LogExporter


@dataclass(frozen=True, slots=True)
class Asked:
    """What the environment says of a target."""

    environ: Mapping[str, str]
    signal: str
    reason: str
    """The variable or the default that names the target, for people."""
    file: Path
    """The signal's embedded file."""
    folder: Path
    """Where the runs have their files."""
    warnings: list[str] = field(default_factory=list)
    """Gets a line for each value that cannot be used."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When metrics are exported."""

    interval_s: float
    pause_s: float | None
    """Seconds between exports of steps. None if the interval alone holds."""


@dataclass(slots=True)
class MetricOutput:
    """An opened target: an exporter that is pushed to, or a reader that is scraped."""

    target: Target
    schedule: Schedule
    exporter: MetricExporter | None = None
    scraped: PrometheusMetricReader | None = None
    address_file: AddressFile | None = None
    """The file by which a Prometheus finds the reader."""
    close: Callable[[], None] = field(default=lambda: None)


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a probe. `ok` is None if there is nothing to find out."""

    ok: bool | None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Target(ABC):
    """A place that signals go to. Making one has no side effect. Opening it raises whatever its libraries raise."""

    kind: ClassVar[str]
    signals: ClassVar[tuple[str, ...]]
    extras: ClassVar[Mapping[str, str]] = {}
    """Our extra that installs each package, by the package's name."""
    is_here: ClassVar[bool] = False
    """Whether the machine of the process is a part of the place."""

    reason: str
    """The variable or the default that names the target."""

    @classmethod
    @abstractmethod
    def asked(cls, asked: Asked) -> Target:
        """The target that the environment describes. Where that cannot be used, it may be one of another kind."""

    @property
    def where(self) -> str:
        """The place, without secrets. Empty if the kind says it all."""
        return ""

    @property
    def place(self) -> str:
        """The same for all processes of this machine that send to one place."""
        return str(self)

    @property
    def look(self) -> str:
        """How a person looks at what went there. Empty if that is not for us to say."""
        return ""

    def __str__(self) -> str:
        return f"{self.kind} {self.where}".strip()

    @abstractmethod
    def open_metrics(self, schedule: Schedule) -> MetricOutput: ...

    def open_spans(self) -> SpanExporter:
        raise NotImplementedError(f"{self.kind} takes no spans")

    def open_logs(self) -> LogExporter:
        raise NotImplementedError(f"{self.kind} takes no logs")

    def probe(self, timeout_s: float) -> Answer:
        """Whether a training could use it. Finding out leaves no trace there.

        Args:
            timeout_s: how long it may take, where the library has a time limit at all.
        """
        return Answer(None)

    def why(self, error: Exception) -> str:
        """An error at the opening as a person reads it, with the extra to install if that is the cause."""
        if isinstance(error, ModuleNotFoundError):
            missing = error.name or "?"
            extra = next((extra for module, extra in self.extras.items() if module.startswith(missing)), None)
            if extra:
                return one_line(f"{error}; pip install 'akka-otel-callbacks[{extra}]'")
        return one_line(f"{type(error).__name__}: {error}")
