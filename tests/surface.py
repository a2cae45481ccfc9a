"""What a user of Deadletter may rely on, as one text: `python -m tests.surface > tests/surface.txt`.

Names that are imported, commands and their options, exit codes, keys of the file, headers and names on a
broker, metrics with their labels, rules of the doctor, paths of the HTTP API. `test_surface` compares it with
the text that is committed, so a change of any of them is a decision that a reviewer sees.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import typer
from prometheus_client import CollectorRegistry

import deadletter
from deadletter import errors
from deadletter.cli.main import whole_app
from deadletter.cli.terminal.output import exit_for
from deadletter.config.tables.keys import keys
from deadletter.core.layouts import naming
from deadletter.core.letter import names
from deadletter.desk.access.access import Access
from deadletter.desk.http_app import create_app
from deadletter.desk.view import Status
from deadletter.doctor.rules import RULES
from deadletter.service.telling.metric_list import METRICS


def surface() -> str:
    return "\n".join(line for part in PARTS for line in (f"# {part.__name__}", *part(), "")).rstrip() + "\n"


def imports() -> Iterator[str]:
    for name in deadletter.__all__:
        value = getattr(deadletter, name)
        yield f"{name}{_signature(value)}"
        if inspect.isclass(value):
            for member in sorted(vars(value)):
                if not member.startswith("_"):
                    yield f"{name}.{member}{_signature(getattr(value, member))}"


def _signature(value: object) -> str:
    if not callable(value):
        return ""
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:
        return ""
    return f"({', '.join(p.name for p in parameters if p.name != 'self')})"


def commands() -> Iterator[str]:
    yield from _command(typer.main.get_command(whole_app()), "dlq")


def _command(one: Any, path: str) -> Iterator[str]:
    """Of a click command; typer carries a click of its own, so its types are not click's."""
    for parameter in one.params:
        yield f"{path} {' '.join((*parameter.opts, *parameter.secondary_opts))}"
    for name, below in sorted(getattr(one, "commands", {}).items()):
        yield from _command(below, f"{path} {name}")


def exits() -> Iterator[str]:
    for name, kind in sorted(vars(errors).items()):
        if inspect.isclass(kind) and issubclass(kind, errors.DeadletterError):
            yield f"{name} {int(exit_for(kind.__new__(kind)))}"


def configuration() -> Iterator[str]:
    for key in keys():
        yield f"{key.name}{'[]' if key.in_list else ''} {key.variable or '-'} {key.field.default!r}"


def on_a_broker() -> Iterator[str]:
    for module in (names, naming):
        for name, value in sorted(vars(module).items()):
            if name.isupper() and isinstance(value, str):
                yield value
    for make in (naming.level_name, naming.asked_name):
        yield make(1000)
    for named in (naming.return_exchange_name, naming.held_name, naming.dlq_name, naming.policy_name):
        yield named("orders")


def metrics() -> Iterator[str]:
    for metric in METRICS:
        yield f"{metric.name} {metric.type} {' '.join(metric.labels)}"
    registry = CollectorRegistry()
    deadletter.ConsumerMetrics(registry)
    collectors: dict[int, Any] = {id(c): c for c in registry._names_to_collectors.values()}
    for collector in collectors.values():  # of one metric each; that they have labels they do not tell
        told = next(iter(collector.collect()))
        yield f"{told.name} {told.type} {' '.join(collector._labelnames)}"


def doctor() -> Iterator[str]:
    yield from sorted(rule.id for rule in RULES)


def http() -> Iterator[str]:
    nobody: Any = None  # the routes are made without a service; asked, they would need one
    app = create_app(nobody, nobody, nobody, Access(host="127.0.0.1"))
    for path, methods in sorted(app.openapi()["paths"].items()):
        yield f"{' '.join(sorted(methods))} {path}"
    yield from sorted(f"status.{field.name}" for field in fields(Status))


PARTS = (imports, commands, exits, configuration, on_a_broker, metrics, doctor, http)

if __name__ == "__main__":
    print(surface(), end="")
