"""The table `dlq_event_config` as policies: one row says how often letters of one routing key go back.

Rows are written by people and by other people's programs, so nothing here raises. A row that cannot be a
policy is ignored and named in a warning, and the others stay in force:

* no name, or a `max_retries` that is null, negative or absurd: ignored;
* a name that is there twice: the row with the highest id decides, the others are ignored;
* `max_retries` 0: parked at once;
* more rows than policies may be, or more different delays: the newest rows that fit.

A name is a topic pattern: `*` and `#` as whole words stand for one word and any number of them. Names without
them stand first, so that a row for exactly this key always decides, then the patterns, the newest first. All
of them stand before the policies of the file: the table wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from deadletter.core.deciding.backoff import MAX_RETRIES, Backoff
from deadletter.core.deciding.policy import MAX_LEVELS_TOGETHER, MAX_POLICIES, Match, Policies, Policy, Then
from deadletter.core.letter.header_values import shown
from deadletter.core.topology.routing_keys import words
from deadletter.errors import UsageError

TABLE: Final = "dlq_event_config"
MAX_NAME_CHARS: Final = 100
MAX_ROWS: Final = 10_000
"""More rows than this are not even read; the newest are."""
MAX_WARNINGS: Final = 50
_PREFIX: Final = f"{TABLE}:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row. The id can only be missing in SQLite, whose primary keys may be null."""

    id: int | None
    name: str | None
    max_retries: int | None

    def __str__(self) -> str:
        return "the row without an id" if self.id is None else f"row {self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """What decides, and what in the table does not, with the reason."""

    policies: Policies
    warnings: tuple[str, ...] = ()


def policies_from(rows: Iterable[Row], *, backoff: Backoff) -> tuple[tuple[Policy, ...], tuple[str, ...]]:
    """The policies of these rows in the order in which they are asked, and a warning for each ignored row."""
    warnings: list[str] = []
    deciding: dict[str, tuple[Row, Policy]] = {}
    for row in sorted(rows, key=_age, reverse=True):
        if row.name is not None and row.name in deciding:
            winner, _ = deciding[row.name]
            warnings.append(f"{row} ({shown(row.name)}) is ignored: {winner} has the same name, and decides")
            continue
        try:
            policy = _policy(row, backoff)
        except UsageError as error:
            warnings.append(f"{row}{_named(row)} is ignored: {error}")
        else:
            deciding[policy.name.removeprefix(_PREFIX)] = row, policy
    found = [policy for _, policy in deciding.values()]  # the newest first
    exact = [policy for policy in found if not is_pattern(routing_key(policy))]
    patterns = [policy for policy in found if is_pattern(routing_key(policy))]
    return (*exact, *patterns), _bounded(warnings)


def fitting(table: Sequence[Policy], file: Policies) -> tuple[tuple[Policy, ...], tuple[str, ...]]:
    """As many of the table's policies as can stand before the file's, and a warning for each that cannot."""
    fit: list[Policy] = []
    warnings: list[str] = []
    levels_ms = set(file.levels_ms)
    names = {policy.name for policy in file}
    for policy in table:
        together = levels_ms | policy.levels_ms
        if policy.name in names:
            why = f"the file has a policy of the name {shown(policy.name)}; give that one another name"
        elif len(fit) + len(file.rules) >= MAX_POLICIES:
            why = f"expected at most {MAX_POLICIES} policies, the file's {len(file.rules)} among them"
        elif len(together) > MAX_LEVELS_TOGETHER:
            why = (
                f"expected at most {MAX_LEVELS_TOGETHER} different delays together, as each is a queue on "
                f"the broker, got {len(together)} with its {policy.retries} retries"
            )
        else:
            fit.append(policy)
            names.add(policy.name)
            levels_ms = together
            continue
        warnings.append(f"the row for {shown(routing_key(policy))} is ignored: {why}")
    return tuple(fit), _bounded(warnings)


def in_force(rows: Iterable[Row], *, file: Policies, backoff: Backoff) -> InForce:
    """What these rows and the file's policies are together, and everything that was ignored."""
    table, ignored = policies_from(rows, backoff=backoff)
    fit, left_out = fitting(table, file)
    return InForce(
        policies=Policies(rules=(*fit, *file.rules), default=file.default),
        warnings=_bounded([*ignored, *left_out]),
    )


def from_table(policy: Policy, file: Policies) -> bool:
    """Whether a policy in force is a row's and not the file's."""
    return policy.name.startswith(_PREFIX) and policy not in file.rules


def routing_key(policy: Policy) -> str:
    """The name in the row that became this policy."""
    return policy.name.removeprefix(_PREFIX)


def is_pattern(name: str) -> bool:
    """Whether it may stand for more than one routing key."""
    return any(word in ("*", "#") for word in words(name))


def check_new(name: str, max_retries: int) -> None:
    """Raises UsageError for a row that would be ignored, or that the table cannot hold."""
    if len(name) > MAX_NAME_CHARS:
        raise UsageError(
            f"routing key: expected at most {MAX_NAME_CHARS} characters, as {TABLE}.name has, got {len(name)}"
        )
    if not name.isprintable():
        raise UsageError(f"routing key: expected printable characters, got {shown(name)!r}")
    _check_retries(max_retries)


def _policy(row: Row, backoff: Backoff) -> Policy:
    if row.name is None:
        raise UsageError("expected a routing key as its name, got null")
    if row.max_retries is None:
        raise UsageError(f"max_retries: expected a number from 0 to {MAX_RETRIES}, got null")
    _check_retries(row.max_retries)
    return Policy(
        name=_PREFIX + row.name,
        match=Match(routing_key=row.name),
        retries=row.max_retries,
        backoff=backoff,
        then=Then.PARK,
    )


def _check_retries(max_retries: int) -> None:
    if not 0 <= max_retries <= MAX_RETRIES:
        raise UsageError(f"max_retries: expected a number from 0 to {MAX_RETRIES}, got {max_retries}")


def _age(row: Row) -> tuple[bool, int]:
    return row.id is not None, row.id or 0


def _named(row: Row) -> str:
    return "" if row.name is None else f" ({shown(row.name)})"


def _bounded(warnings: Sequence[str]) -> tuple[str, ...]:
    if len(warnings) <= MAX_WARNINGS:
        return tuple(warnings)
    return (*warnings[: MAX_WARNINGS - 1], f"and {len(warnings) - MAX_WARNINGS + 1} more rows are ignored")
