"""One's own grouping: what the letter itself says, then the rules of the file, then the fingerprint.

A rule matches by patterns in which `*` stands for any run, and names a group. The name may hold what the
letter says (`{origin}`, `{error}`, `{culprit}`, `{header:tenant}`) and `{default}`, the fingerprint without
the rule: so a rule can join what would be apart, or part what would be together. A rule may say of which
category its letters are, with or without a name for their group.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Final

from deadletter.core.grouping.category import Category
from deadletter.core.grouping.fingerprint import (
    Fingerprint,
    Kind,
    Part,
    Symptom,
    fingerprint,
    grouping_digest,
    key_of,
    place_of,
)
from deadletter.core.grouping.in_app import BY_DEFAULT, OwnCode
from deadletter.core.letter import header_values, names
from deadletter.core.text.glob import glob

_SLOT: Final = re.compile(r"\{(default|origin|error|culprit|header:([^{}]{1,200}))\}")
_VALUE_CHARS: Final = 200
_EMPTY: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupingRule:
    """Letters that match it are one group by this name, and of this category. None: whatever it is."""

    group: str | None = None
    category: Category | None = None
    origin: str | None = None
    error: str | None = None
    """The type of the error, without its module."""
    message: str | None = None
    """What the error says."""
    headers: tuple[tuple[str, str], ...] = ()

    def matches(self, symptom: Symptom, found: Fingerprint) -> bool:
        """Whether a letter is of this rule."""
        message = (symptom.failure.message if symptom.failure else None) or ""
        told = ((self.origin, symptom.origin), (self.error, found.error_type), (self.message, message))
        return all(pattern is None or glob(pattern, text) for pattern, text in told) and all(
            glob(pattern, _header(symptom.headers or {}, name)) for name, pattern in self.headers
        )


def unknown_slots(group: str) -> list[str]:
    """What stands in braces in a rule's name and means nothing."""
    return [slot for slot in re.findall(r"\{[^{}]*\}", group) if not _SLOT.fullmatch(slot)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """How letters are grouped here."""

    own: OwnCode = BY_DEFAULT
    rules: tuple[GroupingRule, ...] = ()

    def of(self, symptom: Symptom) -> Fingerprint:
        """The group of a failure."""
        found = fingerprint(symptom, self.own)
        if not self.rules and names.FINGERPRINT not in (symptom.headers or {}):
            return found
        given = _header(symptom.headers or {}, names.FINGERPRINT)
        fitting = [rule for rule in self.rules if rule.matches(symptom, found)]
        ruled = next((rule.category.value for rule in fitting if rule.category is not None), "")
        if given:
            named = _named(found, symptom, given, f"the letter's own {names.FINGERPRINT}: {given}")
        elif (group := next((rule.group for rule in fitting if rule.group is not None), None)) is not None:
            name = _SLOT.sub(lambda slot: _value(slot, symptom, found), group)
            named = _named(found, symptom, name, f"{group} → {name}")
        else:
            named = found
        return replace(named, ruled=ruled) if ruled else named

    @property
    def digest(self) -> str:
        """Equal for those that make the same of every letter, as far as what is written tells."""
        return grouping_digest(json.dumps([_said(self.own), *map(_said, self.rules)], sort_keys=True))


GROUPED_BY_DEFAULT: Final = Grouping()


def _said(told: OwnCode | GroupingRule) -> dict[str, Any]:
    """What is otherwise than by default."""
    values = ((one.name, getattr(told, one.name), one.default) for one in fields(told))
    return {name: value for name, value, usual in values if usual is MISSING or value != usual}


def apart(found: Fingerprint, key: str) -> Fingerprint:
    """The fingerprint of letters that a person keeps apart from others of their group: those of this key."""
    return replace(
        found,
        key=key_of((Part(Kind.RULE, found.key), Part(Kind.RULE, key))),
        parts=(Part(Kind.RULE, f"kept apart by hand from {found.key}", counted=False), *found.parts),
    )


def _named(found: Fingerprint, symptom: Symptom, name: str, why: str) -> Fingerprint:
    """Only the name counts, and its place: another queue is another handler, also where it is called the same
    in another vhost. What else was seen is shown."""
    place = place_of(symptom)
    seen = tuple(part._replace(counted=False) for part in found.parts if part not in place)
    parts = (*place, Part(Kind.RULE, why, counted=False), *seen)
    return replace(found, key=key_of((*place, Part(Kind.RULE, name))), parts=parts)


def _value(slot: re.Match[str], symptom: Symptom, found: Fingerprint) -> str:
    if slot[2] is not None:
        return _header(symptom.headers or {}, slot[2]) or _EMPTY
    known = {"default": found.key, "origin": symptom.origin, "error": found.error_type}
    return known.get(slot[1], found.culprit) or _EMPTY


def _header(headers: Mapping[str, object], name: str) -> str:
    return header_values.text(headers.get(name), _VALUE_CHARS) or ""
