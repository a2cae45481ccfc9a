"""How fast a replay goes, as people type it and as it is told to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

from deadletter.core.replaying.replay_pace import AllAtOnce, Auto, Canary, ReplayPace, pace_from, pace_json
from deadletter.core.text.amounts import parse_rate, parse_share, parse_span, rate_text, share_text
from deadletter.core.text.durations import duration_text
from deadletter.errors import UsageError


class PaceName(StrEnum):
    CANARY = "canary"
    AUTO = "auto"
    ALL = "all"


USUAL_PACES: Final[Mapping[PaceName, ReplayPace]] = {
    PaceName.CANARY: Canary(),
    PaceName.AUTO: Auto(),
    PaceName.ALL: AllAtOnce(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedPace:
    """As it was typed; None: not said. A canary where nothing says otherwise."""

    pace: str | None = None
    rate: str | None = None
    steps: str | None = None
    share: str | None = None
    room: int | None = None
    wait: str | None = None

    def chosen(self, *, dashes: str = "") -> ReplayPace:
        """UsageError where it is of different paces, or makes no sense. `dashes`: before the names of
        options."""
        name = self._name(dashes)
        match name:
            case PaceName.CANARY:
                self._only(name, dashes, rate=self.rate)
                return _made(
                    Canary(),
                    steps=None if self.steps is None else _steps(f"{dashes}canary", self.steps),
                    wait_s=None if self.wait is None else parse_span(self.wait),
                    share=self._share(dashes),
                    room=self.room,
                )
            case PaceName.AUTO:
                self._only(name, dashes, canary=self.steps, wait=self.wait)
                ceiling = None if self.rate is None else _ceiling(f"{dashes}rate", self.rate)
                return _made(Auto(), ceiling=ceiling, share=self._share(dashes), room=self.room)
            case PaceName.ALL:
                self._only(name, dashes, canary=self.steps, wait=self.wait, share=self.share, room=self.room)
                return _made(AllAtOnce(), rate_per_s=None if self.rate is None else parse_rate(self.rate))
            case _:
                assert_never(name)

    def _name(self, dashes: str) -> PaceName:
        """Where nobody said it: a rate alone is a pace of its own, all else is a canary's."""
        if self.pace is None:
            return PaceName.CANARY if self.rate is None else PaceName.ALL
        if self.pace not in list(PaceName):
            raise UsageError(f"{dashes}pace: expected one of {', '.join(PaceName)}, got {self.pace!r}")
        return PaceName(self.pace)

    def _only(self, pace: PaceName, dashes: str, **others: object) -> None:
        if wrong := [f"{dashes}{name}" for name, said in others.items() if said is not None]:
            raise UsageError(
                f"{dashes}pace {pace.value}: expected no {' or '.join(wrong)}, which is of another pace"
            )

    def _share(self, dashes: str) -> float | None:
        return None if self.share is None else parse_share(f"{dashes}share", self.share)


def typed_pace(pace: ReplayPace) -> TypedPace:
    """As it would be typed."""
    match pace:
        case AllAtOnce(rate_per_s=rate):
            return TypedPace(pace=PaceName.ALL.value, rate=None if rate is None else rate_text(rate))
        case Canary(steps=steps, share=share, wait_s=wait_s, room=room):
            return TypedPace(
                pace=PaceName.CANARY.value,
                steps=",".join(map(str, steps)),
                share=_percent(share),
                wait=duration_text(round(wait_s * 1000)) if wait_s else None,
                room=room,
            )
        case Auto(room=room, share=share, ceiling=ceiling):
            return TypedPace(pace=PaceName.AUTO.value, rate=f"{ceiling}/s", share=_percent(share), room=room)
        case _:
            assert_never(pace)


def pace_arguments(pace: ReplayPace) -> list[str]:
    """The options that mean it, as few as will do."""
    said, usual = typed_pace(pace), typed_pace(type(pace)())
    found = [] if isinstance(pace, Canary) else ["--pace", str(said.pace)]
    for option, value, plain in (
        ("--rate", said.rate, usual.rate),
        ("--canary", said.steps, usual.steps),
        ("--share", said.share, usual.share),
        ("--room", said.room, usual.room),
        ("--wait", said.wait, usual.wait),
    ):
        if value is not None and value != plain:
            found += [option, str(value).replace(" ", "")]
    return found


def pace_words(pace: ReplayPace) -> str:
    """For people, in a line."""
    match pace:
        case AllAtOnce(rate_per_s=None):
            return "all, as fast as the broker takes them"
        case AllAtOnce(rate_per_s=rate):
            return f"all, {rate_text(rate or 0)}"
        case Canary(steps=steps, share=share, wait_s=wait_s, room=room):
            told = ", ".join(f"{step:,}" for step in steps)
            return (
                f"canary: {told}; the next step when the outcome of the last is known (back, done, or not "
                f"returned in {duration_text(round(wait_s * 1000))}) and its queue is drained; stops when "
                f"more than {share_text(share)} of a step comes back; room for {room:,}"
            )
        case Auto(room=room, share=share, ceiling=ceiling):
            return (
                f"auto: as fast as the consumer keeps up, {ceiling:,}/s at most; room for {room:,}; stops "
                f"when more than {share_text(share)} comes back"
            )
        case _:
            assert_never(pace)


def _percent(share: float) -> str:
    return f"{share * 100:g}%"


def _made(usual: ReplayPace, **said: object) -> ReplayPace:
    """The usual one with what was said; checked as what comes over HTTP is."""
    values = {name: value for name, value in said.items() if value is not None}
    return pace_from({**pace_json(usual), **values})


def _steps(name: str, said: str) -> tuple[int, ...]:
    parts = [part.strip() for part in said.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < len(part) < 10 and int(part) for part in parts):
        raise UsageError(f"{name}: expected numbers of letters such as 1,10,100, got {said!r}")
    return tuple(map(int, parts))


def _ceiling(name: str, said: str) -> int:
    rate = parse_rate(said)
    if rate < 1:
        raise UsageError(f"{name}: expected at least 1/s with the pace auto, got {said!r}")
    return int(rate)
