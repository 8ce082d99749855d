"""The tool that the completions of the `tools` recipe call, and the calls that they are made to begin with."""

from __future__ import annotations

from verl.tools.function_tool import function_tool


@function_tool
def divide(a: float, b: float) -> str:
    """Divide one number by another.

    Args:
        a: The number to divide.
        b: The number to divide by.
    """
    return str(a / b)
