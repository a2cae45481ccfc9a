"""JSON schemas of queues: what an edited body has to be before it may go back.

The library is `jsonschema-rs`: one package without others, exact about large numbers, and with patterns that
take no more time than the text is long. A schema names no other file and no address: nothing is ever fetched.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

import jsonschema_rs

from deadletter.core.letter.letter import Letter
from deadletter.core.replaying import exact_json
from deadletter.core.replaying.letter_edit import BodyForm, editable
from deadletter.core.text.glob import glob
from deadletter.errors import EditRefused, UsageError

MOST: Final = 20
"""So many violations of one body are told."""
_WHY_CHARS: Final = 300
_SCHEMA_BYTES: Final = 4 * 1024 * 1024


class BodySchemas:
    """Schemas by the queue they are for; the first pattern that fits decides."""

    def __init__(self, schemas: Sequence[tuple[str, jsonschema_rs.Validator]] = ()) -> None:
        self._schemas = tuple(schemas)

    def violations(self, queue: str, letter: Letter) -> tuple[str, ...]:
        """What is wrong with the body, one by one; empty: nothing, or there is no schema."""
        schema = next((found for pattern, found in self._schemas if glob(pattern, queue)), None)
        if schema is None:
            return ()
        try:
            shown = editable(letter)
        except EditRefused as error:
            return (str(error),)
        if shown.form is not BodyForm.JSON:
            return ("the schema wants JSON, and the body is none",)
        body = exact_json.plain(shown.body)
        found: list[str] = []
        for wrong in schema.iter_errors(body):
            path = "".join(exact_json.step(one) for one in wrong.instance_path)
            found.append(f".body{path}: {wrong.message[:_WHY_CHARS]}")
            if len(found) == MOST:
                break
        return tuple(found)


def read_schemas(files: Sequence[tuple[str, Path]]) -> BodySchemas:
    """UsageError, with the file, for what is no schema."""
    return BodySchemas([(queue, _read(path)) for queue, path in files])


def _read(path: Path) -> jsonschema_rs.Validator:
    try:
        raw = path.read_bytes()[: _SCHEMA_BYTES + 1]
        if len(raw) > _SCHEMA_BYTES:
            raise ValueError(f"it is larger than {_SCHEMA_BYTES:,} bytes")
        return jsonschema_rs.validator_for(
            json.loads(raw), retriever=_nothing_is_fetched, pattern_options=jsonschema_rs.RegexOptions()
        )
    except (OSError, ValueError, RecursionError) as error:
        told = str(error).partition("\n")[0]
        raise UsageError(f"desk.schemas: {path}: expected a JSON schema, got {told[:_WHY_CHARS]}") from error


def _nothing_is_fetched(address: str) -> NoReturn:
    raise ValueError(f"{address} is elsewhere, and nothing is fetched: put it into this file under $defs")
