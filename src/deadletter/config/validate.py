"""The gathered tree against the model: what validates, and in words what does not.

Every table is validated for itself, so that one wrong policy hides neither another's mistakes nor what two
good ones cannot be together. Unknown keys are found here rather than by pydantic, which would stop looking at
a table that has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeVar, cast, get_args

from pydantic import ValidationError

from deadletter.config.files import Trail
from deadletter.config.secrets import shown
from deadletter.config.sources import Gathered
from deadletter.config.tables.base import FINDINGS, Table
from deadletter.config.tables.desk import Desk
from deadletter.config.tables.file import Broker, CheckTable, File, StoreTable
from deadletter.config.tables.keys import KINDS, below, fields, nearest
from deadletter.config.tables.policies import DefaultPolicy, PolicyTable
from deadletter.config.tables.serve import AlertsTable, Guards, Serve, WatchTable
from deadletter.errors import Problem

_T = TypeVar("_T", bound=Table)
_ABSENT: Final = object()


class ValidParts(NamedTuple):
    """What is valid in itself; None where something is not, so that the others can still be looked at."""

    broker: Broker | None
    store: StoreTable | None
    policies: list[PolicyTable | None]
    default_policy: DefaultPolicy | None
    watches: list[WatchTable | None]
    guards: Guards | None
    serve: Serve | None
    desk: Desk | None
    alerts: AlertsTable | None
    check: CheckTable | None


class Validator:
    """Collects problems about one gathered tree."""

    def __init__(self, gathered: Gathered) -> None:
        self.gathered = gathered
        self.problems: list[Problem] = list(gathered.problems)

    def parts(self) -> ValidParts:
        known = self._known(self.gathered.tree, (File,), ())
        return ValidParts(
            broker=self._table(Broker, known, "broker"),
            store=self._table(StoreTable, known, "store"),
            policies=self._list(PolicyTable, known, "policies"),
            default_policy=self._table(DefaultPolicy, known, "default_policy"),
            watches=self._list(WatchTable, known, "watches"),
            guards=self._table(Guards, known, "guards"),
            serve=self._table(Serve, known, "serve"),
            desk=self._table(Desk, known, "desk"),
            alerts=self._table(AlertsTable, known, "alerts"),
            check=self._table(CheckTable, known, "check"),
        )

    def refuse(self, trail: Trail, expected: str, got: str | None = None) -> None:
        value = _at(self.gathered.tree, trail)
        if got is None:
            got = "nothing" if value is _ABSENT else shown(value, trail)
        problem = Problem(
            key=self.key(trail), expected=expected, got=got, source=str(self.gathered.source(trail))
        )
        if problem not in self.problems:
            self.problems.append(problem)

    def key(self, trail: Trail) -> str:
        """`policies[orders].backoff.cap`: tables of a list by their name, else by their number."""
        words = ""
        for length, part in enumerate(trail, start=1):
            if isinstance(part, str):
                words += f".{part}" if words else part
                continue
            held = _at(self.gathered.tree, trail[:length])
            if held is _ABSENT:
                continue  # one value where a list was allowed
            name = held.get("name", held.get("dlq")) if isinstance(held, dict) else None
            words += f"[{name}]" if isinstance(name, str) and name else f"[{part + 1}]"
        return words

    def quietly(self, model: type[_T], raw: object) -> _T | None:
        """A table looked at once more on its own; its problems are known already."""
        try:
            return model.model_validate(raw)
        except ValidationError:
            return None

    def _table(self, model: type[_T], known: dict[str, Any], key: str) -> _T | None:
        return self._valid(model, known.get(key, {}), (key,))

    def _list(self, model: type[_T], known: dict[str, Any], key: str) -> list[_T | None]:
        items = known.get(key, [])
        if not isinstance(items, list):
            self.refuse((key,), f"a list of tables: [[{key}]]")
            return []
        return [self._valid(model, item, (key, place)) for place, item in enumerate(items)]

    def _valid(self, model: type[_T], raw: object, trail: Trail) -> _T | None:
        try:
            return model.model_validate(raw)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                self._translate(cast("dict[str, Any]", detail), trail)
            return None

    def _translate(self, detail: dict[str, Any], above: Trail) -> None:
        trail = _without_tags((*above, *detail["loc"]))
        context = detail.get("ctx", {})
        if detail["type"] == FINDINGS:
            for finding in context["findings"]:
                self.refuse((*trail, *finding.key), finding.expected)
        elif detail["type"] == "union_tag_invalid":
            self.refuse((*trail, "kind"), " or ".join(KINDS))
        elif detail["type"] == "union_tag_not_found":
            self.refuse((*trail, "kind") if isinstance(detail["input"], dict) else trail, _NO_KIND)
        else:
            self.refuse(trail, _expectation(detail["type"], detail["msg"], context))

    def _known(
        self, table: dict[str, object], models: tuple[type[Table], ...], trail: Trail
    ) -> dict[str, Any]:
        """The tree without what nobody knows, each such key refused."""
        own = tuple(model for model in models if _is_kind(model, table.get("kind"))) or models
        names = fields(own)
        kept: dict[str, Any] = {}
        for key, value in table.items():
            if key not in names:
                self.refuse((*trail, key), _unknown(key, list(names), models), got="this key")
                continue
            inside = below(names[key])
            if inside.tables and inside.many and isinstance(value, list):
                kept[key] = [
                    self._known(item, inside.tables, (*trail, key, place)) if isinstance(item, dict) else item
                    for place, item in enumerate(value)
                ]
            elif inside.tables and not inside.many and isinstance(value, dict):
                kept[key] = self._known(value, inside.tables, (*trail, key))
            else:
                kept[key] = value
        return kept


_NO_KIND: Final = 'a table with kind = "fixed", "linear" or "exponential"'
_EXPECTED: Final = {
    "missing": "a value",
    "string_type": "a text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "finite_number": "a finite number",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "string_too_short": "a text that is not empty",
    "string_too_long": "at most {max_length} characters",
    "too_short": "at least one entry",
    "too_long": "at most {max_length} entries",
    "literal_error": "{expected}",
}


def _expectation(kind: str, message: str, context: dict[str, Any]) -> str:
    if kind == "value_error":
        return str(context["error"])
    template = _EXPECTED.get(kind)
    return template.format(**context) if template else message.removeprefix("Input should be ")


def _unknown(key: str, names: list[str], models: tuple[type[Table], ...]) -> str:
    elsewhere = [model for model in models if key in fields((model,))]
    if elsewhere:
        kinds = [kind for kind in KINDS if any(_is_kind(model, kind) for model in elsewhere)]
        return f"no such key here (it belongs to kind = {' or '.join(kinds)})"
    meant = nearest(key, names)
    return f"a key there is (did you mean {meant}?)" if meant else f"one of {', '.join(sorted(names))}"


def _is_kind(model: type[Table], kind: object) -> bool:
    return "kind" in model.model_fields and kind in get_args(model.model_fields["kind"].annotation)


def _without_tags(trail: Trail) -> Trail:
    return tuple(_untagged(trail))


def _untagged(trail: Trail) -> Iterator[str | int]:
    before: str | int = ""
    for part in trail:
        if part != "[key]" and not (before == "backoff" and part in KINDS):
            yield part
        before = part


def _at(tree: object, trail: Trail) -> object:
    for part in trail:
        match tree:
            case dict() if part in tree:
                tree = tree[part]
            case list() if isinstance(part, int) and part < len(tree):
                tree = tree[part]
            case _:
                return _ABSENT
    return tree
