"""The commands about stored letters: on the store, and through a service that has it, with the same words.

About `cli.letters.groups_command`, `cli.letters.regroup_command`, `cli.letters.letters_command`,
`cli.letters.show_command`,
`cli.letters.discard_command`, `cli.letters.group_options`, `cli.letters.letter_options`,
`cli.letters.record_options`, `cli.letters.completing`, `cli.terminal.option_sets`,
`store.finding.quick_look`, `store.letters.letter_ids`,
`operations.records.at_hand`.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import typer
from tests.commanding import command
from tests.recorded import make
from tests.web.conftest import Office

from deadletter.cli.letters import completing, discard_command
from deadletter.cli.main import whole_app
from deadletter.desk.access.access import Access
from deadletter.desk.http_app import create_app
from deadletter.desk.server import serve
from deadletter.operations.archiving.archive_reading import ArchiveReader
from deadletter.operations.records import at_hand
from deadletter.operations.records.store_records import LateRecords, StoreRecords
from deadletter.operations.repairs.body_schemas import BodySchemas
from deadletter.operations.replays.store_replays import LateReplays
from deadletter.service.telling.service_health import ServiceHealth
from deadletter.service.telling.service_metrics import Metrics


class Counted(LateRecords):
    """Counts who asks."""

    asked = 0

    async def __call__(self) -> StoreRecords:
        Counted.asked += 1
        return await super().__call__()


@contextmanager
def answering(url: str, token: str | None = None) -> Iterator[str]:
    """A desk with this store in a thread of its own, as `dlq serve` would have it; its URL."""
    told: list[str] = []
    ready = threading.Event()
    end: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = []

    async def main() -> None:
        late = Counted(url)
        access = Access(host="127.0.0.1", token=token)
        replays = LateReplays(late, look_at=None, schemas=BodySchemas)
        desk = create_app(Office(), Metrics(), ServiceHealth(lambda: 0.0), access, late, replays)

        def on_ready(where: str) -> None:
            told.append(where)
            ready.set()

        serving = asyncio.create_task(serve(desk, "127.0.0.1:0", on_ready=on_ready))
        end.append((asyncio.get_running_loop(), serving))
        await asyncio.wait({serving})
        await late.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert ready.wait(120)
        yield told[0]
    finally:
        loop, serving = end[0]
        loop.call_soon_threadsafe(serving.cancel)
        thread.join(30)


@dataclass
class Terminal:
    """A person with a store, who perhaps asks a service for it."""

    directory: Path
    environment: dict[str, str]
    file: Path

    def __call__(self, *arguments: str) -> CompletedProcess[str]:
        return command(*arguments, environment=self.environment, directory=self.directory)

    def data(self, *arguments: str) -> Any:
        told = self(*arguments, "--json")
        assert told.returncode == 0, told.stderr
        return json.loads(told.stdout)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a second is short."""
    monkeypatch.setattr(completing, "TIME_S", 60.0)
    monkeypatch.setattr(at_hand, "LOOK_S", 60.0)
    monkeypatch.setattr(at_hand, "LOOK_CONNECT_S", 60.0)


