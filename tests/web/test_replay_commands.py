"""The commands about replays: on the store, and through a service that has it, with the same words.

Nobody sends here: what `dlq serve` would do is done to the store by hand. About
`cli.replays.replay_command`, `cli.replays.replays_command`, `cli.replays.deploy_command`,
`cli.replays.replay_options`, `cli.replays.plan_options`, `cli.replays.watching`,
`cli.replays.asking_replays`, `cli.replays.completing_replays`, `operations.replays.at_hand`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.commanding import command
from tests.recorded import make, url_of
from tests.web.test_record_commands import Terminal, answering, audit

from deadletter.cli.letters import completing
from deadletter.cli.replays import watching
from deadletter.operations.records import at_hand
from deadletter.operations.replays import before_replay
from deadletter.operations.replays.replay_told import ReplayDetail
from deadletter.store.letters.letter_store import open_letters
from deadletter.store.replays.replay_store import ReplayStore


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a second is short; for a broker that is not there it is long."""
    monkeypatch.setattr(completing, "TIME_S", 60.0)
    monkeypatch.setattr(at_hand, "LOOK_S", 60.0)
    monkeypatch.setattr(at_hand, "LOOK_CONNECT_S", 60.0)
    monkeypatch.setattr(before_replay, "LOOK_S", 0.2)
    monkeypatch.setattr(watching, "LOOK_S", 0.05)


