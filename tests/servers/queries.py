"""Every query that this project prints or ships, and those of the documents that it follows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.deploy import queries as deployed
from tools.prometheus import Dialect

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/**/*.md"))]
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SERIES = re.compile(r"\b(?:akka_optimize_|hw_|ray_|DCGM_)\w+")
INLINE = re.compile(r"`([^`\n]+)`")
LABELS = re.compile(r"\b(?:by|without|on|ignoring) ?\([^()]*\)")
ASKS = re.compile(r"[({\[]| [=!<>]=? ")
"""What a query has and a name or a matcher by itself has not."""

REFERENCE_DOCUMENTS = {
    "Alert on a stalled run": "increase(akka_optimize_training_rl_step_count_total[15m]) == 0",
    "Find the GPUs a run uses": """
        ray_node_gpus_utilization
          * on(GpuUuid) group_left(akka_optimize_training_job_role, akka_optimize_training_job_rank)
            label_replace(akka_optimize_training_job_placement{akka_optimize_training_run_id="$run"},
                          "GpuUuid", "$1", "hw_id", "(.+)")""",
    "Rollout engine": 'ray_vllm_kv_cache_usage_perc{akka_optimize_training_run_id="$run"}',
    "Rollout engine, awake": 'ray_vllm_engine_sleep_state{sleep_state="awake"}',
    "GPU health, one throttle reason": "floor(akka_optimize_training_gpu_clock_throttle_reasons / 8) % 2",
    "GPU health, the first XID": "increase(akka_optimize_training_gpu_xid_errors_total[15m]) > 0",
    "Capacity over time": (
        "max without (akka_optimize_training_instance)"
        ' (akka_optimize_training_pool_devices_claimed{akka_optimize_training_claim_state="GRANTED"})'
    ),
}
"""By the section that prints it: what the trainer's page on observability tells its readers to ask."""


@dataclass(frozen=True)
class Query:
    """One query.

    Attributes:
        where: the page, panel, variable or alert that has it.
        expression: PromQL, in which Grafana's variables may stand.
        dialects: whose names it has.
    """

    where: str
    expression: str
    dialects: tuple[Dialect, ...] = ("scrape", "collector")

    def with_values(self, values: Mapping[str, str]) -> str:
        """The expression with values for its variables, which begin with a dollar."""
        return re.sub(r"\$(?!\d)(?:\{(\w+)\}|(\w+))", lambda found: values[found[1] or found[2]], self.expression)


def of_pages() -> Iterator[Query]:
    """The queries that a reader can copy from README, docs and examples: blocks of PromQL, and what lines quote."""
    for page in PAGES:
        where, text = str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")
        blocks = [code for language, code in BLOCK.findall(text) if language == "promql"]
        inline = [code for code in INLINE.findall(BLOCK.sub("", text)) if ASKS.search(code) and _has_a_series(code)]
        for number, code in enumerate([*blocks, *inline], 1):
            yield Query(f"{where}, {number}", code.strip())


def _has_a_series(code: str) -> bool:
    return SERIES.search(LABELS.sub("", code)) is not None


def unmarked() -> Iterator[str]:
    """Blocks of code that look like a query and are not marked as PromQL, with their pages."""
    for page in PAGES:
        for language, code in BLOCK.findall(page.read_text(encoding="utf-8")):
            if not language and SERIES.match(code.strip()):
                yield f"{page.relative_to(ROOT)}: {code.strip()}"


def of_reference_documents() -> Iterator[Query]:
    """The queries of `REFERENCE_DOCUMENTS`."""
    return (Query(section, expression) for section, expression in REFERENCE_DOCUMENTS.items())


def of_deploy() -> Iterator[Query]:
    """The queries of dashboards and alert rules, in the dialects that a server here has."""
    for found in deployed.queries(ROOT):
        if found.dialect in ("scrape", "collector"):
            yield Query(found.where, found.expr, (found.dialect,))
