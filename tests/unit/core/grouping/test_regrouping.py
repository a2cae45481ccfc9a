"""Who takes whose place when letters were grouped anew. About `core.grouping.regrouping`,
`core.grouping.grouping_rules`.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.grouping.category import Category
from deadletter.core.grouping.fingerprint import Symptom
from deadletter.core.grouping.grouping_rules import Grouping, GroupingRule
from deadletter.core.grouping.in_app import OwnCode
from deadletter.core.grouping.regrouping import GroupNow, GroupSettling


def now(letters: int, root: int, *, said: bool = False, vhost: int | None = None) -> GroupNow:
    return GroupNow(root=root, letters=letters, said=said, vhost=vhost)


def test_the_heir_got_most_also_through_a_group_that_is_gone() -> None:
    groups = {1: now(0, 1), 2: now(0, 2), 3: now(4, 3), 4: now(9, 4)}
    found = GroupSettling(groups, {(1, 2): 5, (1, 4): 2, (2, 3): 4, (2, 4): 1}).settled()
    assert found.heirs == {1: 3, 2: 3}


def test_groups_that_only_exchanged_letters_have_no_heir() -> None:
    groups = {1: now(3, 1), 2: now(2, 2)}
    assert GroupSettling(groups, {(1, 2): 2, (2, 1): 3}).settled().heirs == {}


def test_what_was_said_goes_where_most_went_and_nowhere_else() -> None:
    groups = {1: now(0, 1, said=True), 2: now(0, 2), 3: now(6, 3), 4: now(1, 4)}
    assert GroupSettling(groups, {(1, 3): 5, (2, 3): 1, (1, 4): 1}).settled().said == {3: 1}
    assert GroupSettling(groups, {(1, 3): 2, (2, 3): 4}).settled().said == {}, "most of it is of another"
    groups[3] = now(6, 3, said=True)
    assert GroupSettling(groups, {(1, 3): 5}).settled().said == {}, "somebody said something of it"
    groups |= {1: now(8, 1, said=True), 3: now(6, 3)}
    assert GroupSettling(groups, {(1, 3): 5}).settled().said == {}, "it has kept the most"


def test_what_was_said_goes_to_one_group_in_each_vhost() -> None:
    """A group of two vhosts is parted: it was said of both."""
    groups = {1: now(0, 1, said=True), 2: now(5, 2, vhost=7), 3: now(2, 3, vhost=8), 4: now(1, 4, vhost=8)}
    moved = {(1, 2): 5, (1, 3): 2, (1, 4): 1}
    assert GroupSettling(groups, moved).settled().said == {2: 1, 3: 1}
    groups[1] = now(0, 1, said=True, vhost=8)
    groups[2] = now(5, 2, vhost=8)
    assert GroupSettling(groups, moved).settled().said == {2: 1}, "of one vhost it goes to one"
    groups = {1: now(0, 1, said=True), 2: now(9, 2, vhost=7), 3: now(0, 3, vhost=8)}
    said = GroupSettling(groups, {(1, 2): 2, (1, 3): 5}).settled().said
    assert said == {}, "letters that went to another vhost, and are gone, are none of these"


def test_merged_ones_follow_their_first_one() -> None:
    groups = {1: now(0, 1), 2: now(0, 1), 11: now(3, 11), 12: now(9, 12), 13: now(2, 13)}
    found = GroupSettling(groups, {(1, 11): 3, (2, 12): 9, (2, 13): 2}).settled()
    assert found.merged == {1: 11, 2: 11, 11: None, 12: 11, 13: 11}


_NUMBERS = st.integers(0, 7)


@given(
    moved=st.dictionaries(st.tuples(_NUMBERS, _NUMBERS), st.integers(1, 9)),
    letters=st.lists(st.integers(0, 3), min_size=8, max_size=8),
    roots=st.lists(st.booleans(), min_size=8, max_size=8),
    split=st.lists(st.tuples(_NUMBERS, _NUMBERS)),
)
def test_whatever_moved(
    moved: dict[tuple[int, int], int],
    letters: list[int],
    roots: list[bool],
    split: list[tuple[int, int]],
) -> None:
    """Heirs have letters; a merged group is in one that is in no other; what people merged is one group."""
    groups = {number: now(letters[number], 0 if merged else number) for number, merged in enumerate(roots)}
    groups[0] = now(letters[0], 0)
    moved = {(before, after): some for (before, after), some in moved.items() if before != after}
    settling = GroupSettling(groups, moved, split=split)
    found = settling.settled()
    assert all(groups[heir].letters and not groups[group].letters for group, heir in found.heirs.items())
    assert all(groups[to].letters for to in found.said)
    for root in found.merged.values():
        assert root is None or found.merged[root] is None
    together = {number for number in groups if groups[number].root == 0}
    if len(together) > 1:
        where = {now for number in together for now in settling.living(number)}
        assert (
            len({found.merged[number] if found.merged[number] is not None else number for number in where})
            <= 1
        )
    assert all(one != other for one, other in found.apart)


def test_other_rules_have_another_digest() -> None:
    some = [
        Grouping(),
        Grouping(own=OwnCode(ours=("*/shop/*",))),
        Grouping(own=OwnCode(foreign=("*/shop/*",))),
        Grouping(rules=(GroupingRule(group="a"),)),
        Grouping(rules=(GroupingRule(group="a", origin="b"),)),
        Grouping(rules=(GroupingRule(category=Category.DATA),)),
    ]
    assert len({one.digest for one in some}) == len(some)
    assert Grouping().digest == Grouping(rules=()).digest


def test_a_rule_may_say_the_category_alone_and_the_next_one_the_group() -> None:
    rules = (
        GroupingRule(origin="orders", category=Category.DATA),
        GroupingRule(origin="o*", group="o", category=Category.BUG),
    )
    grouping = Grouping(rules=rules)
    orders, others = (grouping.of(Symptom(origin=origin)) for origin in ("orders", "others"))
    assert (orders.ruled, others.ruled) == ("data", "bug")
    assert any("o → o" in part.text for part in orders.parts)
    plain = Symptom(origin="orders")
    assert Grouping(rules=rules[:1]).of(plain).key == Grouping().of(plain).key
