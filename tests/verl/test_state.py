"""All that a process remembers is in one place, which one call makes new."""

from __future__ import annotations

import ast
from pathlib import Path

from akka_otel_callbacks import verl
from akka_otel_callbacks.verl.state import State


def test_a_reset_makes_it_a_process_that_verl_has_not_called_yet() -> None:
    state = State()
    names = vars(state).keys()
    used = dict.fromkeys(names, "used")
    vars(state).update(used)
    state.reset()
    assert vars(state).keys() == names
    assert "used" not in vars(state).values()


def test_nothing_else_is_remembered_in_a_modules_variable() -> None:
    found = [
        f"{path.name}: {', '.join(node.names)}"
        for path in Path(verl.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Global)
    ]
    assert found == []