@pytest.fixture(params=["store", "service"])
def dlq(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    path = tmp_path / "letters.db"
    url = asyncio.run(make(path, int(time.time() * 1000)))
    environment = {
        "DLQ_STORE": url,
        "HOME": str(tmp_path),
        "DLQ_URL": "amqp://127.0.0.1:1",
        "DLQ_API": "http://127.0.0.1:1",
    }
    (tmp_path / "deadletter.toml").write_text('[serve]\nlisten = "127.0.0.1:1"\n')
    if request.param == "store":
        yield Terminal(tmp_path, environment, path)
        return
    with answering(url) as at:
        listen = at.removeprefix("http://")
        (tmp_path / "deadletter.toml").write_text(f'[serve]\nlisten = "{listen}"\n')
        yield Terminal(tmp_path, environment, path)


def served(dlq: Terminal, work: Callable[[ReplayStore], Awaitable[Any]]) -> Any:
    """What the service does with replays, by hand."""

    async def main() -> Any:
        async with open_letters(url_of(dlq.file), prepare=False) as store:
            return await work(ReplayStore(store))

    return asyncio.run(main())


async def frozen(replays: ReplayStore, number: int = 1) -> None:
    while await replays.freeze_some(number):
        pass


async def gone(replays: ReplayStore, number: int = 1) -> None:
    """The first letter refused, the second said to be done by its consumer, the others quiet; all over."""
    await frozen(replays, number)
    some = await replays.next_portion(number, 10)
    first, *rest = [one.row for one in some]
    now = int(time.time() * 1000)
    await replays.settled(number, rest, {first: "no queue \x1b[2J"}, at_ms=now, doubtful=rest[-1:])
    await replays.done_by_consumer([(some[1].letter_id, number, now + 3_000)])
    await replays.quiet(number, now_ms=now + 3_600_000)
    await replays.finish(number)


def started(dlq: Terminal, *arguments: str) -> int:
    told = dlq.data("replay", *(arguments or ("--group", "1")), "--yes", "--as", "anna")
    assert told["done"]
    return int(told["replay"]["id"])


# -- beginning ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_what_would_be_sent_is_said_first(dlq: Terminal, more: tuple[str, ...]) -> None:
    told = dlq("replay", "--group", "1", *more)
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("would replay 5 letters to the queues they failed in\n")
    assert "canary: 1, 10, 100" in told.stdout
    assert "PaymentTimeout" in told.stdout, "some of them are shown"
    assert "WARNING" in told.stdout, "the broker could not be asked, and that is said"
    assert told.stdout.endswith("nothing was sent; the same with --yes begins it\n")
    assert (audit(dlq), dlq.data("replays")["replays"]) == ([], [])
    assert "no replays like that" in dlq("replays").stdout


def test_it_begins_with_yes(dlq: Terminal, request: pytest.FixtureRequest) -> None:
    told = dlq(
        "replay", "--group", "1", "--rate", "20/s", "--outcome", "5min", "--to-queue", "orders.again",
        "--resolve", "--overrule-guards", "--why", "the ledger is back", "--as", "anna", "--yes",
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("replay 1 begins: 5 letters; dlq serve sends them\n")
    assert "dlq replays 1 --watch" in told.stdout
    assert audit(dlq) == [("anna", "replay")]
    detail = dlq.data("replays", "1")
    replay = detail["replay"]
    assert (replay["who"], replay["why"], replay["state"]) == ("anna", "the ledger is back", "freezing")
    assert replay["target"] == {"to": "queue", "queue": "orders.again"}
    assert replay["pace"] == {"pace": "all", "rate_per_s": 20.0}
    assert (replay["outcome_ms"], replay["resolves"], replay["overrules_guards"]) == (300_000, True, True)
    if "store" in request.node.name:
        assert "no running service works on it" in dlq("replays", "1").stdout
    second = dlq.data("replay", "1", "--yes")
    assert second["done"], "nothing is frozen yet, so the letter is open"


def test_letters_by_number_and_what_is_not_there(dlq: Terminal) -> None:
    told = dlq("replay", "1", f"{2:032x}", "--id", "3", "999", "--yes", "--pace", "all")
    assert told.returncode == 1, "one that was named is not there"
    assert "named, but not here or not open: 1 letter" in told.stdout
    served(dlq, frozen)
    assert dlq.data("replays", "1")["replay"]["letters"] == 3
    none = dlq("replay", "1", "--yes")
    assert (none.returncode, none.stdout.split("\n")[0]) == (
        1,
        "no open letters like that; nothing to replay",
    )
    assert dlq("replay", "--origin", "nowhere", "--yes").returncode == 0
    assert len(dlq.data("replays")["replays"]) == 1


def test_an_edit_of_many_is_tried_first(dlq: Terminal) -> None:
    program = 'if .body.order == 3 then error("no") else .body.total |= floor end'
    asked = ("replay", "--group", "1", "--edit", program)
    told = dlq(*asked)
    assert told.returncode == 0, told.stderr
    assert "5 letters: 4 would change, 0 stay as they are, 1 cannot be changed" in told.stdout
    assert "letter 3: " in told.stdout
    assert "+ .body.total: 100" in told.stdout
    found = re.search(r"--yes --tried ([0-9a-f]{8})", told.stdout)
    assert found is not None
    held = dlq(*asked, "--yes")
    assert held.returncode == 1
    assert "an edit of many is tried first" in held.stdout
    assert found[1] in held.stdout
    other = dlq("replay", "--group", "1", "--edit", ".body.total = 0", "--yes", "--tried", found[1])
    assert other.returncode == 1
    assert "--tried is of another edit" in other.stdout
    assert dlq.data("replays")["replays"] == []
    done = dlq.data(*asked, "--yes", "--tried", found[1])
    assert done["done"]
    assert dlq.data("replays", "1")["replay"]["edit"] == program


def test_an_edit_of_one_needs_no_trial_and_a_recipe_is_named(dlq: Terminal) -> None:
    assert dlq("recipes", "save", "floors", "--jq", ".body.total |= floor").returncode == 0
    seen = dlq.data("replay", "1", "--recipe", "floors")
    assert (seen["edit"]["changed"], seen["done"]) == (1, False)
    done = dlq.data("replay", "1", "--recipe", "floors", "--yes")
    assert (done["replay"]["recipe"], done["replay"]["edit"]) == ("floors", ".body.total |= floor")
    assert "recipe floors: .body.total |= floor" in dlq("replays", "1").stdout


def test_letters_are_repaired_wherever_that_is_asked(dlq: Terminal) -> None:
    """Beside `tests/store/test_edit_commands.py`, which is about the store alone."""
    assert dlq("edit", "1", "--set", ".body.total=1").stdout.endswith("--yes keeps it as a draft\n")
    told = dlq("edit", "1", "--set", ".body.total=1", "--yes", "--as", "anna")
    assert told.returncode == 0, told.stderr
    assert "dlq replay 1" in told.stdout
    assert "1 letter of those below: the repaired one goes" in dlq("replay", "1").stdout
    told = dlq("recipes", "propose", "1", "--save", "ones", "--as", "anna")
    assert told.returncode == 0, told.stderr
    assert "5 letters of its group: " in told.stdout
    assert "dlq replay --group 1 --recipe ones" in told.stdout
    assert [one["name"] for one in dlq.data("recipes", "list")] == ["ones"]
    assert dlq("edit", "1", "--drop", "--as", "anna").returncode == 0
    refused = dlq("edit", "1", "--set", '.headers["deadletter-id"]="x"', "--yes")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert audit(dlq) == [("anna", action) for action in ("edited", "recipe saved", "edit dropped")]


# -- looking -----------------------------------------------------------------------------------------------
def test_what_became_of_each(dlq: Terminal) -> None:
    number = started(dlq)
    served(dlq, gone)
    told = dlq("replays", str(number))
    for said in ("1  done", "3  not returned", "not returned in 10 min", "1  refused", "1  doubtful"):
        assert said in told.stdout, said
    assert "\x1b" not in told.stdout
    assert "dlq replays 1 --outcomes refused" in told.stdout
    for word, letters in (
        ("refused", [1]), ("done", [2]), ("quiet", [3, 4, 5]), ("doubtful", [5]), ("back", []),
        ("all", [1, 2, 3, 4, 5]),
    ):  # fmt: skip
        page = dlq.data("replays", "1", "--outcomes", word)
        assert [one["letter"] for one in page["outcomes"]] == letters, word
    assert "refused, in the store: no queue \\x1b[2J" in dlq("replays", "1", "--outcomes", "refused").stdout
    assert "its consumer said so" in dlq("replays", "1", "--outcomes", "done").stdout
    assert "MAY HAVE GONE TWICE" in dlq("replays", "1", "--outcomes", "doubtful").stdout
    assert "no letters of it: back" in dlq("replays", "1", "--outcomes", "back").stdout
    page = dlq("replays", "1", "--outcomes", "quiet", "--limit", "2")
    assert "there are more: --after 4" in page.stdout
    rest = dlq.data("replays", "1", "--outcomes", "quiet", "--after", "4")
    assert [one["letter"] for one in rest["outcomes"]] == [5]


def test_a_list_of_them(dlq: Terminal) -> None:
    for name in ("1", "2", "3"):
        started(dlq, name)
    told = dlq("replays", "--limit", "2")
    assert [line.split()[0] for line in told.stdout.split("\n")[:3]] == ["#", "3", "2"]
    assert "there are more: --after 2" in told.stdout
    assert [one["id"] for one in dlq.data("replays", "--after", "2")["replays"]] == [1]
    dlq("replay", "pause", "2")
    assert [one["id"] for one in dlq.data("replays", "--state", "paused")["replays"]] == [2]
    assert len(dlq.data("replays", "--state", "any")["replays"]) == 3


# -- changing ----------------------------------------------------------------------------------------------
def test_pause_resume_pace_and_cancel(dlq: Terminal) -> None:
    number = str(started(dlq))
    served(dlq, frozen)
    told = dlq("replay", "pause", number, "--as", "anna")
    assert told.stdout.startswith("replay 1: paused; what is being sent is settled")
    assert "dlq replay resume 1" in told.stdout
    assert dlq("replay", "resume", number, "--as", "anna").stdout.startswith("replay 1: goes on")
    told = dlq("replay", "pace", number, "--pace", "auto", "--room", "200", "--as", "anna")
    assert told.stdout.startswith("replay 1: from now on auto: ")
    assert dlq.data("replays", number)["replay"]["pace"]["room"] == 200
    told = dlq("replay", "cancel", number, "--as", "anna")
    assert "5 let go" in told.stdout
    assert "dlq replay --group 1" in told.stdout, "what sends the rest"
    assert len(dlq.data("letters", "--group", "1")["letters"]) == 5, "they are open again"
    assert audit(dlq) == [
        ("anna", action)
        for action in ("replay", "replay paused", "replay running", "replay pace", "replay cancelled")
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay"], "expected letters: their numbers, or filters"),
        (["replay", "--yes"], "expected letters: their numbers, or filters"),
        (["replay", "pausse", "7"], "no letter is called so"),
        (["replay", "--group", "nonsense", "--yes"], "none is called so"),
        (["replay", "1", "--yes", "--dry-run"], "--yes or --dry-run"),
        (["replay", "1", "--watch"], "--watch: expected --yes"),
        (["replay", "1", "--edit", ".", "--recipe", "x"], "got both"),
        (["replay", "1", "--edit", ".body.["], "jq program"),
        (["replay", "1", "--recipe", "none", "--yes"], "no recipe is called so"),
        (["replay", "1", "--to-queue", "a", "--to-exchange", "b"], "got both"),
        (["replay", "1", "--rate", "fast"], "a rate above zero"),
        (["replay", "1", "--outcome", "soon"], "a time above zero"),
        (["replay", "1", "--outcome", "90d"], "30 days"),
        (["replay", "1", "--why", "x" * 1_001, "--yes"], "--why: expected at most"),
        (["replay", "pause", "7"], "replay 7"),
        (["replay", "pause", "x"], "the number of a replay"),
        (["replay", "pace", "7"], "expected a pace"),
        (["replays", "7"], "replay 7"),
        (["replays", "--outcomes", "back"], "the number of a replay"),
        (["replays", "7", "--outcomes", "lost"], "expected one of back, quiet"),
        (["replays", "--state", "quick"], "expected one of freezing"),
        (["deployed", "", "1"], "service"),
    ],
)
def test_what_cannot_be_is_one_line_and_a_code(dlq: Terminal, arguments: list[str], said: str) -> None:
    told = dlq(*arguments)
    assert (told.returncode, told.stdout) == (2, ""), told
    assert said in told.stderr
    assert told.stderr.startswith("dlq: ")
    assert told.stderr.count("\n") == 1
    assert audit(dlq) == []


# -- watching ----------------------------------------------------------------------------------------------
def test_it_is_watched_to_its_end(dlq: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, show = threading.Event(), watching.LivePicture.show

    def shown(picture: watching.LivePicture, detail: ReplayDetail) -> None:
        show(picture, detail)
        seen.set()

    def work() -> None:
        assert seen.wait(60)
        served(dlq, gone)

    monkeypatch.setattr(watching.LivePicture, "show", shown)
    serving = threading.Thread(target=work)
    serving.start()
    told = dlq("replay", "--group", "1", "--yes", "--watch")
    serving.join(60)
    assert told.returncode == 1, "one was refused"
    assert "replay 1: freezing" in told.stderr
    assert told.stdout.startswith("replay 1: done")
    assert "dlq replays 1 --outcomes refused" in told.stdout
    over = dlq("replays", "1", "--watch", "--json")
    assert (over.returncode, over.stderr) == (1, "")
    assert json.loads(over.stdout)["watched_to_the_end"]


def test_ctrl_c_ends_the_watching_and_not_the_replay(dlq: Terminal) -> None:
    number = str(started(dlq))
    process = subprocess.Popen(
        [sys.executable, "-m", "deadletter.cli.main", "replays", number, "--watch"],
        env=dlq.environment, cwd=dlq.directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert "replay 1: freezing" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert told.startswith("stopped watching; replay 1 goes on without you\n")
    assert "dlq replay pause 1" in told
    assert dlq.data("replays", number)["replay"]["state"] == "freezing"


def test_on_a_terminal_there_is_a_picture_of_it(dlq: Terminal) -> None:
    number = str(started(dlq, "--error", "PaymentTimeout", "--why", "\x1b[2J"))
    terminal, screen = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "deadletter.cli.main", "replays", number, "--watch"],
        env={**dlq.environment, "TERM": "xterm", "COLUMNS": "120"}, cwd=dlq.directory, stdout=subprocess.PIPE,
        stderr=screen, text=True,
    )  # fmt: skip
    os.close(screen)
    seen = ""
    while "Ctrl-C stops watching, not the replay" not in seen:
        seen += os.read(terminal, 4_096).decode()
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=60)
    os.close(terminal)
    assert (process.returncode, told.split("\n")[0]) == (
        0,
        "stopped watching; replay 1 goes on without you",
    )
    assert "replay 1: freezing" in seen
    assert "\x1b[2J" not in seen + told


