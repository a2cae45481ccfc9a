"""Where settings come from: command line over environment over file over default, and who said what.

The four are laid over each other as one tree, value by value, and for every value the tree remembers its
source. Nothing is judged here except what never gets into the tree: variables that are nearly ours.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import PlainValidator

from deadletter.config import files
from deadletter.config.files import Trail
from deadletter.config.settings import DEFAULT, Source
from deadletter.config.tables.keys import ConfigKey, nearest, types_in, variables
from deadletter.errors import ConfigError, Problem

CONFIG_VARIABLE: Final = "DLQ_CONFIG"
FILE_NAMES: Final = ("deadletter.toml", "deadletter.yaml", "deadletter.yml")
USER_DIRECTORY: Final = Path(".config") / "deadletter"
OPTIONS: Final = {
    "broker.url": "--url",
    "broker.api": "--api",
    "store.url": "--store",
    "serve.listen": "--listen",
    "serve.name": "--name",
    "serve.log_format": "--log-format",
    "serve.log_level": "--log-level",
    "check.dlq": "--dlq",
    "check.target": "--target",
    "check.max_retries": "--max-retries",
    "check.count_by": "--count-by",
    "check.target_type": "--target-type",
    "check.create": "--create",
}
"""The keys that commands take as an option, for those who have to name where a value came from."""

_SECTIONS: Final = (
    "DLQ_BROKER_",
    "DLQ_STORE_",
    "DLQ_DEFAULT_POLICY_",
    "DLQ_GUARDS_",
    "DLQ_SERVE_",
    "DLQ_DESK_",
    "DLQ_ALERTS_",
    "DLQ_CHECK_",
)
_KUBERNETES: Final = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT.*|PORT|PORT_\d+_(TCP|UDP|SCTP).*)")
"""What Kubernetes sets for a service that happens to be called dlq, or dlq-store."""


@dataclass(slots=True, kw_only=True)
class Gathered:
    """The tree of everything that was said, and who said it."""

    tree: dict[str, object] = field(default_factory=dict)
    sources: dict[Trail, Source] = field(default_factory=dict)
    file: Path | None = None
    problems: list[Problem] = field(default_factory=list)

    def source(self, trail: Trail) -> Source:
        """The source of a value, or of the nearest thing around it that was said."""
        for length in range(len(trail), 0, -1):
            around = trail[:length]
            if around in self.sources:
                return self.sources[around]
            for said, source in self.sources.items():  # a table that only variables speak of
                if said[:length] == around:
                    return source
        return Source(kind="file", where=str(self.file)) if self.file else DEFAULT

    def put(self, path: tuple[str, ...], value: object, source: Source) -> None:
        """One value over whatever was there."""
        table = self.tree
        for key in path[:-1]:
            inner = table.setdefault(key, {})
            if not isinstance(inner, dict):
                return  # the file has something else where a table belongs, and will hear of it
            table = inner
        table[path[-1]] = value
        self.sources = {trail: s for trail, s in self.sources.items() if trail[: len(path)] != path}
        self.sources[path] = source


def gather(
    *,
    config: Path | None,
    options: Mapping[str, object],
    environment: Mapping[str, str],
    directory: Path,
    home: Path,
) -> Gathered:
    """Everything that was said. Raises ConfigError when there is no tree: no such file, or no TOML in it."""
    gathered = Gathered()
    gathered.file = _find(config, environment, directory, home)
    if gathered.file is not None:
        written = files.read(gathered.file)
        gathered.tree = copy.deepcopy(written.tree)
        gathered.sources = {
            trail: Source(kind="file", where=f"{gathered.file}:{line}")
            for trail, line in written.lines.items()
        }
    for name in sorted(environment):
        if (key := variables().get(name)) is not None:
            if environment[name]:  # an empty variable is one that is not set
                value = _from_text(environment[name], key)
                gathered.put(key.path, value, Source(kind="environment", where=name))
        elif (problem := _stray(name)) is not None:
            gathered.problems.append(problem)
    for dotted, value in options.items():
        if value is not None:
            source = Source(kind="option", where=OPTIONS.get(dotted, dotted))
            gathered.put(tuple(dotted.split(".")), value, source)
    return gathered


def _find(config: Path | None, environment: Mapping[str, str], directory: Path, home: Path) -> Path | None:
    if config is not None:
        return _named(config, "--config")
    if environment.get(CONFIG_VARIABLE):
        return _named(Path(environment[CONFIG_VARIABLE]), CONFIG_VARIABLE)
    for place in (directory, home / USER_DIRECTORY):
        there = [place / name for name in FILE_NAMES if (place / name).exists()]
        if len(there) > 1:
            got = " and ".join(path.name for path in there)
            raise ConfigError((Problem(key="file", expected="one file", got=got, source=str(place)),))
        if there:
            return Path(there[0].name) if place == Path() else there[0]
    return None


def _named(path: Path, source: str) -> Path:
    if not path.is_file():
        got = f"{path}, which is not there" if not path.exists() else f"{path}, which is none"
        raise ConfigError((Problem(key="file", expected="a file", got=got, source=source),))
    return path


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
    """A variable that is nearly one of ours: a typing error should not be a silent default."""
    known = [*variables(), CONFIG_VARIABLE]
    if not name.startswith("DLQ_") or name in known or _KUBERNETES.fullmatch(name):
        return None
    meant = nearest(name, known, cutoff=0.85)
    if meant is None and not name.startswith(_SECTIONS):
        return None
    meant = meant or nearest(name, known)
    hint = f" (did you mean {meant}?)" if meant else ""
    return Problem(key=name, expected=f"a variable there is{hint}", got="this one", source="environment")
