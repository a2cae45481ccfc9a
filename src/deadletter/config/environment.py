"""What the environment says: `DLQ_*`, one variable a key, and one watch for those who have no file.

A container is set up by variables alone, and needs at least to be told what to look after: `DLQ_WATCH`,
`DLQ_MODE` and `DLQ_EVERY` are the watches then, instead of those of a file. A variable that is nearly one of
ours, or the name it has elsewhere, is refused with the right one: a typing error is no silent default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pydantic import PlainValidator

from deadletter.config.plain import CONFIG_VARIABLE, SECRETS, Spoken
from deadletter.config.tables.keys import ConfigKey, nearest, types_in, variables
from deadletter.errors import Problem

WATCH_VARIABLE: Final = "DLQ_WATCH"
MODE_VARIABLE: Final = "DLQ_MODE"
EVERY_VARIABLE: Final = "DLQ_EVERY"
_WATCHES: Final = "watches"
_OF_A_WATCH: Final = {MODE_VARIABLE: "mode", EVERY_VARIABLE: "every"}

_SECTIONS: Final = (
    "DLQ_BROKER_",
    "DLQ_STORE_",
    "DLQ_DEFAULT_POLICY_",
    "DLQ_GUARDS_",
    "DLQ_SERVE_",
    "DLQ_DESK_",
    "DLQ_ALERTS_",
    "DLQ_CHECK_",
    "DLQ_WATCH_",
)
_LISTS: Final = ("DLQ_WATCHES", "DLQ_POLICIES", "DLQ_POLICY", "DLQ_ERRORS")
"""Lists of tables: no variable can say which of them it means."""
_ELSEWHERE: Final = {
    "DLQ_WATCHES": WATCH_VARIABLE,
    "DLQ_WATCHES_DLQ": WATCH_VARIABLE,
    "DLQ_WATCH_DLQ": WATCH_VARIABLE,
    "DLQ_QUEUES": WATCH_VARIABLE,
    "DLQ_WATCHES_MODE": MODE_VARIABLE,
    "DLQ_WATCH_MODE": MODE_VARIABLE,
    "DLQ_RETRY_MODE": MODE_VARIABLE,
    "DLQ_WATCHES_EVERY": EVERY_VARIABLE,
    "DLQ_WATCH_EVERY": EVERY_VARIABLE,
    "DLQ_INTERVAL": EVERY_VARIABLE,
    "DLQ_RETRY_INTERVAL": EVERY_VARIABLE,
    "DLQ_RETRY_INTERVAL_SECONDS": EVERY_VARIABLE,
    "DLQ_AMQP_URL": "DLQ_URL",
    "DLQ_BROKER": "DLQ_URL",
    "DLQ_BROKER_URL": "DLQ_URL",
    "DLQ_RABBITMQ_URL": "DLQ_URL",
    "DLQ_BROKER_API": "DLQ_API",
    "DLQ_API_URL": "DLQ_API",
    "DLQ_MANAGEMENT_URL": "DLQ_API",
    "DLQ_DATABASE_URL": "DLQ_STORE",
    "DLQ_STORE_URL": "DLQ_STORE",
    "DLQ_CONFIG_FILE": CONFIG_VARIABLE,
}
"""What our own keys would suggest, and what others call it."""
_KUBERNETES: Final = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT.*|PORT|PORT_\d+_(TCP|UDP|SCTP).*)")
"""What Kubernetes sets for a service that happens to be called dlq, or dlq-store."""


def spoken(environment: Mapping[str, str]) -> Spoken:
    """An empty variable is one that is not set."""
    said = Spoken()
    for name in sorted(environment):
        if (key := variables().get(name)) is not None:
            if environment[name]:
                said.values.append((key.path, _from_text(environment[name], key), name))
        elif (problem := _stray(name)) is not None:
            said.problems.append(problem)
    _watches(environment, said)
    return said


def _watches(environment: Mapping[str, str], said: Spoken) -> None:
    """One watch for each queue or pattern of `DLQ_WATCH`, all in the same mode."""
    queues = environment.get(WATCH_VARIABLE, "").split()
    more = {name: environment[name] for name in _OF_A_WATCH if environment.get(name)}
    if not queues:
        said.problems += [
            Problem(
                key=name,
                expected=f"{WATCH_VARIABLE} beside it, the dead-letter queues it is about (in a file: "
                f"watches.{_OF_A_WATCH[name]})",
                got="it alone",
                source="environment",
            )
            for name in more
        ]
        return
    told = {_OF_A_WATCH[name]: text for name, text in more.items()}
    if EVERY_VARIABLE in more:
        told.setdefault("mode", "sweep")  # nothing else has an interval
    said.values.append(((_WATCHES,), [{"dlq": queue, **told} for queue in queues], WATCH_VARIABLE))
    for place in range(len(queues)):
        said.inner[_WATCHES, place, "dlq"] = WATCH_VARIABLE
        said.inner |= {(_WATCHES, place, _OF_A_WATCH[name]): name for name in more}


def _from_text(text: str, key: ConfigKey) -> object:
    """A variable's text as the type the key has, where that is plain; else the text, to be judged later."""
    kinds = types_in(key.field.annotation)
    if list in kinds and key.path != ("broker", "url"):
        return text.split()
    if bool in kinds:
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(
            text.lower(), text
        )
    read_later = any(isinstance(part, PlainValidator) for part in (*kinds, *key.field.metadata))
    if read_later:  # times, for one, need their unit
        return text
    if int in kinds and re.fullmatch(r"[+-]?\d{1,18}", text):
        return int(text)
    if float in kinds and re.fullmatch(r"[+-]?\d{1,18}(\.\d{1,18})?", text):
        return float(text)
    return text


def _stray(name: str) -> Problem | None:
    """A variable that is nearly one of ours."""
    settable = [*variables(), CONFIG_VARIABLE, WATCH_VARIABLE, MODE_VARIABLE, EVERY_VARIABLE]
    if not name.startswith("DLQ_") or name in settable or name in SECRETS or _KUBERNETES.fullmatch(name):
        return None
    meant = _ELSEWHERE.get(name) or _shortened(name) or nearest(name, [*settable, *SECRETS], cutoff=0.85)
    if meant is None and (name in _LISTS or name.startswith(tuple(f"{one}_" for one in _LISTS))):
        expected = "a file for it: a list of tables has no variables"
    elif meant is None and not name.startswith(_SECTIONS):
        return None
    else:
        meant = meant or nearest(name, settable)
        expected = "a variable there is" + (f" (did you mean {meant}?)" if meant else "")
    return Problem(key=name, expected=expected, got="this one", source="environment")


def _shortened(name: str) -> str | None:
    """The one variable that this is the end of: DLQ_LOG_LEVEL for DLQ_SERVE_LOG_LEVEL."""
    longer = [one for one in variables() if one.endswith("_" + name.removeprefix("DLQ_"))]
    return longer[0] if len(longer) == 1 and name.count("_") > 1 else None
