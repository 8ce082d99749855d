"""What a page calls a GPU."""

from __future__ import annotations

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.report.course import Course
from akka_otel_callbacks.report.history import History


def gpu_name(course: Course) -> str:
    return short_uuid(course.of(names.ATTR_HW_ID)) or "a GPU"


def short_uuid(uuid: str) -> str:
    """The end of it, which tells the GPUs of all hosts apart."""
    return f"GPU …{uuid[-6:]}" if len(uuid) > 10 else uuid


def placed(run: History) -> list[str]:
    """A line for each process that holds a GPU: which one, in which role, and where."""
    lines = []
    for course in run.courses(names.JOB_PLACEMENT):
        parts = (
            gpu_name(course) if course.of(names.ATTR_HW_ID) else "no GPU that can be read",
            course.of(names.ATTR_HW_NAME),
            course.of(names.ATTR_JOB_ROLE),
            f"rank {course.of(names.ATTR_JOB_RANK)}" if course.of(names.ATTR_JOB_RANK) else "",
            course.of(names.ATTR_K8S_POD_NAME) or course.of(names.ATTR_HOST_NAME),
        )
        lines.append(" · ".join(part for part in parts if part))
    return sorted(set(lines))
