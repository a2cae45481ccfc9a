"""Properties and headers as JSON has them: for people and programs to read, not to be sent again.

What JSON has no word for is told: bytes (and so text that is no UTF-8) as `{"base64": …}`; a time as ISO
8601; a decimal, and a float that is no number, as text.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from decimal import Decimal
from typing import Any

from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import View


def plain(value: Value) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case bytes() | bytearray():
            return {"base64": base64.b64encode(value).decode()}
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime():
            return value.isoformat()
        case Decimal():
            return str(value)
        case Mapping():
            return plain_table(value)
        case _:
            return [plain(one) for one in value]


def plain_table(table: Mapping[str, Value]) -> dict[str, Any]:
    return {name: plain(value) for name, value in table.items()}


def plain_properties(view: View) -> dict[str, Any]:
    """Those that are set, without the headers."""
    named = {one.name: getattr(view, one.name) for one in fields(View) if one.name != "headers"}
    return {name: plain(value) for name, value in named.items() if value is not None}


def utf8(text: str) -> str:
    """A name that can be written: bytes in it that are no UTF-8 are shown as such."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