@pytest.fixture(params=["store", "service"])
def dlq(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    path = tmp_path / "letters.db"
    url = asyncio.run(make(path, int(time.time() * 1000)))
    environment = {"DLQ_STORE": url, "HOME": str(tmp_path)}
    (tmp_path / "deadletter.toml").write_text('[serve]\nlisten = "127.0.0.1:1"\n')
    if request.param == "store":
        yield Terminal(tmp_path, environment, path)
        return
    with answering(url) as at:
        listen = at.removeprefix("http://")
        (tmp_path / "deadletter.toml").write_text(f'[serve]\nlisten = "{listen}"\n')
        yield Terminal(tmp_path, environment, path)


def audit(dlq: Terminal) -> list[tuple[str, str]]:
    with sqlite3.connect(dlq.file) as connection:
        return list(connection.execute("SELECT who, action FROM deadletter_audit ORDER BY id"))


def test_groups(dlq: Terminal, request: pytest.FixtureRequest) -> None:
    before = Counted.asked
    told = dlq("groups")
    asks = 2 if "service" in request.node.name else 0
    assert Counted.asked - before == asks, "which store, and the groups: of the service where there is one"
    assert told.returncode == 0
    assert told.stdout.split("\n")[0].split() == ["#", "open/all", "24", "h", "last", "first", "what"]
    assert "PaymentTimeout: no answer from <host> after <duration>" in told.stdout
    assert "\x1b" not in told.stdout
    page = dlq.data("groups", "--sort", "letters", "--limit", "1")
    assert (page["groups"][0]["title"][:7], page["more"]) == ("Payment", 1)
    assert dlq.data("groups", "--after", "4")["groups"] == []
    assert [one["origin"] for one in dlq.data("groups", "--category", "bug")["groups"]] == ["mail"]
    assert "no groups like that" in dlq("groups", "--origin", "nowhere").stdout
    whole = dlq.data("groups", "1")
    assert dlq.data("groups", "--why", whole["group"]["key"][:8]) == whole
    assert "notes" not in dlq("groups", "1").stdout
    assert "●  frame        orders/pay:charge" in dlq("groups", "--why", "1").stdout


def test_letters(dlq: Terminal) -> None:
    assert len(dlq("letters").stdout.split("\n")) == 1 + 9 + 1
    assert [one["id"] for one in dlq.data("letters", "--group", "1", "--sort", "oldest")["letters"]] == [
        1, 2, 3, 4, 5,
    ]  # fmt: skip
    page = dlq.data("letters", "--limit", "2")
    assert [one["id"] for one in page["letters"]] == [9, 8]
    assert page["more"] == 8
    assert [one["id"] for one in dlq.data("letters", "--limit", "2", "--after", "8")["letters"]] == [7, 6]
    assert "there are more: --after 8" in dlq("letters", "--limit", "2").stdout
    for arguments, found in (
        (["--since", "2h", "--origin", "orders"], [2, 1]),
        (["--older-than", "2d"], [9, 8, 6]),
        (["--until", "2025-06-01T12:00:01", "--since", "2025-06-01"], [9, 8]),
        (["--header", "tenant=acme", "--error", "ANSWER"], [5, 3, 1]),
        (["--message-id", "m-2"], [2]),
        (["--id", "3", "--id", f"{4:032x}"], [4, 3]),
        (["--text", '"words about"'], [6]),
        (["--where", '.body.order? == 4 and .headers.tenant == "other"'], [4]),
        (
            ["--cause", "retries-exhausted", "--queue", "deadletter.parked", "--state", "any"],
            [7, 6, 5, 4, 3, 2, 1],
        ),
        (["--state", "discarded"], []),
    ):
        assert [one["id"] for one in dlq.data("letters", *arguments)["letters"]] == found, arguments
    facets = dlq.data("letters", "--facets", "--origin", "orders")
    assert (facets["total"], facets["exact"]) == (5, True)
    assert "5  orders" in dlq("letters", "--facets").stdout
    told = dlq(
        "letters", "--facets", "--where", ".body.order? > 3", "--header", "tenant=*", "--text", "order"
    )
    assert told.stdout.startswith("2 letters, by\nqueue\n   2  deadletter.parked\n")
    assert "2  1  PaymentTimeout: no answer from" in told.stdout, "a group by its number and its title"
    assert [one["id"] for one in dlq.data("letters", "--error", "aymentTimeo")["letters"]] == [5, 4, 3, 2, 1]


def test_show(dlq: Terminal) -> None:
    told = dlq("show", "1")
    assert told.returncode == 0
    for said in ("it was tried 3 times", "► orders/pay:charge", "died 4 × in orders", '"order": 1', "tenant"):
        assert said in told.stdout, said
    assert dlq.data("show", f"{1:032x}")["letter"]["id"] == 1
    assert "\x1b" not in dlq("show", "7").stdout
    assert dlq("show", "6", "--raw").stdout == "plain words about Apples"
    assert "20 bytes more" in dlq("show", "6", "--body-bytes", "4").stdout


def test_what_people_say_of_a_group(dlq: Terminal) -> None:
    assert dlq("resolve", "1", "2", "--as", "anna").stdout.startswith("group 1: resolved; it opens again")
    assert [one["id"] for one in dlq.data("groups", "--state", "resolved")["groups"]] == [1, 2]
    assert dlq("mute", "1", "--as", "anna").returncode == 0
    assert "MUTED" in dlq("groups", "--state", "muted").stdout
    assert "snoozed until 20" in dlq("snooze", "1", "--for", "4h", "--as", "anna").stdout
    assert "SNOOZED until 20" in dlq("groups", "--state", "any").stdout
    assert dlq("reopen", "1", "--as", "anna").stdout.startswith("group 1: open")
    assert dlq("category", "1", "bug", "--as", "anna").stdout.startswith("group 1: category bug")
    assert dlq("note", "1", "waits for the bank\nticket 4711", "--as", "anna").returncode == 0
    assert "UTC, anna\n      waits for the bank\n      ticket 4711\n" in dlq("groups", "1").stdout
    assert audit(dlq) == [
        ("anna", action)
        for action in ("resolved", "resolved", "muted", "snoozed", "open", "category", "note")
    ]


def test_merge_and_split(dlq: Terminal) -> None:
    key = dlq.data("groups", "2")["group"]["key"]
    told = dlq("merge", "1", "2")
    assert told.returncode == 0
    assert f"undo: dlq split {key[:12]}" in told.stdout
    assert dlq.data("groups", "1")["merged"] == [key]
    whole = [one["id"] for one in dlq.data("letters", "--group", "1")["letters"]]
    assert [one["id"] for one in dlq.data("letters", "--group", "2")["letters"]] == whole
    facets = [dlq.data("letters", "--facets", "--group", group) for group in ("1", "2", key)]
    assert facets[0] == facets[1] == facets[2]
    assert dlq("merge", "1", "1").returncode == 2
    assert dlq("split", key[:12]).returncode == 0
    assert dlq.data("groups", "1")["merged"] == []
    assert dlq("split", key[:12]).returncode == 2


def test_discard_says_first_and_can_be_undone(dlq: Terminal) -> None:
    told = dlq("discard", "--group", "1")
    assert told.returncode == 0
    assert told.stdout.startswith("would discard 5 letters of 1 group, 290 bytes, such as\n")
    assert told.stdout.endswith("nothing was changed; the same with --yes does it\n")
    assert audit(dlq) == []
    told = dlq("discard", "--group", "1", "--yes", "--why", "called them", "--as", "anna")
    assert (told.returncode, told.stdout.split("\n")[0]) == (0, "discarded 5 letters")
    assert audit(dlq) == [("anna", "discarded")]
    assert dlq.data("letters", "--group", "1")["letters"] == []
    last = dlq.data("show", "1")["timeline"][-1]
    assert (last["what"], last["who"], last["why"]) == ("discarded", "anna", "called them")
    again = dlq("discard", "1", "--yes")
    assert again.stdout.startswith(
        "no letters like that; nothing to discard\nnamed, but not here or not open: 1 letter"
    )
    assert again.returncode == 1
    assert dlq("discard", "--undo", "1", "2").stdout.startswith("would take back 2 letters")
    done = dlq.data("discard", "--undo", "--group", "1", "--yes", "--limit", "4")
    assert (done["selected"], done["changed"], done["done"]) == (4, 4, True)
    assert dlq("discard", "--undo", "--group", "1", "--yes").stdout == "took back 1 letter\n"
    assert len(dlq.data("letters", "--group", "1")["letters"]) == 5
    some = dlq("discard", "6", *map(str, range(1_000, 1_300)), "6", "--yes")
    assert (some.returncode, some.stdout.split("\n")[0]) == (1, "discarded 1 letter")
    assert "named, but not here or not open: 300 letters" in some.stdout
    where = dlq.data("discard", "--where", ".body.order? > 3", "--yes")
    assert (where["changed"], where["groups"]) == (2, [1])


def test_the_last_discard_is_taken_back_without_saying_which(
    dlq: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discard_command, "CHANGED_AT_ONCE", 2)
    told = dlq("discard", "--undo", "--as", "anna")
    assert (told.returncode, told.stderr) == (2, "dlq: anna has discarded nothing here\n")
    dlq("discard", "8", "--yes", "--as", "anna")
    dlq("discard", "--group", "1", "--yes", "--as", "anna", "--why", "called \x1b[2J them")
    dlq("discard", "6", "7", "--yes", "--as", "ben")
    assert [action for _, action in audit(dlq)] == ["discarded"] * 5, "three of them one discard"
    told = dlq("discard", "--undo", "--as", "anna")
    first, second, *_ = told.stdout.split("\n")
    assert first.startswith("the last discard of anna, 20")
    assert first.endswith(" UTC, of 5 letters: called \\x1b[2J them")
    assert second.startswith("would take back 5 letters of 1 group")
    assert dlq("discard", "--undo", "3", "--yes", "--as", "carl").returncode == 0
    told = dlq.data("discard", "--undo", "--as", "anna", "--yes", "--why", "sorry")
    assert (told["discard"]["letters"], told["selected"], told["changed"]) == (5, 4, 4)
    assert audit(dlq)[5:] == [("carl", "taken back"), ("anna", "taken back"), ("anna", "taken back")]
    assert [one["id"] for one in dlq.data("letters", "--state", "discarded")["letters"]] == [8, 7, 6]
    told = dlq("discard", "--undo", "--as", "anna", "--yes")
    assert "none of them is left to take back" in told.stdout, "not the one before it, which nobody named"
    assert told.returncode == 0
    assert dlq("discard", "--undo", "--yes", "--as", "ben").stdout.endswith("took back 2 letters\n")


def test_out_into_a_file_and_in_again(dlq: Terminal, request: pytest.FixtureRequest) -> None:
    before = Counted.asked
    assert dlq("export", "a.dlq", "--state", "any").stdout == "9 letters in a.dlq (an archive)\n"
    assert (Counted.asked > before) == ("service" in request.node.name), "one owner of the file"
    reader = ArchiveReader(dlq.directory / "a.dlq")
    assert [one.message.body for one in reader.letters()][6] == b"\x00\x01\xff\xfe binary"
    told = dlq.data("import", "a.dlq", "--to-store", "--as", "anna")
    assert (told["new"], told["copies"], told["again"]) == (0, 0, 9)
    assert audit(dlq) == [("anna", "imported")]
    lines = dlq("export", "--where", ".body.order? > 3", "--group", "1").stdout.splitlines()
    assert [json.loads(one)["body"]["order"] for one in lines] == [4, 5]
    lines = dlq("export", "--older-than", "2d", "--limit", "2").stdout.splitlines()
    assert len(lines) == 2
    told = dlq.data("import", "a.dlq", "--to-store", "--store", "sqlite:///new.db", "--letters", "3,7-")
    assert (told["new"], told["again"]) == (4, 0)
    assert dlq.data("letters", "--store", "sqlite:///new.db", "--facets")["total"] == 4


def test_every_command_that_selects_letters_takes_the_same_options() -> None:
    found: Any = typer.main.get_command(whole_app())

    def options(name: str) -> dict[str, str]:
        return {one.opts[0]: getattr(one, "help", "") for one in found.commands[name].params}

    letters, discard, export = map(options, ("letters", "discard", "export"))
    replay = {
        one.opts[0]: getattr(one, "help", "") for one in found.commands["replay"].commands["start"].params
    }
    filters = {
        "--queue", "--origin", "--group", "--error", "--cause", "--since", "--until", "--older-than",
        "--header", "--message-id", "--id", "--text", "--where",
    }  # fmt: skip
    for one in filters:
        assert letters[one] == discard[one] == export[one] == replay[one], one


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["discard", "--yes"], 2, "expected letters: their numbers, or filters"),
        (["discard", "nonsense", "--yes"], 2, "no letter is called so"),
        (["discard", "--error", "", "--yes"], 2, "--error: expected some text, got nothing"),
        (["discard", "--text", " ", "--yes"], 2, "--text: expected some text, got nothing"),
        (["discard", "--group", "999", "--yes"], 2, "none is called so"),
        (["show", "999"], 2, "no letter is called so"),
        (["show", "1", "--raw", "--json"], 2, "--raw or --json"),
        (["resolve", "1", "999"], 2, "none is called so"),
        (["snooze", "1", "--until", "2001-01-01"], 2, "in the future"),
        (["groups", "1", "--why", "1"], 2, "got both"),
        (["groups", "--state", "closed"], 2, "expected one of open, resolved, muted, snoozed, any"),
        (["letters", "--state", "gone"], 2, "expected one of open, discarded, claimed, replayed, any"),
        (["letters", "--sort", "size"], 2, "newest, oldest"),
        (["letters", "--header", "tenant"], 2, "name=value"),
        (["letters", "--where", "]["], 2, "jq program"),
        (["letters", "--since", "monday"], 2, "--since: expected a span"),
        (["letters", "--until", "1h", "--older-than", "1h"], 2, "got both"),
        (["letters", "--facets", "--where", "]["], 2, "jq program"),
        (["note", "1", " "], 2, "empty"),
        (["category", "1", "silly"], 2, "expected one of transient"),
        (["groups", "--at", "http://127.0.0.1:1"], 3, "nobody answers at"),
        (["groups", "--at", "x", "--store", "sqlite:///y.db"], 2, "--at or --store"),
        (["groups", "--store", "sqlite:///nothere.db"], 3, "no letters are stored yet"),
        (["groups", "--store", "none"], 2, "store.url = none"),
    ],
)
def test_what_cannot_be_is_one_line_and_a_code(
    dlq: Terminal, arguments: list[str], code: int, said: str
) -> None:
    told = dlq(*arguments)
    assert (told.returncode, told.stdout) == (code, "")
    assert said in told.stderr
    assert told.stderr.startswith("dlq: ")
    assert told.stderr.count("\n") == 1
    assert audit(dlq) == [], "a typo in one name changes none"


