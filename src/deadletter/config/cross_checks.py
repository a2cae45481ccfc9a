"""What valid tables cannot be beside each other: names twice, rules nobody reaches, policies nobody has.

Each check looks at what is valid and goes on; a table that is wrong in itself has been refused already and
is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from deadletter.amqp.address import Address
from deadletter.config import build, urls
from deadletter.config.files import Trail
from deadletter.config.tables import policies
from deadletter.config.tables.base import Table
from deadletter.config.tables.keys import nearest
from deadletter.config.tables.serve import WatchTable
from deadletter.config.validate import Validator, ValidParts
from deadletter.core.deciding.coverage import covers, errors_cover
from deadletter.core.deciding.policy import MAX_PROGRAM_CHARS, Match, Policy
from deadletter.core.letter.names import PARKED
from deadletter.core.text.durations import duration_text
from deadletter.core.text.glob import glob
from deadletter.errors import UsageError
from deadletter.jq.process import refusals

_DEFAULT: Final = "default"
_T = TypeVar("_T", bound=Table)


def check(judge: Validator, parts: ValidParts) -> None:
    """Refuses whatever makes no sense together."""
    vhost = _addresses(judge, parts)
    _programs(judge)
    _names(judge)
    _policies(judge, parts)
    _watched_by(judge)
    _watches(judge, parts, vhost)
    _desk(judge, parts, vhost)


def _addresses(judge: Validator, parts: ValidParts) -> str:
    """Checked; and the vhost of watches that name none."""
    address = Address()
    if parts.broker is not None:
        try:
            address = urls.addresses(parts.broker.url)[0]
        except ValueError as error:
            judge.refuse(("broker", "url"), str(error))
        try:
            urls.management_api(parts.broker.api, address)
        except ValueError as error:
            judge.refuse(("broker", "api"), str(error))
    if parts.store is not None and parts.store.url is not None:
        try:
            urls.check_store(parts.store.url)
        except ValueError as error:
            judge.refuse(("store", "url"), str(error))
    return address.vhost


def _written(judge: Validator, section: str) -> list[tuple[int, dict[str, object]]]:
    """The tables of a list as they are written, valid or not."""
    tables = judge.gathered.tree.get(section)
    return (
        [(n, table) for n, table in enumerate(tables) if isinstance(table, dict)]
        if isinstance(tables, list)
        else []
    )


def _programs(judge: Validator) -> None:
    programs: dict[int, str] = {}
    for place, table in _written(judge, "policies"):
        match = table.get("match")
        body = match.get("body") if isinstance(match, dict) else None
        if isinstance(body, str) and 0 < len(body) <= MAX_PROGRAM_CHARS:
            programs[place] = body
    for place, refusal in zip(programs, refusals(list(programs.values())), strict=True):
        if refusal is not None:
            judge.refuse(("policies", place, "match", "body"), f"a jq program ({refusal})")


def _names(judge: Validator) -> None:
    seen: dict[object, int] = {}
    for place, table in _written(judge, "policies"):
        name = table.get("name")
        if not isinstance(name, str):
            continue
        if name == _DEFAULT:
            expected = "another name: default is what [default_policy] is called"
            judge.refuse(("policies", place, "name"), expected)
        elif name in seen:
            first = judge.gathered.source(("policies", seen[name], "name"))
            judge.refuse(("policies", place, "name"), f"a name of its own (there is one at {first})")
        seen.setdefault(name, place)


def _policies(judge: Validator, parts: ValidParts) -> None:
    for place, table in enumerate(parts.policies):
        if table is not None:
            _policy(judge, build.policy, table, ("policies", place))
    if parts.default_policy is not None:
        _policy(judge, build.default_policy, parts.default_policy, ("default_policy",))
    _reached(judge)
    if not judge.problems:
        try:
            build.policies(parts)
        except UsageError as error:
            judge.refuse(("policies",), str(error).removeprefix("policies: expected "), got="these")


def _policy(judge: Validator, make: Callable[[_T], Policy], table: _T, trail: Trail) -> None:
    """What a policy cannot be once it is compiled."""
    try:
        policy = make(table)
    except UsageError as error:
        judge.refuse(trail, f"a policy that can be compiled ({error})", got="this one")
        return
    first_ms = max((t.schedule.choices_ms(0)[0] for t in policy.treatments if t.schedule.retries), default=0)
    if policy.deadline_ms is not None and first_ms > policy.deadline_ms:
        expected = f"at least the first delay of {duration_text(first_ms)}, as nothing would ever be retried"
        judge.refuse((*trail, "deadline"), expected)
    for place, rule in enumerate(policy.errors):
        for earlier in policy.errors[:place]:
            if errors_cover(earlier.error_types, rule.error_types):
                judge.refuse(
                    (*trail, "errors", place, "error_type"),
                    f"errors that no rule before it takes ({', '.join(earlier.error_types)} takes them all)",
                )
                break


def _reached(judge: Validator) -> None:
    """That every policy has letters left to take. Looks at the matches alone, whatever else may be wrong."""
    before: list[tuple[int, str, Match]] = []
    for place, table in _written(judge, "policies"):
        match_table = judge.quietly(policies.MatchTable, table.get("match", {}))
        if match_table is None:
            continue
        match = build.match(match_table)
        for earlier_place, name, earlier in before:
            if covers(earlier, match):
                where = judge.gathered.source(("policies", earlier_place))
                judge.refuse(
                    ("policies", place),
                    f"letters that no policy before it takes ({name} at {where} takes them all)",
                    got="a policy that is never reached",
                )
                break
        before.append((place, str(table.get("name", "one")), match))
    catch_all = next((name for _, name, match in before if match.everything), None)
    if catch_all is not None and "default_policy" in judge.gathered.tree:
        judge.refuse(
            ("default_policy",),
            f"letters that no policy takes ({catch_all} has no match, so it takes them all)",
            got="a policy that is never reached",
        )


def _watched_by(judge: Validator) -> None:
    """That the policies a watch names are there."""
    known = [name for _, table in _written(judge, "policies") if isinstance(name := table.get("name"), str)]
    for place, table in _written(judge, "watches"):
        named = table.get("policies")
        for number, name in enumerate(named if isinstance(named, list) else []):
            if isinstance(name, str) and name not in known:
                meant = nearest(name, known)
                hint = f"did you mean {meant}?" if meant else f"there are: {', '.join(known) or 'none'}"
                judge.refuse(("watches", place, "policies", number), f"the name of a policy ({hint})")


def _watches(judge: Validator, parts: ValidParts, vhost: str) -> None:
    valid = [(place, watch) for place, watch in enumerate(parts.watches) if watch is not None]
    for place, watch in valid:
        here = watch.vhost or vhost
        beside = [(at, other) for at, other in valid if (other.vhost or vhost) == here]
        before = [(at, other) for at, other in beside if at < place]
        _taken(judge, place, watch, before)
        _delays(judge, place, watch, before)
        _inside_levels(judge, place, watch, beside)


def _desk(judge: Validator, parts: ValidParts, vhost: str) -> None:
    """That letters for the store have a store, and no watch that takes them as well."""
    desk = parts.desk
    if desk is None:
        return
    # With --store none a command asks for itself; dlq serve, which takes letters, refuses it then.
    asked = judge.gathered.source(("store", "url")).kind == "option"
    if desk.asked and parts.store is not None and parts.store.url == urls.NO_STORE and not asked:
        judge.refuse(
            ("desk", "ingest"), f'a store for its letters ([store] url is "{urls.NO_STORE}"), or false'
        )
    for place, queue in enumerate(desk.queues):
        for watch_place, watch in enumerate(parts.watches):
            if (
                watch is not None
                and (watch.vhost or vhost) == (queue.vhost or vhost)
                and glob(watch.takes, queue.name)
                and queue.name != PARKED
            ):
                where = judge.gathered.source(("watches", watch_place))
                judge.refuse(
                    ("desk", "queues", place, "name"),
                    f"a queue that no watch takes letters from ({watch.takes!r} at {where} does)",
                )
                break


def _taken(judge: Validator, place: int, watch: WatchTable, before: list[tuple[int, WatchTable]]) -> None:
    for earlier_place, earlier in before:
        if glob(earlier.takes, watch.takes):
            where = judge.gathered.source(("watches", earlier_place))
            judge.refuse(
                ("watches", place, "dlq"),
                f"queues that no watch before it takes ({earlier.takes!r} at {where} takes them all)",
            )
            return


def _delays(judge: Validator, place: int, watch: WatchTable, before: list[tuple[int, WatchTable]]) -> None:
    """The numbered delays are there once in a vhost, whoever uses them."""
    if watch.way != "levels":
        return
    for earlier_place, earlier in before:
        if earlier.way == "levels" and build.delays_ms(earlier) != build.delays_ms(watch):
            where = judge.gathered.source(("watches", earlier_place))
            theirs = ", ".join(map(duration_text, build.delays_ms(earlier)))
            judge.refuse(
                ("watches", place, "delays"),
                f"the same as of {earlier.takes!r} at {where} ({theirs}): the queues queue.delay.<n> are "
                "shared by the whole vhost",
            )
            return


def _inside_levels(
    judge: Validator, place: int, watch: WatchTable, beside: list[tuple[int, WatchTable]]
) -> None:
    """That nobody takes letters out of the numbered delays, or feeds what was given up back into them."""
    for levels_place, levels in beside:
        if levels.way != "levels":
            continue
        from deadletter.core.layouts.levels import DLQ_QUEUE, delay_queue_name, due_queue_name

        numbers = range(1, len(build.delays_ms(levels)) + 1)
        inner = [name for n in numbers for name in (delay_queue_name(n), due_queue_name(n))]
        if watch.mode != "manual":
            inner.append(DLQ_QUEUE)
        taken = next((queue for queue in inner if glob(watch.takes, queue)), None)
        if taken is not None:
            where = judge.gathered.source(("watches", levels_place))
            judge.refuse(
                ("watches", place, "dlq"),
                f'queues that letters die in; {taken} belongs to the layout "levels" at {where}, and its '
                "letters would go in circles",
            )
            return
