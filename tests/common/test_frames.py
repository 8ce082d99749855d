"""Variables of calling functions are found, and reading them changes nothing in these functions."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import UserDict
from typing import Any

from akka_otel_callbacks.common.frames import variables


class Model: ...


def found(*names: str) -> list[Any]:
    return [dict(each) for each in variables(*names)]


def test_the_innermost_function_comes_first_and_an_unset_variable_is_none() -> None:
    def outer(config: str) -> Any:
        def inner() -> Any:
            config = "inner"
            return found("config", "absent"), config

        def unset() -> Any:
            result = found("config")
            config = result[0]
            return result, config

        return inner()[0][0], unset()[1], config

    assert outer("outer") == ({"config": "inner"}, {"config": "outer"}, "outer")


def test_a_variable_of_a_closure_is_found() -> None:
    def outer(config: str) -> Any:
        return (lambda: (found("config"), config))()[0]

    assert outer("theirs")[:2] == [{"config": "theirs"}] * 2


def test_what_a_function_deletes_is_gone() -> None:
    model = Model()
    alive = weakref.ref(model)
    count = len(found("model"))
    del model
    gc.collect()
    assert (count, alive()) == (1, None)


def test_the_dictionary_of_a_function_that_called_locals_stays_as_it_was() -> None:
    def program(rate: float, users: str) -> dict[str, Any]:
        settings = locals()
        del settings["users"]
        later = found("users")
        return {**settings, "seen": later}

    assert program(0.1, "theirs") == {"rate": 0.1, "seen": []}


def test_a_dictionary_that_somebody_else_holds_is_not_emptied() -> None:
    def program(config: str) -> Any:
        held = sys._getframe().f_locals
        found("config")
        return held["config"]

    assert program("theirs") == "theirs"


def test_variables_of_modules_and_of_class_bodies_stay() -> None:
    namespace: dict[str, Any] = {"users": 1, "found": found}
    exec("seen = found('users')\nafter = users", namespace)
    assert (namespace["seen"], namespace["after"]) == ([{"users": 1}], 1)

    class Meta(type):
        @classmethod
        def __prepare__(cls, *args: Any) -> Any:  # type: ignore[override]
            return UserDict(users=1)

        def __new__(cls, name: str, bases: Any, body: Any) -> Any:
            return body

    class Body(metaclass=Meta):
        seen = found("users")

    assert Body["seen"] == []  # the metaclass makes no class


def test_a_function_goes_on_with_all_of_its_variables() -> None:
    def program(config: str, *args: int, **kwargs: int) -> Any:
        inner = [config for _ in range(2)]
        found("config", "args", "kwargs")
        args = (*args, 3)
        found("config", "args", "kwargs")
        return config, args, kwargs, inner, locals_of()

    def locals_of() -> list[str]:
        return sorted(locals())

    assert program("theirs", 1, 2, x=1) == ("theirs", (1, 2, 3), {"x": 1}, ["theirs"] * 2, [])
