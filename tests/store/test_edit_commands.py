"""`dlq edit` and `dlq recipes` as people type them, on a store of SQLite.

About `cli.replays.edit_command`, `cli.replays.recipes_command`, `cli.replays.edit_options`,
`cli.replays.edit_trial`, `cli.replays.in_editor`, `core.replaying.hand_edit`.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tests.commanding import command
from tests.store.grounds import SqliteGround
from tests.store.parked import letters_at, parked, stored

from deadletter.core.letter import names
from deadletter.core.letter.message import RawMessage
from deadletter.core.replaying.hand_edit import BELOW, file_of, read_file
from deadletter.core.replaying.letter_edit import editable
from deadletter.errors import EditRefused
from deadletter.store.replays.draft_table import DraftStore

BODIES = (
    b'{"amount": "3", "id": 9007199254740993}',
    b'{"amount": "4"}',
    b'{"amount": "x"}',
    b'{"amount": 5}',
)


class Desk:
    """A store with some letters, and the commands on it."""

    def __init__(self, ground: SqliteGround, home: Path) -> None:
        self.ground = ground
        self.environment = {"HOME": str(home), "DLQ_STORE": ground.url, "PATH": os.environ["PATH"]}
        self.home = home
        asyncio.run(self._fill())

    async def _fill(self) -> None:
        async with letters_at(self.ground) as store:
            await store.ingest(stored(*(parked(n, body=body) for n, body in enumerate(BODIES, 1))))

    def dlq(self, *arguments: str) -> CompletedProcess[str]:
        return command(*arguments, "--as", "anna", environment=self.environment, directory=self.home)

    def json(self, *arguments: str) -> object:
        return json.loads(self.dlq(*arguments, "--json").stdout)

    def draft(self, number: int) -> RawMessage | None:
        async def read() -> RawMessage | None:
            async with letters_at(self.ground) as store:
                found = (await DraftStore(store).of([number])).get(number)
                return None if found is None else found.message

        return asyncio.run(read())


@pytest.fixture
def desk(sqlite_ground: SqliteGround, tmp_path: Path) -> Desk:
    return Desk(sqlite_ground, tmp_path)


def test_what_would_change_is_said_first_and_kept_with_yes(desk: Desk) -> None:
    tried = desk.dlq("edit", "1", "--set", ".body.amount=3")
    assert tried.returncode == 0, tried.stderr
    assert tried.stdout.splitlines()[:2] == ['- .body.amount: "3"', "+ .body.amount: 3"]
    assert desk.draft(1) is None
    assert desk.json("edit", "1", "--jq", ".body.amount |= tonumber", "--yes") == {
        "letter": 1, "changed": True, "saved": True, "file": None,
        "differences": [{"path": ".body.amount", "change": "changed", "before": '"3"', "after": "3"}],
    }  # fmt: skip
    draft = desk.draft(1)
    assert draft is not None
    assert draft.body == b'{"amount": 3, "id": 9007199254740993}'
    assert names.EDITED.encode() in draft.properties
    assert "nothing was changed" in desk.dlq("edit", "1", "--set", ".body.amount=3", "--yes").stdout
    assert desk.json("edit", "1", "--drop") == {"letter": 1, "dropped": True}
    assert desk.draft(1) is None


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("1",), 2, "no terminal"),
        (("1", "--jq", ".", "--set", ".body=1"), 2, "got several"),
        (("1", "--set", ".body.amount=three"), 2, "a path and a JSON value"),
        (("1", "--set", "amount=3"), 2, "a path and a JSON value"),
        (("1", "--jq", ".body.["), 2, "syntax error"),
        (("1", "--jq", ".body.id += 1"), 1, "rounded"),
        (("1", "--set", '.headers["deadletter-id"]="x"'), 1, "Deadletter's own"),
        (("3", "--jq", ".body.amount |= tonumber"), 1, "cannot be parsed as a number"),
        (("99", "--jq", "."), 2, "no letter is called so"),
        (("1", "--recipe", "none"), 2, "no recipe is called so"),
        (("1", "--file", "missing"), 2, "expected a text file"),
    ],
)
def test_what_cannot_be_done_changes_nothing(
    desk: Desk, arguments: tuple[str, ...], code: int, problem: str
) -> None:
    done = desk.dlq("edit", *arguments, "--yes")
    assert (done.returncode, done.stdout) == (code, "")
    assert problem in done.stderr
    assert desk.draft(1) is None


def test_a_schema_of_the_settings_is_held(desk: Desk) -> None:
    (desk.home / "s.json").write_text('{"properties": {"amount": {"type": "integer", "minimum": 4}}}')
    (desk.home / "deadletter.toml").write_text('[[desk.schemas]]\nqueue = "orders"\nfile = "s.json"\n')
    done = desk.dlq("edit", "1", "--jq", ".body.amount |= tonumber", "--yes")
    assert (done.returncode, desk.draft(1)) == (1, None)
    assert ".body.amount: 3 is less than the minimum of 4" in done.stderr
    assert desk.dlq("edit", "2", "--jq", ".body.amount |= tonumber", "--yes").returncode == 0


def test_from_a_repair_to_a_recipe_to_the_next_letter(desk: Desk) -> None:
    assert desk.dlq("recipes", "propose", "1").returncode == 2, "it was not repaired yet"
    desk.dlq("edit", "1", "--set", ".body.amount=3", "--yes")
    told = desk.dlq("recipes", "propose", "1", "--save", "amounts").stdout
    assert "a text becomes the number it says" in told
    seen = "4 letters of its group: 1 would change, 2 stay as they are, 1 cannot be changed"
    assert seen in told, "as they would be sent: the first one is repaired"
    assert "letter 3:" in told
    assert desk.dlq("edit", "2", "--recipe", "amounts", "--yes").returncode == 0
    draft = desk.draft(2)
    assert draft is not None
    assert draft.body == b'{"amount": 4}'
    assert b"recipe amounts" in draft.properties
    assert "tonumber" in command("recipes", "show", "amounts", environment=desk.environment).stdout
    assert "already" in desk.dlq("recipes", "save", "amounts", "--jq", ".").stderr
    assert desk.dlq("recipes", "save", "amounts", "--jq", ".", "--replace").returncode == 0
    assert desk.dlq("recipes", "save", "bad", "--jq", ".[").returncode == 2
    assert desk.dlq("recipes", "delete", "amounts").returncode == 0
    assert "no recipes" in command("recipes", "list", environment=desk.environment).stdout


# -- the editor --------------------------------------------------------------------------------------------
def in_terminal(desk: Desk, editor: str, answer: str) -> tuple[int, str]:
    """`dlq edit 1` where a person sits, with this Python program as the editor."""
    script = desk.home / "editor.py"
    script.write_text(
        f"import pathlib, sys\nfile = pathlib.Path(sys.argv[1])\ntext = file.read_text()\n{editor}\n"
    )
    child, terminal = pty.fork()
    if child == 0:
        os.environ.clear()
        os.environ.update(desk.environment, EDITOR=f"{sys.executable} {script}", TMPDIR=str(desk.home))
        os.execv(sys.executable, [sys.executable, "-m", "deadletter.cli.main", "edit", "1", "--as", "anna"])
    os.write(terminal, answer.encode())
    said = b""
    while True:
        try:
            came = os.read(terminal, 4096)
        except OSError:  # a terminal whose other side is gone says so in this way
            break
        if not came:
            break
        said += came
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said.decode()


REPAIR = """file.write_text(text.replace('"amount": "3"', '"amount": 3'))"""


def left(desk: Desk) -> list[Path]:
    return list(desk.home.glob("dlq-edit-1-*"))


def test_a_person_edits_sees_the_difference_and_says_yes(desk: Desk) -> None:
    code, said = in_terminal(desk, REPAIR, "y\n")
    assert code == 0, said
    assert "+ .body.amount: 3" in said
    draft = desk.draft(1)
    assert draft is not None
    assert draft.body == b'{"amount": 3, "id": 9007199254740993}'
    assert left(desk) == []


@pytest.mark.parametrize(
    ("editor", "answer", "code", "problem"),
    [
        (REPAIR, "n\n", 0, "nothing was saved"),
        ("file.write_text(text + 'precious'); sys.exit(3)", "", 1, "ended with 3"),
        ("file.write_text('')", "", 1, "is empty"),
        ("file.write_text(text.replace('-----', 'gone'))", "", 1, "it is gone"),
        ("file.write_text(text.replace('\"amount\": \"3\"', 'oops'))", "", 1, "none any more"),
    ],
)
def test_what_a_person_wrote_is_never_lost(
    desk: Desk, editor: str, answer: str, code: int, problem: str
) -> None:
    done, said = in_terminal(desk, editor, answer)
    assert (done, desk.draft(1)) == (code, None), said
    (file,) = left(desk)
    assert problem in said.replace("\r\n", "\n")
    assert str(file) in said
    if editor == REPAIR:
        assert desk.dlq("edit", "1", "--file", str(file), "--yes").returncode == 0
        assert desk.draft(1) is not None


def test_nothing_changed_leaves_nothing_behind(desk: Desk) -> None:
    code, said = in_terminal(desk, "", "")
    assert (code, desk.draft(1), left(desk)) == (0, None, []), said
    assert "nothing was changed" in said


@pytest.mark.parametrize("body", [b"{}\n", b"text", b"two\nlines\r\n", b"", b"\xff", b'{"a":1,"a":2}'])
def test_the_file_as_it_is_changes_nothing(body: bytes) -> None:
    shown = editable(parked(1, body=body, headers={"h": 1, "b": b"\xff"}))
    text = file_of(shown, "letter 1")
    assert not read_file(shown, text, by="anna").changed
    if body != b"\xff":
        assert not read_file(shown, text.removesuffix("\n"), by="anna").changed or body.endswith(b"\n")
    with pytest.raises(EditRefused, match="Deadletter's own"):
        read_file(shown, text.replace('"h": 1', '"deadletter-id": "x"'), by="anna")
    assert BELOW in text
    assert "deadletter-id" not in text
