"""Commands that are typed plainly are run as typer would run them; all others are left to it.

About `cli.plain_words`, `cli.quick_options`, `cli.main`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.main import get_command

from deadletter.cli import (
    check_command,
    doctor_command,
    move_command,
    peek_command,
    plain_words,
    sweep_command,
)
from deadletter.cli.main import whole_app
from deadletter.cli.terminal.output import Exit

PLAIN = [
    "move a b",
    "move a b --limit 1 --rate 5/s --for 1h --keep-deaths --prefetch 65535 --lift-limit --dry-run --json",
    "move --url amqp://u:p@h/v a --api=http://h:1 b --config some/file.toml",
    "move 'a b' ' b' --url ' x '",
    "move a b --url=amqp://h/v?heartbeat=5",
    "check",
    "check --dlq dlq.* --target=dead.* --max-retries 0 --count-by header:x-y --target-type classic --create",
    "check --no-create --prefetch 1 --lift-limit --dry-run --config f --url u --api a --json",
    "peek ü",
    "peek q --limit 1000 --body-bytes 0 --lift-limit --config /f --url u --api a --json",
    "peek q --limit 007",
    "doctor",
    "doctor --definitions d.json --vhost v --broker-version 4.3 --ignore a,b --ignore c --at-least error",
    "doctor --format sarif --rules --config f --url u --api a --json",
    "sweep",
    "sweep a b --at 127.0.0.1:1 c --json",
]
LEFT_TO_TYPER = [
    "move a b --json --json",
    "move a b --limit 1 --limit 2",
    "move a b --limit +1",
    "move a b --rate -5",
    "move a -- -b",
    "move a ''",
    "check --dlq ''",
    "check --create --no-create",
    "peek q --limit ' 1'",
    "sweep -- a",
]
"""Right, and rare."""
REFUSED = [
    "move a",
    "move a b c",
    "move a b --limit 0",
    "move a b --limit x",
    "move a b --limit 1_0_",
    "move a b --prefetch 65536",
    "move a b --json=yes",
    "move a b --url",
    "move a b --nothing",
    "move a b -x",
    "check a",
    "check --max-retries -1",
    "peek",
    "peek q --limit 1001",
    "peek q --body-bytes 16000001",
    "doctor a",
    "sweep --url u",
]
NO_COMMAND = ["", "--help", "--version", "queues", "-h move a b"]
HELP = ["move --help", "peek q -h", "sweep --help"]

Runs = list[tuple[str, object, Mapping[str, object]]]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """What commands were run with, instead of their work."""
    found: Runs = []
    for module in (move_command, check_command, peek_command, doctor_command, sweep_command):

        def run(*wish: object, name: str = module.__name__, **said: object) -> Exit:
            found.append((name, wish, said))
            return Exit.LEFT

        monkeypatch.setattr(module, "run", run)
    monkeypatch.setenv("DLQ_API_TOKEN", "t0ken")
    return found


def by_typer(line: str) -> int:
    with pytest.raises(SystemExit) as end:
        whole_app()(shlex.split(line), standalone_mode=True)
    assert isinstance(end.value.code, int)
    return end.value.code


@pytest.mark.parametrize("line", PLAIN)
def test_read_plainly_or_by_typer_it_is_the_same(line: str, runs: Runs) -> None:
    plain = plain_words.read(shlex.split(line), {})
    assert plain is not None
    assert plain() == by_typer(line) == Exit.LEFT
    ours, theirs = runs
    assert ours == theirs


@pytest.mark.parametrize("line", LEFT_TO_TYPER)
def test_what_is_not_plain_typer_reads(line: str, runs: Runs) -> None:
    assert plain_words.read(shlex.split(line), {}) is None
    assert by_typer(line) == Exit.LEFT
    assert len(runs) == 1


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_wrong_typer_refuses(line: str, runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert plain_words.read(shlex.split(line), {}) is None
    assert by_typer(line) == Exit.USAGE
    assert "Error" in capsys.readouterr().err
    assert not runs


@pytest.mark.parametrize("line", [*NO_COMMAND, *HELP])
def test_what_is_none_of_ours(line: str) -> None:
    assert plain_words.read(shlex.split(line), {}) is None


def test_a_shell_that_completes_is_not_answered_here() -> None:
    assert plain_words.read(["peek", "q"], {"_DLQ_COMPLETE": "complete_bash"}) is None


@pytest.mark.parametrize("name", plain_words.COMMANDS)
def test_every_option_is_known_to_both(name: str) -> None:
    words = plain_words.COMMANDS[name]
    command = get_command(whole_app()).commands[name]  # type: ignore[attr-defined]  # a group has them
    options = {
        option
        for one in command.params
        if one.param_type_name == "option" and one.name != "help"
        for option in (*one.opts, *one.secondary_opts)
    }
    assert options == {*words.texts, *words.read, *words.lists, *words.flags}
    arguments = [one.name for one in command.params if one.param_type_name == "argument"]
    assert arguments == ([words.many] if words.many else list(words.arguments))
    assert words.defaults.keys() <= words.names()


def test_the_entry_ends_as_the_command_does(tmp_path: Path) -> None:
    """A plain command through the door: its exit code, its one line, and no typer."""
    code = (
        "import sys\nfrom deadletter.cli.main import main\n"
        "sys.argv = ['dlq', 'move', 'a', 'a']\n"
        "try: main()\n"
        "finally: print(sorted({'typer', 'pydantic'} & set(sys.modules)))\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DLQ_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert (done.returncode, done.stdout) == (Exit.USAGE, "[]\n")
    assert done.stderr == "dlq: source and target are the same queue, 'a'; nothing to move\n"


def test_who_interrupts_or_reads_no_more_gets_no_traceback(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom deadletter.cli import main, plain_words\n"
        "def run(**_): raise {error}\n"
        "plain_words.COMMANDS = {{'sweep': plain_words.PlainWords(run=run, many='dlqs')}}\n"
        "sys.argv = ['dlq', 'sweep']\nmain.main()\n"
    )
    for error, code in (("KeyboardInterrupt", 130), ("BrokenPipeError", Exit.LEFT)):
        done = subprocess.run(
            [sys.executable, "-c", script.format(error=error)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
