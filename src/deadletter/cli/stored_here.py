"""Where parked letters are, said where somebody may look for them in `deadletter.parked`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from deadletter.core.letter.names import PARKED
from deadletter.service.storing.lasting import why_not_stored
from deadletter.store.store_address import address_text, parse

if TYPE_CHECKING:  # a command that only looks needs none
    from deadletter.config.command_settings import CommandSettings
    from deadletter.config.settings import Settings
    from deadletter.service.telling.logs import Logs


def _store(settings: Settings | CommandSettings) -> str | None:
    return settings.store.in_force(os.environ, Path.home())


def say_where_letters_go(settings: Settings, log: Logs) -> None:
    """Once, at the start of the service: its letters leave the broker, and that is known beforehand."""
    url = _store(settings)
    if url is None:
        return
    if (why := why_not_stored(settings.desk, url)) is None:
        log.listener.log.info(
            "parked letters come into the store",
            store=address_text(parse(url)),
            look="dlq letters",
            off=f"[desk] ingest = false leaves them in {PARKED}",
        )
    elif settings.desk.ingest:
        log.listener.log.warning(
            "parked letters stay in their queue", why=why, on="[desk] ingest = true stores them all the same"
        )


def stored_words(queue: str, settings: CommandSettings) -> str | None:
    """What is said to whoever finds nothing in this queue; None where no service of ours takes from it."""
    url = _store(settings)
    if url is None or queue not in settings.stored.names or why_not_stored(settings.stored, url) is not None:
        return None
    return f"where dlq serve runs, letters of {queue} are in the desk: dlq letters"
