"""`dlq config show | check | schema`: what is in force, whether it makes sense, what could be written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from deadletter import config
from deadletter.cli.terminal.columns import columns
from deadletter.cli.terminal.exits import Exit
from deadletter.cli.terminal.output import result
from deadletter.config.secrets import shown
from deadletter.config.settings import Effective, Settings
from deadletter.errors import ConfigError


def show(*, file: Path | None, options: Mapping[str, object], as_json: bool) -> Exit:
    settings = config.load(config=file, options=options)
    result(_as_json(settings) if as_json else columns([_row(e) for e in settings.effective]))
    return Exit.DONE


def _row(effective: Effective) -> tuple[str, str, str]:
    value = "(not set)" if effective.value is None else shown(effective.value)
    return effective.key, value, str(effective.source)


def _as_json(settings: Settings) -> str:
    return json.dumps(
        {
            "file": None if settings.file is None else str(settings.file),
            "settings": [
                {
                    "key": e.key,
                    "value": e.value,
                    "source": {"kind": e.source.kind, "where": e.source.where},
                }
                for e in settings.effective
            ],
        },
        default=str,
    )


def check(*, file: Path | None, options: Mapping[str, object], as_json: bool) -> Exit:
    try:
        settings = config.load(config=file, options=options)
    except ConfigError as error:
        if not as_json:
            raise
        problems = [
            {"key": p.key, "expected": p.expected, "got": p.got, "source": p.source} for p in error.problems
        ]
        result(json.dumps({"ok": False, "problems": problems}))
        return Exit.USAGE
    name = str(settings.file) if settings.file else None
    if as_json:
        result(json.dumps({"ok": True, "file": name, "problems": []}))
    else:
        result(f"{name}: no problems" if name else "no file; environment and defaults have no problems")
    return Exit.DONE


def schema() -> Exit:
    from deadletter.config.tables.schema import json_schema

    result(json.dumps(json_schema(), indent=2))
    return Exit.DONE