def test_a_database_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "theirs.db") as connection:
        connection.execute("CREATE TABLE customers (name)")
    before = (tmp_path / "theirs.db").read_bytes()
    dlq = Terminal(tmp_path, {"DLQ_STORE": "sqlite:///theirs.db", "HOME": str(tmp_path)}, tmp_path / "x")
    asyncio.run(make(tmp_path / "ours.db", int(time.time() * 1000)))
    assert dlq("export", "a.dlq", "--store", "sqlite:///ours.db").returncode == 0
    for arguments in (
        ["groups"], ["letters"], ["show", "1"], ["discard", "1", "--yes"], ["export"], ["note", "1", "x"],
        ["import", "a.dlq", "--to-store"],
    ):  # fmt: skip
        told = dlq(*arguments)
        assert (told.returncode, told.stdout) == (3, ""), arguments
        assert "theirs.db is a database, but none of ours" in told.stderr
    assert (tmp_path / "theirs.db").read_bytes() == before
    assert not (tmp_path / "theirs.db-wal").exists()


def test_a_service_with_another_store_is_not_asked(tmp_path: Path) -> None:
    now_ms = int(time.time() * 1000)
    mine, other = (asyncio.run(make(tmp_path / name, now_ms)) for name in ("mine.db", "other.db"))
    with answering(other) as at:
        (tmp_path / "deadletter.toml").write_text(f'[serve]\nlisten = "{at.removeprefix("http://")}"\n')
        dlq = Terminal(tmp_path, {"DLQ_STORE": mine, "HOME": str(tmp_path)}, tmp_path / "mine.db")
        assert dlq("discard", "1", "--yes").returncode == 0
        assert [action for _, action in audit(dlq)] == ["discarded"]
        dlq.file = tmp_path / "other.db"
        assert audit(dlq) == []
        assert dlq("discard", "1", "--yes", "--at", at).returncode == 0, "but where it is named it is meant"
        assert [action for _, action in audit(dlq)] == ["discarded"]


