"""Letters that wait, let out or parked by a person: done at the broker, and written down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from deadletter.errors import StoreError
from deadletter.operations.journal.journal import Journal
from deadletter.operations.outlook.outlook import Outlook
from deadletter.operations.waiting import LetOut, WaitingChoice


async def let_out_noted(
    outlook: Outlook,
    journal: Callable[[], Awaitable[Journal]] | None,
    choice: WaitingChoice,
    *,
    vhost: str,
    park: str | None,
    who: str,
) -> LetOut:
    """`park`: the reason; None: they are sent home now. `journal` None: there is no store to write it to."""
    done = await outlook.let_out(choice, vhost=vhost, park=park)
    if journal is not None:
        said = {"vhost": vhost, "origin": choice.origin, "waits": choice.waits, "letter_id": choice.letter_id}
        told: dict[str, object] = {name: value for name, value in said.items() if value}
        if park is not None:
            told["why"] = park
        told |= {"released": done.released, "parked": done.parked, "left": done.left}
        action = "waiting released" if park is None else "waiting parked"
        with suppress(StoreError):  # they have gone: a store that is away must not make it look undone
            await (await journal()).noted(who, action, told)
    return done


def let_out_words(done: LetOut, *, parking: bool) -> list[str]:
    """What became of them, for people; each is a sentence."""
    if not (done.released or done.parked or done.left or done.failed):
        return ["nothing that waits was meant"]
    said = [f"parked {_count(done.parked)}" if parking else f"sent {_count(done.released)} home"]
    if not parking and done.parked:
        said.append(f"parked {_count(done.parked)}: their origin is not there")
    if done.left:
        said.append(f"{_count(done.left)} stayed: their origin refused them (is it full?)")
    if done.failed:
        said += [f"{number:,} stayed: {reason}" for reason, number in done.reasons.items()]
    if done.maybe_twice:
        said.append(f"after a lost connection up to {_count(done.maybe_twice)} may be there twice, same id")
    return said


def _count(letters: int) -> str:
    return f"{letters:,} letter{'' if letters == 1 else 's'}"
