"""What kind of function a user gave."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

TERM = "__akka_otel_term__"
"""The attribute of a function that notes its own calls. It holds the term that they are noted under."""


def unwrapped(function: Any) -> Any:
    """The function behind any `partial` around it."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def is_async(function: Callable[..., Any]) -> bool:
    """Whether it has to be awaited; an object says so by its `__call__`."""
    called = unwrapped(function)
    return inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(called.__call__)


def own_term(function: Any) -> str | None:
    """The term under which a function notes its own calls. None for a function that notes none."""
    term = getattr(unwrapped(function), TERM, None)
    return term if isinstance(term, str) else None


def marked(function: Any, term: str) -> Any:
    """The function, renamed to its term: TRL names the rewards after the function.

    Raises:
        ValueError: the term is no name.
    """
    if not isinstance(term, str) or not term:
        raise ValueError(f"term={term!r} must be a name, such as 'rule:score.py'")
    function.__name__ = term  # its __qualname__ stays, by which pickle finds it
    setattr(function, TERM, term)
    return function
