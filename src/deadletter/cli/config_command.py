"""`dlq config show | check | schema`: what is in force, whether it makes sense, what could be written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from deadletter import config
from deadletter.cli.terminal.output import Exit, columns, data, result
from deadletter.config.secrets import shown
from deadletter.config.settings import Effective
from deadletter.errors import ConfigError


def show(*, file: Path | None, options: Mapping[str, object], as_json: bool) -> Exit:
    settings = config.load(config=file, options=options)
    if as_json:
        file_name = None if settings.file is None else str(settings.file)
        data({"file": file_name, "settings": list(map(asdict, settings.effective))}, default=str)
    else:
        result(columns([_row(e) for e in settings.effective]))
    return Exit.DONE


def _row(effective: Effective) -> tuple[str, str, str]:
    value = "(not set)" if effective.value is None else shown(effective.value)
    return effective.key, value, str(effective.source)


def check(*, file: Path | None, options: Mapping[str, object], as_json: bool) -> Exit:
    try:
        settings = config.load(config=file, options=options)
    except ConfigError as error:
        if not as_json:
            raise
        data({"ok": False, "problems": list(map(asdict, error.problems))})
        return Exit.USAGE
    name = str(settings.file) if settings.file else None
    if as_json:
        data({"ok": True, "file": name, "problems": []})
    else:
        result(f"{name}: no problems" if name else "no file; environment and defaults have no problems")
    return Exit.DONE


def schema() -> Exit:
    from deadletter.config.tables.file import json_schema

    result(json.dumps(json_schema(), indent=2))
    return Exit.DONE
