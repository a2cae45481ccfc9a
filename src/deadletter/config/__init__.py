"""Settings: command line over environment (`DLQ_*`) over `deadletter.toml` (or YAML) over default.

`load` is the way in. It returns frozen `Settings` that know where each value came from, or raises one
ConfigError with every problem there is: unknown keys, wrong types and units, jq programs that do not compile,
patterns that match nothing, policies that are never reached, contradictions.

* `tables/` the shape of the file, the one place where a key is defined; `tables/keys.py` walks it
* `files.py` TOML and YAML with line numbers; `environment.py` the variables; `sources.py` lays file,
  environment and options over each other
* `validate.py` the tree against the tables; `cross_checks.py` what tables cannot be beside each other
* `settings.py` the values; `build.py` makes them, and tells who wrote what
* `urls.py` addresses; `secrets.py` what is never printed
* `command_settings.py` what a command that takes letters needs of all that; `plain.py` makes it without
  tables, where nothing but that was said

Importing this package is cheap; pydantic comes with the first call of `load`. `load_command` goes without, if
it can.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from deadletter.errors import ConfigError

if TYPE_CHECKING:
    from deadletter.config.command_settings import CommandSettings
    from deadletter.config.settings import Settings
    from deadletter.config.sources import Gathered

__all__ = ["load", "load_command"]


def load_command(
    *,
    config: Path | None = None,
    options: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    home: Path | None = None,
) -> CommandSettings:
    """What a command that takes letters needs of the settings in force; else as `load`."""
    from deadletter.config.plain import plain_settings

    gathered = _gathered(config, options, environment, directory, home)
    plain = None if gathered.problems else plain_settings(gathered.tree)
    if plain is not None:
        return plain
    from deadletter.config.command_settings import CommandSettings, StoredQueues

    whole = _judged(gathered)
    return CommandSettings(
        broker=whole.broker,
        store=whole.store,
        check=whole.check,
        stored=StoredQueues(
            names=frozenset(whole.desk.in_vhost(whole.broker.vhost)),
            ingest=whole.desk.ingest,
            asked=whole.desk.asked,
        ),
        watches=whole.watches,
    )


def load(
    *,
    config: Path | None = None,
    options: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    home: Path | None = None,
) -> Settings:
    """The settings in force.

    `config` is the file somebody named with --config; without it DLQ_CONFIG, ./deadletter.toml and
    ~/.config/deadletter/deadletter.toml are tried. `options` are values from the command line by their key
    (`{"broker.url": url}`), None where the option was not given.
    """
    return _judged(_gathered(config, options, environment, directory, home))


def _gathered(
    config: Path | None,
    options: Mapping[str, object] | None,
    environment: Mapping[str, str] | None,
    directory: Path | None,
    home: Path | None,
) -> Gathered:
    from deadletter.config.sources import gather

    return gather(
        config=config,
        options=options or {},
        environment=os.environ if environment is None else environment,
        directory=Path() if directory is None else directory,
        home=Path.home() if home is None else home,
    )


def _judged(gathered: Gathered) -> Settings:
    from deadletter.config import build, cross_checks
    from deadletter.config.build import effective
    from deadletter.config.settings import Settings
    from deadletter.config.validate import Validator

    judge = Validator(gathered)
    parts = judge.parts()
    cross_checks.check(judge, parts)
    if judge.problems:
        raise ConfigError(tuple(judge.problems))
    assert parts.broker is not None
    assert parts.store is not None
    assert parts.guards is not None
    assert parts.serve is not None
    assert parts.desk is not None
    assert parts.alerts is not None
    assert parts.check is not None
    broker = build.broker(parts.broker)
    return Settings(
        broker=broker,
        store=build.store(parts.store),
        policies=build.policies(parts),
        watches=tuple(build.watch(table, broker.vhost) for table in parts.watches if table is not None),
        guards=build.guards(parts.guards),
        serve=build.serve(parts.serve),
        desk=build.desk(parts.desk, broker.vhost),
        alerts=build.alerts(parts.alerts),
        check=build.check(parts.check),
        file=gathered.file,
        effective=effective(judge, broker),
    )
