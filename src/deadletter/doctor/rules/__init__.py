"""The doctor's rules: every way we know in which a shape loses, multiplies, holds or spins letters.

A rule is one function over a `Case`. It has an id that people may ignore by name, and whatever it finds comes
with the path as a witness, with what happens at this very place, and with a cure that can be copied.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

from deadletter.doctor.finding import Finding, Severity
from deadletter.doctor.rules import (
    access,
    alternates,
    cycles,
    effects,
    limits,
    live,
    loss,
    multiplying,
    neglect,
    refusal,
    strategy,
    upgrades,
)
from deadletter.doctor.rules.case import Case, Rule
from deadletter.errors import UsageError


def rules_in(*kinds: ModuleType) -> tuple[Rule, ...]:
    """The rules in these modules, in the order in which they stand there."""
    return tuple(each for kind in kinds for each in vars(kind).values() if isinstance(each, Rule))


RULES: Final = rules_in(
    loss,
    limits,
    strategy,
    multiplying,
    cycles,
    refusal,
    alternates,
    neglect,
    effects,
    upgrades,
    access,
    live,
)
_GRAVITY: Final = {severity: at for at, severity in enumerate(Severity)}


def examine(case: Case, ignore: frozenset[str] = frozenset()) -> tuple[Finding, ...]:
    """What is wrong, the worst first, then by place and rule. Raises UsageError for an unknown rule."""
    known = {rule.id for rule in RULES}
    if unknown := sorted(ignore - known):
        raise UsageError(
            f"no rule {', '.join(map(repr, unknown))} to ignore; there are: {', '.join(sorted(known))}"
        )
    found = (finding for rule in RULES if rule.id not in ignore for finding in rule.check(case))
    return tuple(sorted(found, key=lambda f: (_GRAVITY[f.severity], f.subject, f.rule, f.path)))
