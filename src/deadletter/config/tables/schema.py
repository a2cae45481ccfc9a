"""The JSON schema of the file, for editors: completion, descriptions, red lines."""

from __future__ import annotations

from typing import Any

from deadletter.config.tables.file import File


def json_schema() -> dict[str, Any]:
    """Draft 2020-12. It knows keys and types; what contradicts what is only known to `dlq config check`."""
    schema = File.model_json_schema(by_alias=True, mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "deadletter.toml"}
