"""Are the types of the library said, or must each checker guess them? Pyright counts (`--verifytypes`).

A symbol is incomplete when its own type is not said, or when one is not that it mentions. All are known.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import deadletter


def _report() -> dict[str, Any]:
    scripts = Path(sys.executable).parent
    ran = subprocess.run(
        [scripts / "basedpyright", "--verifytypes", "deadletter", "--ignoreexternal", "--outputjson"],
        # It asks the first `python` of the path where packages are, whatever else it is told.
        env={**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}"},
        capture_output=True,
        text=True,
        check=False,  # it ends with 1 while anything at all is incomplete
    )
    assert ran.stdout, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)["typeCompleteness"]
    return found


def test_the_types_of_the_library_are_said() -> None:
    report = _report()
    assert Path(report["pyTypedPath"]) == Path(deadletter.__file__).with_name("py.typed")
    unsaid = {
        symbol["name"]: [note["message"] for note in symbol["diagnostics"]]
        for symbol in report["symbols"]
        if not symbol["isTypeKnown"]
    }
    assert unsaid == {}
    assert report["completenessScore"] == 1
    ours = set(deadletter.__all__) - {"__version__"}
    assert {f"deadletter.{name}" for name in ours} <= {s["name"] for s in report["symbols"]}
