"""`dlq show`: everything about one letter."""

from __future__ import annotations

import sys

from deadletter.cli.letters.asking import now_ms, with_records
from deadletter.cli.letters.record_options import RecordsWish
from deadletter.cli.letters.show_text import letter_text
from deadletter.cli.terminal.output import Exit, data, result
from deadletter.cli.terminal.widths import terminal_width, writes
from deadletter.operations.records.records import Records, json_of


def show(wish: RecordsWish, name: str, *, body_bytes: int) -> Exit:
    async def work(records: Records) -> Exit:
        told = await records.letter(name)
        if wish.as_json:
            data(json_of(told))
        else:
            result(
                letter_text(
                    told,
                    now_ms=now_ms(),
                    body_bytes=body_bytes,
                    ascii_only=not writes("►"),
                    width=terminal_width(),
                )
            )
        return Exit.DONE

    return with_records(wish, work)


def raw_body(wish: RecordsWish, name: str) -> Exit:
    """The very bytes: whoever asks for them knows where they go."""

    async def work(records: Records) -> Exit:
        body = await records.body(name)
        sys.stdout.buffer.write(body)
        sys.stdout.buffer.flush()
        return Exit.DONE

    return with_records(wish, work)
