"""`dlq token new`: a token for a person or a program. `dlq token address`: the way in for its owner."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deadletter import config
from deadletter.cli.access.service_door import door_address
from deadletter.cli.terminal.output import Exit, data, result
from deadletter.core.access.rights import Role
from deadletter.core.access.token_hash import PREFIX, hashed
from deadletter.core.letter.header_values import MAX_NAME_BYTES
from deadletter.core.text.safe_text import is_plain
from deadletter.errors import UsageError
from deadletter.operations.service_address import home, own_token, service_url


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenWish:
    name: str
    role: Role
    vhosts: Sequence[str]
    queues: Sequence[str]
    sees_masked: bool


def new(wish: TokenWish, *, as_json: bool) -> Exit:
    if not wish.name.strip() or len(wish.name) > MAX_NAME_BYTES or not is_plain(wish.name):
        raise UsageError("NAME: expected a name in one line")
    token = PREFIX + secrets.token_urlsafe(32)
    if as_json:
        data({"token": token, **_table(wish, token)})
    else:
        lines = [f"{key} = {_toml(value)}" for key, value in _table(wish, token).items()]
        result(
            "\n".join(
                (
                    f"token of {wish.name}, shown this once:",
                    "",
                    f"  {token}",
                    "",
                    "into deadletter.toml; dlq serve reads it again on SIGHUP:",
                    "",
                    "[[desk.tokens]]",
                    *lines,
                )
            )
        )
    return Exit.DONE


def address(*, at: str | None, file: Path | None) -> Exit:
    if at is None:
        listen = config.load(config=file).serve.listen
        if listen is None:
            raise UsageError('[serve] listen = "off": the service answers nowhere')
        at = home(listen)
    url = service_url(at)
    token = own_token(url)
    if token is None:
        raise UsageError(
            f"no key of this user lets in at {url}: it is made by dlq serve, for the user who starts it; "
            "others sign in with a token (dlq token new)"
        )
    result(door_address(url, token))
    return Exit.DONE


def _table(wish: TokenWish, token: str) -> dict[str, object]:
    told: dict[str, object] = {"name": wish.name, "role": wish.role.value, "hash": hashed(token)}
    if wish.vhosts:
        told["vhosts"] = list(wish.vhosts)
    if wish.queues:
        told["queues"] = list(wish.queues)
    if wish.sees_masked:
        told["sees_masked"] = True
    return told


def _toml(value: object) -> str:
    """JSON's way to write strings, lists and booleans is TOML's."""
    return json.dumps(value, ensure_ascii=False)
