"""Where settings come from: command line over environment over file over default, and who said what.

The four are laid over each other as one tree, value by value, and for every value the tree remembers its
source. Nothing is judged here except what never gets into the tree.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deadletter.config.command_settings import DEFAULT, Source
from deadletter.config.plain import CONFIG_VARIABLE, plainly_spoken
from deadletter.config.policy_names import names_for
from deadletter.errors import ConfigError, Problem

if TYPE_CHECKING:
    from deadletter.config.files import Trail

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
        from deadletter.config import files  # with a reader of TOML

        written = files.read(gathered.file)
        gathered.tree = copy.deepcopy(written.tree)
        gathered.sources = {
            trail: Source(kind="file", where=f"{gathered.file}:{line}")
            for trail, line in written.lines.items()
        }
    said = plainly_spoken(environment)
    if said is None:
        from deadletter.config.environment import spoken  # with the tables and pydantic

        said = spoken(environment)
    gathered.problems += said.problems
    for path, value, name in said.values:
        gathered.put(path, value, Source(kind="environment", where=name))
    for trail, name in said.inner.items():
        gathered.sources[trail] = Source(kind="environment", where=name)
    for dotted, value in options.items():
        if value is not None:
            source = Source(kind="option", where=OPTIONS.get(dotted, dotted))
            gathered.put(tuple(dotted.split(".")), value, source)
    _name_policies(gathered)
    return gathered


def _name_policies(gathered: Gathered) -> None:
    written = gathered.tree.get("policies")
    for place, name in names_for(written).items():
        assert isinstance(written, list)
        written[place] = {"name": name, **written[place]}
        gathered.sources["policies", place, "name"] = DEFAULT


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
