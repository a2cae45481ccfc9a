"""Which letters come into the store, and how long they stay, as the file says it; and what it cannot say.

About `config.tables.desk`, `config.cross_checks`, `core.grouping.retention`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from deadletter.config import load
from deadletter.config.settings import Settings
from deadletter.core.grouping.grouping_rules import GroupingRule
from deadletter.core.grouping.in_app import OwnCode
from deadletter.core.grouping.retention import Retention
from deadletter.errors import ConfigError

DAY_MS = 86_400_000
ON = "[desk]\ningest = true\n"


def loaded(tmp_path: Path, text: str, **environment: str) -> Settings:
    (tmp_path / "deadletter.toml").write_text(text)
    return load(directory=tmp_path, home=tmp_path / "home", environment=environment)


def test_parked_letters_come_into_the_store_unless_somebody_says_otherwise(tmp_path: Path) -> None:
    desk = loaded(tmp_path, "").desk
    assert desk.in_vhost("/") == {"deadletter.parked": Retention()}
    assert (desk.ingest, desk.asked, desk.retention) == (True, False, Retention())
    assert loaded(tmp_path, "", DLQ_DESK_INGEST="true").desk.asked
    off = loaded(tmp_path, "", DLQ_DESK_INGEST="false").desk
    assert (off.in_vhost("/"), off.ingest, off.asked) == ({}, False, False)


def test_who_names_queues_asks_for_it(tmp_path: Path) -> None:
    assert loaded(tmp_path, "[[desk.queues]]\nname = 'errors'").desk.asked
    assert not loaded(tmp_path, "[desk]\ningest = false\n[[desk.queues]]\nname = 'errors'").desk.asked


def test_without_a_store_and_without_a_wish_nothing_is_wrong(tmp_path: Path) -> None:
    assert loaded(tmp_path, "[store]\nurl = 'none'").store.off


def test_a_queue_has_what_it_says_and_else_what_all_have(tmp_path: Path) -> None:
    text = ON + (
        "[desk.retention]\nage = '90d'\nletters = 100\n"
        "[[desk.queues]]\nname = 'errors'\nretention = { age = '10y' }\n"
    ).replace("10y", "3650d")
    desk = loaded(tmp_path, text + "[[desk.queues]]\nname = 'errors'\nvhost = 'shop'\n").desk
    usual = Retention(age_ms=90 * DAY_MS, letters=100)
    assert desk.in_vhost("/") == {
        "deadletter.parked": usual,
        "errors": Retention(age_ms=3650 * DAY_MS, letters=100),
    }
    assert desk.in_vhost("shop") == {"deadletter.parked": usual, "errors": usual}
    assert desk.in_vhost("elsewhere") == {"deadletter.parked": usual}


def test_the_parked_queue_may_have_its_own(tmp_path: Path) -> None:
    text = ON + "[[desk.queues]]\nname = 'deadletter.parked'\nretention = { discarded = '1d' }\n"
    kept = loaded(tmp_path, text + "[[watches]]\ndlq = '*'\n").desk.in_vhost("/")
    assert kept == {"deadletter.parked": Retention(discarded_ms=DAY_MS)}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            ON + "[store]\nurl = 'none'",
            'desk.ingest: expected a store for its letters ([store] url is "none")',
        ),
        (
            "[[desk.queues]]\nname = 'errors'\n[store]\nurl = 'none'",
            'desk.ingest: expected a store for its letters ([store] url is "none")',
        ),
        (
            ON + "[[desk.queues]]\nname = 'a.dlq'\n[[watches]]\ndlq = '*.dlq'\nmode = 'manual'",
            "desk.queues[a.dlq].name: expected a queue that no watch takes letters from ('*.dlq' at",
        ),
        (
            ON + "[[desk.queues]]\nname = 'deadletter.due'",
            "desk.queues[deadletter.due].name: expected a queue of yours, or deadletter.parked",
        ),
        (ON + "[[desk.queues]]\nname = 'a'\n[[desk.queues]]\nname = 'a'", "expected each queue once"),
        (ON + "batch = 0", "desk.batch: expected at least 1"),
        (ON + "retention = { age = '3651d' }", "desk.retention.age: expected a time from 1 s to 3650 d"),
        (
            ON + "retention = { ages = '1d' }",
            "desk.retention.ages: expected a key there is (did you mean age?)",
        ),
    ],
)
def test_what_it_cannot_be(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, text)
    assert problem in "\n".join(map(str, raised.value.problems))


def test_another_vhost_may_have_a_watch_of_that_name(tmp_path: Path) -> None:
    text = ON + "[[desk.queues]]\nname = 'a.dlq'\nvhost = 'shop'\n[[watches]]\ndlq = '*.dlq'\n"
    assert "a.dlq" in loaded(tmp_path, text).desk.in_vhost("shop")


def test_a_command_without_a_store_is_not_the_service(tmp_path: Path) -> None:
    (tmp_path / "deadletter.toml").write_text(ON)
    settings = load(directory=tmp_path, home=tmp_path, environment={}, options={"store.url": "none"})
    assert (settings.desk.ingest, settings.store.off) == (True, True)


def test_own_rules_for_groups(tmp_path: Path) -> None:
    text = (
        "[desk]\nown_code = ['*/shoplib/*']\nforeign_code = ['*/generated/*']\n"
        "[[desk.groups]]\ngroup = 'ledger of {origin}'\nmessage = 'the ledger*'\nheader = { tenant = 'a*' }\n"
    )
    grouping = loaded(tmp_path, text).desk.grouping
    assert grouping.own == OwnCode(ours=("*/shoplib/*",), foreign=("*/generated/*",))
    assert grouping.rules == (
        GroupingRule(group="ledger of {origin}", message="the ledger*", headers=(("tenant", "a*"),)),
    )


def test_a_name_with_braces_that_mean_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"desk.groups\[1\].group.*\{tenant\}"):
        loaded(tmp_path, "[[desk.groups]]\ngroup = 'of {tenant}'\n")