def test_a_token_is_brought_along_and_without_one_the_store_answers(tmp_path: Path) -> None:
    url = asyncio.run(make(tmp_path / "letters.db", int(time.time() * 1000)))
    with answering(url, token="s3cret") as at:
        home = {"DLQ_STORE": url, "HOME": str(tmp_path)}
        with_token = Terminal(tmp_path, {**home, "DLQ_API_TOKEN": "s3cret"}, tmp_path / "letters.db")
        assert with_token("groups", "--at", at).returncode == 0
        without = Terminal(tmp_path, home, tmp_path / "letters.db")
        told = without("groups", "--at", at)
        assert (told.returncode, told.stdout) == (1, "")
        assert "DLQ_API_TOKEN" in told.stderr
        (tmp_path / "deadletter.toml").write_text(f'[serve]\nlisten = "{at.removeprefix("http://")}"\n')
        assert without("groups").returncode == 0


def test_a_shell_is_offered_what_is_there(dlq: Terminal) -> None:
    def offered(words: str) -> list[str]:
        environment = {
            **dlq.environment,
            "_DLQ_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        }
        told = command(environment=environment, directory=dlq.directory)
        assert told.stderr == ""
        return told.stdout.split()

    assert set(offered("dlq resolve ")) == {"1", "2", "3", "4"}
    assert "7" in offered("dlq show ")
    assert offered("dlq show 00000000000000000000000000000015") == ["00000000000000000000000000000015"]
    assert offered("dlq letters --queue st") == ["stock.dlq"]
    assert set(offered("dlq letters --origin ")) == {"orders", "mail", "stock"}, (
        "what acts on a terminal is not"
    )
    assert offered("dlq letters --cause retries-e") == ["retries-exhausted"]


EVIL = """\\"; touch owned; ws=(\\"$(touch owned)`touch owned`' ; touch owned ; '"""


def test_nothing_that_a_shell_would_act_on_is_offered(dlq: Terminal) -> None:
    with sqlite3.connect(dlq.file) as connection:
        connection.execute("UPDATE deadletter_groups SET title = ?", (EVIL,))
        for number, name in enumerate(("x;touch owned", "*", "$(touch owned)", "-rf", "a b", "~")):
            connection.execute("UPDATE deadletter_names SET name = ? WHERE id = ?", (name, number + 1))
    for shell in ("bash", "zsh", "fish"):
        for words in ("dlq resolve ", "dlq letters --queue ", "dlq letters --origin "):
            environment = {
                **dlq.environment, "_DLQ_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": words,
                "_TYPER_COMPLETE_FISH_ACTION": "get-args", "COMP_WORDS": words,
                "COMP_CWORD": str(len(words.split(" ")) - 1),
            }  # fmt: skip
            told = command(environment=environment, directory=dlq.directory).stdout
            said = told.removeprefix("_arguments '*: :((").removesuffix("))'\n")
            assert not set(said) & set(";$`\\'()*~<>&|"), (shell, words, said)


def test_in_a_real_bash(dlq: Terminal) -> None:
    """As `dlq --install-completion` sets it up; whatever is at hand answers."""

    def offered(*words: str) -> list[str]:
        quoted = " ".join(f"'{word}'" for word in words)
        script = (
            'eval "$(dlq --show-completion bash)"\n'
            f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}\n"
            '_dlq_completion dlq; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        environment = {
            **dlq.environment,
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "SHELL": "/bin/bash",
            "DLQ_URL": "amqp://127.0.0.1:1",
            "DLQ_API": "http://127.0.0.1:1",
        }
        done = subprocess.run(
            ["/bin/bash", "-c", script], env=environment, cwd=dlq.directory, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout.split()

    assert "9" in offered("dlq", "show", "")
    assert set(offered("dlq", "resolve", "")) == {"1", "2", "3", "4"}
    assert offered("dlq", "export", "--queue", "st") == ["stock.dlq"]
    assert offered("dlq", "peek", "") == [], "no broker is there, and nobody hears of it"


def test_other_shells_hear_the_same(dlq: Terminal) -> None:
    for shell, arguments in (("zsh", "dlq resolve "), ("fish", "dlq resolve ")):
        environment = {
            **dlq.environment,
            "_DLQ_COMPLETE": f"complete_{shell}",
            "_TYPER_COMPLETE_ARGS": arguments,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        }
        told = command(environment=environment, directory=dlq.directory)
        assert told.stderr == ""
        assert "PaymentTimeout  no answer from  host " in told.stdout, "with what they are"


def test_a_store_that_is_a_file_is_looked_at_without_what_takes_long_to_load(dlq: Terminal) -> None:
    code = (
        "import sys; sys.argv = ['dlq']\n"
        "from deadletter.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sys.modules)"
    )
    for words, found in (("dlq show ", "9"), ("dlq letters --origin ", "orders")):
        environment = {
            **dlq.environment, "_DLQ_COMPLETE": "complete_bash", "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd=dlq.directory, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        *offered, modules = done.stdout.splitlines()
        assert found in offered
        assert not {"sqlalchemy", "httpx", "fastapi", "alembic", "rich"} & set(modules.split())


def test_a_shell_hears_nothing_of_an_error(tmp_path: Path) -> None:
    for environment in (
        {"DLQ_STORE": "sqlite:///nothere.db"},
        {"DLQ_STORE": "nonsense"},
        {"DLQ_CONFIG": "nothere.toml"},
    ):
        told = command(
            environment={
                **environment,
                "HOME": str(tmp_path),
                "_DLQ_COMPLETE": "complete_bash",
                "COMP_WORDS": "dlq show ",
                "COMP_CWORD": "2",
            },
            directory=tmp_path,
        )
        assert (told.stdout.strip(), told.stderr) == ("", "")
    assert not (tmp_path / "nothere.db").exists()
    assert completing.causes("handler") == ["handler"]


def test_changed_rules_are_shown_first_and_then_applied(tmp_path: Path) -> None:
    """On the store itself; a service with other rules is not made to follow a file that it has not read."""
    path = tmp_path / "letters.db"
    url = asyncio.run(make(path, int(time.time() * 1000)))
    file = tmp_path / "deadletter.toml"
    file.write_text("[[desk.groups]]\ngroup = 'one'\ncategory = 'data'\n")
    dlq = Terminal(tmp_path, {"DLQ_STORE": url, "HOME": str(tmp_path)}, path)
    before = dlq.data("groups", "--state", "any")["groups"]
    seen = dlq("groups", "--regroup")
    assert seen.returncode == 0, seen.stderr
    assert f"{len(before)} groups → " in seen.stdout
    assert "nothing was changed" in seen.stdout
    assert dlq.data("groups", "--regroup")["stage"] == "behind"
    with answering(url) as at:
        refused = dlq("groups", "--regroup", "--yes", "--at", at)
        assert refused.returncode == 2
        assert "got one with others" in refused.stderr
    assert dlq.data("groups", "--state", "any")["groups"] == before
    done = dlq("groups", "--regroup", "--yes", "--as", "anna")
    assert done.returncode == 0, done.stderr
    assert f"{len(before)} groups → " in done.stdout
    after = dlq.data("groups", "--state", "any")["groups"]
    assert not {group["key"] for group in after} & {group["key"] for group in before}
    assert {group["origin"] for group in after} == {group["origin"] for group in before}
    assert sum(group["total"] for group in after) == sum(group["total"] for group in before)
    assert "category data, by a rule: " in dlq("groups", "--why", str(after[0]["id"])).stdout
    again = dlq("groups", "--regroup", "--yes")
    assert "are grouped by these rules, in force since" in again.stdout
    with sqlite3.connect(path) as connection:
        told = connection.execute("SELECT DISTINCT who FROM deadletter_audit WHERE action LIKE 'regroup%'")
        assert told.fetchall() == [("anna",)]


def test_a_service_applies_its_rules(tmp_path: Path) -> None:
    url = asyncio.run(make(tmp_path / "letters.db", int(time.time() * 1000)))
    dlq = Terminal(tmp_path, {"DLQ_STORE": url, "HOME": str(tmp_path)}, tmp_path / "letters.db")
    with answering(url) as at:
        before = dlq.data("groups", "--state", "any", "--at", at)["groups"]
        assert dlq.data("groups", "--regroup", "--at", at)["preview"]["before"] == len(before)
        told = dlq.data("groups", "--regroup", "--yes", "--at", at)
        assert (told["done"], told["stage"], told["moved"]) == (True, "done", 0)
        assert dlq.data("groups", "--state", "any", "--at", at)["groups"] == before


def test_what_regroup_does_not_go_with(tmp_path: Path) -> None:
    dlq = Terminal(tmp_path, {"HOME": str(tmp_path)}, tmp_path / "letters.db")
    for some in (["--yes"], ["12", "--regroup"], ["--regroup", "--preview"], ["--regroup", "--why", "1"]):
        assert dlq("groups", *some).returncode == 2
