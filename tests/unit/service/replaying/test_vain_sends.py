"""A replay gives up where no queue takes its letters, and not where one of them does not.

About `service.replaying.vain_sends`.
"""

from __future__ import annotations

from deadletter.service.replaying.vain_sends import IN_VAIN_MOST, VainSends

GONE = "there is no queue gone"


def stays(vain: VainSends, queue: str, times: int, others: tuple[str, ...]) -> str | None:
    """What is said of the last one."""
    said = [vain.stayed(queue, GONE, others) for _ in range(times)]
    assert set(said[:-1]) <= {None}
    return said[-1]


def test_a_hundred_one_after_the_other() -> None:
    vain = VainSends()
    assert stays(vain, "gone", IN_VAIN_MOST - 1, ("gone",)) is None
    vain.arrived({"gone"})
    assert stays(vain, "gone", IN_VAIN_MOST - 1, ("gone",)) is None
    ends = vain.stayed("gone", GONE, ("gone",))
    assert ends is not None
    assert GONE in ends


def test_one_queue_that_is_gone_does_not_keep_the_letters_of_others_home() -> None:
    vain = VainSends()
    both = ("gone", "orders")
    assert stays(vain, "gone", 10 * IN_VAIN_MOST, both) is None
    assert stays(vain, "orders", IN_VAIN_MOST - 1, both) is None
    vain.arrived({"orders"})
    assert stays(vain, "orders", IN_VAIN_MOST - 1, both) is None
    assert vain.stayed("orders", GONE, both) is not None, "now none takes any"


def test_letters_of_which_nobody_knows_the_queue() -> None:
    assert stays(VainSends(), "", IN_VAIN_MOST, ()) is not None
    assert stays(VainSends(), "", IN_VAIN_MOST, ("orders",)) is None