# -- deploys -----------------------------------------------------------------------------------------------
def test_a_release_is_told_and_its_groups_are_offered(dlq: Terminal) -> None:
    assert "no release was told" in dlq("deploys").stdout
    told = dlq("deployed", "orders", "1.4.3", "--as", "pipeline")
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("orders 1.4.3, 20")
    line = next(one.strip() for one in told.stdout.split("\n") if one.strip().startswith("dlq replay"))
    assert line == "dlq replay --group 1 --pace canary --resolve --why 'release 1.4.3'"
    assert "which was told before" in dlq("deployed", "orders", "1.4.3").stdout
    assert "nothing to try" in dlq("deployed", "unknown", "7").stdout
    assert [one["service"] for one in dlq.data("deploys")["deploys"]] == ["unknown", "orders"]
    listed = dlq("deploys", "orders")
    assert "pipeline" in listed.stdout
    assert "dlq deployed orders 1.4.3" in listed.stdout


# -- a shell -----------------------------------------------------------------------------------------------
def test_a_shell_is_offered_replays_and_recipes(dlq: Terminal) -> None:
    def offered(words: str) -> list[str]:
        environment = {
            **dlq.environment, "_DLQ_COMPLETE": "complete_bash", "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        }  # fmt: skip
        told = command(environment=environment, directory=dlq.directory)
        assert told.stderr == ""
        return told.stdout.split()

    started(dlq)
    assert dlq("recipes", "save", "floors", "--jq", ".body.total |= floor").returncode == 0
    assert dlq("recipes", "save", "x;reboot", "--jq", ".").returncode == 0
    assert offered("dlq replays ") == ["1"]
    assert offered("dlq replay pause ") == ["1"]
    assert offered("dlq replay pau") == ["pause"]
    assert {"pause", "resume", "cancel", "pace", "9"} <= set(offered("dlq replay "))
    assert "pause" not in offered("dlq replay 9 ")
    assert offered("dlq replay --recipe ") == ["floors"]
    assert offered("dlq edit 1 --recipe ") == ["floors"]
    assert offered("dlq recipes show ") == ["floors"]
    assert "--group" in offered("dlq replay --gr")


def test_help_of_replay_is_that_of_beginning_one(dlq: Terminal) -> None:
    told = dlq("replay", "--help")
    assert told.returncode == 0
    for said in ("--canary", "--where", "--tried", "dlq replay pause 7", "Exit codes"):
        assert said in told.stdout, said
