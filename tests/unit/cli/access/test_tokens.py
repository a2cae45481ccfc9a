"""Tokens made, the machine's own key, and when `dlq serve` does not open its door.

About `cli.access.token_command`, `cli.access.token_options`, `cli.access.service_door`, `cli.terminal.users`,
`operations.home_key`, `operations.service_address`, `core.access.token_hash`.
"""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest
from tests.commanding import command

from deadletter import config
from deadletter.cli.access.service_door import ServiceAccess, check_door
from deadletter.config.settings import Settings
from deadletter.core.access.rights import Role
from deadletter.core.access.token_hash import hashed
from deadletter.errors import UsageError
from deadletter.operations.home_key import home_token, key_file, made_key, read_key, session_key
from deadletter.operations.service_address import meets_tls, own_token, token_headers

KEY = bytes(range(32))


def settings(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "deadletter.toml"
    file.write_text(text)
    return config.load(config=file)


# -- dlq token -------------------------------------------------------------------------------------------
def test_a_token_is_shown_once_and_the_file_has_its_hash(tmp_path: Path) -> None:
    arguments = ("token", "new", 'ol"ga', "--role", "operator", "--queue", "orders*", "--vhost", "shop")
    told = command(*arguments, environment={"HOME": str(tmp_path)})
    assert told.returncode == 0, told.stderr
    (token,) = [line.strip() for line in told.stdout.splitlines() if line.startswith("  dlq_")]
    assert len(token) > 40
    table = told.stdout[told.stdout.index("[[desk.tokens]]") :]
    assert token not in table
    (made,) = settings(tmp_path, table).desk.tokens
    assert (made.name, made.role, made.hash) == ('ol"ga', Role.OPERATOR, hashed(token))
    assert (made.vhosts, made.queues, made.sees_masked) == (("shop",), ("orders*",), False)
    again = command(*arguments, environment={"HOME": str(tmp_path)})
    assert token not in again.stdout, "each is its own"
    as_json = json.loads(command(*arguments, "--json", environment={"HOME": str(tmp_path)}).stdout)
    assert as_json["hash"] == hashed(as_json["token"])
    assert tomllib.loads(table)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 300])
def test_a_name_is_a_name(tmp_path: Path, name: str) -> None:
    assert command("token", "new", name, environment={"HOME": str(tmp_path)}).returncode == 2


def test_config_show_has_no_hash(tmp_path: Path) -> None:
    hash_ = hashed("x")
    settings(tmp_path, f'[[desk.tokens]]\nname = "a"\nrole = "admin"\nhash = "{hash_}"\n')
    told = command("config", "show", "--config", str(tmp_path / "deadletter.toml"), environment={"HOME": "/"})
    assert told.returncode == 0
    assert "desk.tokens" in told.stdout
    assert hash_ not in told.stdout


@pytest.mark.parametrize(
    "table",
    [
        'role = "admin"\nhash = "sha256:00"',
        f'role = "root"\nhash = "{hashed("x")}"',
        f'role = "admin"\nhash = "{hashed("x")}"\nqueues = []',
        'role = "admin"\nhash = "dlq_the-token-itself"',
    ],
)
def test_what_is_no_token_is_refused(tmp_path: Path, table: str) -> None:
    with pytest.raises(UsageError, match=r"desk\.tokens") as error:
        settings(tmp_path, f'[[desk.tokens]]\nname = "a"\n{table}\n')
    assert "the-token-itself" not in str(error.value)


