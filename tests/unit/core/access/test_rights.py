"""Roles, rights and scope, as values.

About `core.access.rights`, `core.access.scope`, `desk.access.person`.
"""

from __future__ import annotations

import pytest

from deadletter.core.access.rights import EVERYWHERE, RIGHTS, Action, Role
from deadletter.core.access.scope import WHOLE, Scope
from deadletter.desk.access.person import OWNER, Person
from deadletter.errors import NotAllowed

VIEWER = Person(name="eve", role=Role.VIEWER)
OPERATOR = Person(name="olga", role=Role.OPERATOR)
ADMIN = Person(name="ada", role=Role.ADMIN)
LIMITED = Person(name="lim", role=Role.ADMIN, scope=Scope(vhosts=("shop",), queues=("orders*", "mail")))


def test_every_role_may_what_the_one_below_may() -> None:
    assert RIGHTS[Role.VIEWER] < RIGHTS[Role.OPERATOR] < RIGHTS[Role.ADMIN] == frozenset(Action)


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("person", [VIEWER, OPERATOR, ADMIN, OWNER], ids=lambda one: one.name or "owner")
def test_what_somebody_may_not_is_refused_in_words(person: Person, action: Action) -> None:
    if action in RIGHTS[person.role]:
        person.must(action)
        person.must(action, vhost="/", queue="orders")
    else:
        assert not person.may(action)
        with pytest.raises(NotAllowed, match=f"^{person.name} may not {action.value}: their role is "):
            person.must(action)


def test_a_limited_sight_is_a_limit_of_rights() -> None:
    assert LIMITED.may(Action.DISCARD)
    assert LIMITED.may(Action.DISCARD, vhost="shop", queue="orders.eu")
    for where in ({"vhost": "shop", "queue": "stock"}, {"vhost": "/", "queue": "mail"}, {"queue": ""}):
        assert not LIMITED.may(Action.DISCARD, **where)
        with pytest.raises(NotAllowed, match="not theirs"):
            LIMITED.must(Action.DISCARD, **where)
    for action in EVERYWHERE:
        with pytest.raises(NotAllowed, match="all queues"):
            LIMITED.must(action)


def test_masked_fields_can_be_allowed_beside_the_role() -> None:
    assert not OPERATOR.may(Action.SEE_MASKED)
    assert Person(name="o", role=Role.OPERATOR, sees_masked=True).may(Action.SEE_MASKED)
    assert ADMIN.may(Action.SEE_MASKED)


@pytest.mark.parametrize(
    ("scope", "vhost", "queue", "seen"),
    [
        (WHOLE, "", "", True),
        (Scope(queues=("orders",)), "any", "orders", True),
        (Scope(queues=("orders",)), "any", "Orders", False),
        (Scope(queues=("orders*",)), "any", "", False),
        (Scope(queues=("**",)), "any", "", False),
        (Scope(vhosts=("a*",)), "", "orders", False),
        (Scope(vhosts=("a*",)), "ab", "", True),
        (Scope(vhosts=("a[b]",)), "ab", "x", False),
        (Scope(vhosts=()), "a", "x", False),
    ],
)
def test_what_is_seen(scope: Scope, vhost: str, queue: str, seen: bool) -> None:
    assert scope.sees(vhost, queue) is seen


def test_who_is_written_into_the_audit() -> None:
    assert ADMIN.called("somebody else") == "ada"
    assert OWNER.called("alice") == "alice"
    assert OWNER.called() == "api"
