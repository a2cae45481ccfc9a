"""Options that many commands share, as one value.

A set is a frozen dataclass whose fields are annotated as a command's own options are. A command takes it as
one parameter; typer sees an option for each field::

    @app.command()
    @with_option_sets
    def letters(filters: LetterFilters, wish: RecordsWish) -> None: ...

So the same option has the same words everywhere, and no command hands them over one by one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Any, get_type_hints


def with_option_sets(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer shall see it: where it takes a set, there are the options of the set."""
    signature = inspect.signature(command, eval_str=True)
    sets: dict[str, type[Any]] = {}
    options: list[Parameter] = []
    for one in signature.parameters.values():
        if isinstance(one.annotation, type) and is_dataclass(one.annotation):
            sets[one.name] = one.annotation
            options += _options(one.annotation)
        else:
            options.append(one.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def typed(**said: Any) -> None:
        for name, kind in sets.items():
            told = {one.name: said.pop(one.name) for one in fields(kind)}
            # an option that may be repeated and was not is an empty list, which nobody said
            said[name] = kind(**{key: value for key, value in told.items() if value != []})
        command(**said)

    typed.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]  # inspect reads it
    typed.__annotations__ = {one.name: one.annotation for one in options}
    return typed


def _options(kind: type[Any]) -> list[Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        Parameter(
            one.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if one.default is MISSING else one.default,
            annotation=hints[one.name],
        )
        for one in fields(kind)
    ]