# -- the machine's own key -------------------------------------------------------------------------------
def test_the_key_is_its_owners_alone(tmp_path: Path) -> None:
    file = key_file({}, tmp_path)
    assert read_key(file) is None
    key = made_key(file)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert made_key(file) == read_key(file) == key
    assert [one.name for one in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("how", ["open", "short", "no hex", "link", "folder"])
def test_a_key_that_others_could_know_is_none(tmp_path: Path, how: str) -> None:
    file = tmp_path / "desk.key"
    other = tmp_path / "other"
    other.write_text(f"{KEY.hex()}\n")
    other.chmod(0o600)
    match how:
        case "open":
            other.chmod(0o640)
            other.rename(file)
        case "link":
            file.symlink_to(other)
        case "folder":
            file.mkdir()
        case _:
            file.write_text("abc" if how == "short" else "x" * 64)
            file.chmod(0o600)
    assert read_key(file) is None
    if how != "folder":
        assert made_key(file) != KEY
        assert read_key(file) is not None


def test_where_the_key_is(tmp_path: Path) -> None:
    assert key_file({"STATE_DIRECTORY": "/var/lib/a:/b"}, tmp_path) == Path("/var/lib/a/desk.key")
    assert key_file({"XDG_STATE_HOME": "/s"}, tmp_path) == Path("/s/deadletter/desk.key")
    assert key_file({"XDG_STATE_HOME": "relative"}, tmp_path).is_relative_to(tmp_path)


@pytest.mark.parametrize(
    ("url", "meets"),
    [
        ("http://127.0.0.1:8025", False),
        ("http://localhost", False),
        ("https://127.0.0.1:8025", True),
        ("HTTPS://127.0.0.1", True),
        ("http://desk.example:8025", True),  # by a proxy, perhaps
    ],
)
def test_certificates_are_loaded_where_one_may_be_met(url: str, meets: bool) -> None:
    assert meets_tls(url) is meets


def test_each_port_has_its_own_token_and_sessions_another_key() -> None:
    assert home_token(KEY, 1) != home_token(KEY, 2)
    assert home_token(KEY, 1) == home_token(KEY, 1)
    assert session_key(KEY) not in (KEY, home_token(KEY, 1).encode())


def test_commands_take_the_token_to_this_machine_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_STATE_HOME", "STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    key = made_key(key_file(os.environ, tmp_path))
    assert own_token("http://127.0.0.1:8025") == home_token(key, 8025)
    for url in ("http://desk.example:8025", "http://10.0.0.1:8025", "http://localhost.evil.example:8025"):
        assert own_token(url) is None
        assert token_headers(None, url) == {}
    assert token_headers("said", "http://127.0.0.1:8025") == {"authorization": "Bearer said"}


def test_the_address_for_its_owner(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path)}
    none = command("token", "address", "--at", "127.0.0.1:8025", environment=environment)
    assert none.returncode == 2
    assert "dlq serve" in none.stderr
    key = made_key(key_file({}, tmp_path))
    told = command("token", "address", "--at", "127.0.0.1:8025", environment=environment)
    assert told.stdout == f"http://127.0.0.1:8025/?token={home_token(key, 8025)}\n"
    (tmp_path / "deadletter.toml").write_text('[serve]\nlisten = "0.0.0.0:9000"\n')
    told = command("token", "address", environment=environment, directory=tmp_path)
    assert told.stdout == f"http://127.0.0.1:9000/?token={home_token(key, 9000)}\n"


# -- the door --------------------------------------------------------------------------------------------
TOKEN = f'[[desk.tokens]]\nname = "a"\nrole = "admin"\nhash = "{hashed("x")}"\n'


@pytest.mark.parametrize(
    ("listen", "desk", "environment", "opens", "page"),
    [
        ("127.0.0.1:1", "", "", True, True),
        ("127.0.0.1:1", "ingest = true", "", True, True),
        ("[::1]:1", "page = false", "", True, False),
        ("0.0.0.0:1", "", "", True, False),
        ("0.0.0.0:1", "page = false\ningest = true", "", True, False),
        ("0.0.0.0:1", "ingest = true", "", False, False),
        ("0.0.0.0:1", "page = true", "", False, True),
        ("10.0.0.1:1", "page = true\ningest = true", "", False, True),
        ("0.0.0.0:1", "ingest = true", "secret", True, True),
        ("0.0.0.0:1", f"ingest = true\n{TOKEN}", "", True, True),
        ("off", "page = true", "", True, False),
    ],
)
def test_where_the_door_opens(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    listen: str,
    desk: str,
    environment: str,
    opens: bool,
    page: bool,
) -> None:
    monkeypatch.setenv("DLQ_API_TOKEN", environment)
    told = settings(tmp_path, f'[serve]\nlisten = "{listen}"\n[desk]\n{desk}\n')
    if not opens:
        with pytest.raises(UsageError, match=r"nobody can sign in there: add \[\[desk.tokens\]\]"):
            check_door(told)
    else:
        check_door(told)
        if listen != "off":
            assert ServiceAccess(listen, lambda: told, KEY).access.page is page


def test_only_at_home_there_is_an_address_with_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DLQ_API_TOKEN", raising=False)
    told = settings(tmp_path, TOKEN)
    for listen, url, printed in (
        ("127.0.0.1:0", "http://127.0.0.1:77", True),
        ("0.0.0.0:77", "http://0.0.0.0:77", False),
    ):
        door = ServiceAccess(listen, lambda: told, KEY)
        assert door.access.home_token() is None, "nobody comes in before it listens"
        address = door.begun(url)
        assert (address is not None) is printed
        assert door.access.home_token() == home_token(KEY, 77)
        assert home_token(KEY, 77) not in repr(door.access)
