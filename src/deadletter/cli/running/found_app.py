"""The Consumer that `module:app` names, and in words why there is none."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

from deadletter import Consumer
from deadletter.errors import UsageError

DEFAULT_NAME = "app"


def found_app(where: str, directory: Path) -> Consumer:
    """Imports the module. Raises UsageError."""
    name, colon, attribute = where.partition(":")
    attributes = (attribute or DEFAULT_NAME).split(".")
    if not all(part.isidentifier() for part in (*name.split("."), *attributes)) or (colon and not attribute):
        raise UsageError(f"expected MODULE:APP, as in shop.worker:app, got {where!r}")
    sys.path.insert(0, str(directory.resolve()))
    found: object = _module(name, directory)
    for part in attributes:
        if not hasattr(found, part):
            there = ", ".join(_consumers(found))
            raise UsageError(
                f"{where}: expected a Consumer called {part!r} in {name}, got none"
                + (f"; there is {there}" if there else "")
            )
        found = getattr(found, part)
    if not isinstance(found, Consumer):
        raise UsageError(f"{where}: expected a deadletter.Consumer, got {type(found).__name__}")
    return found


def _module(name: str, directory: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(
                f"expected a module {name!r} in {directory.resolve()} or among what is installed, got none "
                "(is it in another directory? --dir)"
            ) from error
        raise UsageError(_broken(name, error)) from error
    except Exception as error:
        raise UsageError(_broken(name, error)) from error


def _broken(name: str, error: Exception) -> str:
    """With its traceback: it is the application's, and the way to its cause."""
    told = "".join(traceback.format_exception(error)).rstrip()
    return f"{told}\n{name} cannot be imported: {type(error).__name__}: {error}"


def _consumers(found: object) -> list[str]:
    there = vars(found) if isinstance(found, ModuleType) else {}
    return [name for name, value in there.items() if isinstance(value, Consumer)]
