"""The names of terms that no function names."""

from __future__ import annotations

from pathlib import PurePath


def model_term(model: object) -> str:
    """A model by the last part of its name or path, as in `model:judge-4b`."""
    return f"model:{PurePath(str(model)).name}"


def rule_term(path: object) -> str:
    """A rule by its file, as in `rule:score.py`."""
    return f"rule:{PurePath(str(path)).name}"
