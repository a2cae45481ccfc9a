"""The shape of `deadletter.toml`: every key, its type, its default and what it is for, once.

The file's reader, the environment's names, the JSON schema, the page `docs/configuration.md` and `dlq config
show` all come from these classes; the tables of policies are in `policies.py`, those of the service in
`serve.py`, those of the desk in `desk.py`. Defaults are written as a user would write them. What a table
cannot be in itself is said by its `contradictions`; what it cannot be beside others is in
`config/cross_checks.py`.

Pydantic is loaded with this module, and this module not before a command needs settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from deadletter.config.plain import DEFAULT_URL, MAX_RETRIES
from deadletter.config.tables.base import Counted, Name, Pattern, Table, TableFinding, Urls, as_written
from deadletter.config.tables.desk import Desk
from deadletter.config.tables.policies import DefaultPolicy, PolicyTable
from deadletter.config.tables.serve import AlertsTable, Guards, Serve, WatchTable


class Broker(Table):
    url: Urls = Field(
        default=as_written(DEFAULT_URL),
        description="AMQP URL of the broker; several of one cluster as a list, or separated by commas.",
    )
    api: str | None = Field(
        default=None,
        description="URL of the management API. Without it: the same host and user, port 15672 (with amqps: "
        "https, port 15671).",
    )
    name: Name | None = Field(
        default=None, description="What people call this broker, in alerts and pages. Without it: its host."
    )


class StoreTable(Table):
    url: str | None = Field(
        default=None,
        description="Where parked letters are kept, and the policies of the table dlq_event_config: "
        "sqlite:///path or postgresql://… Without it: dlq serve uses a file of its own. none: no store at "
        "all; parked letters stay in the broker.",
    )


class CheckTable(Table):
    dlq: Pattern | None = Field(
        default=None, description="The queues to look at; * for any run of characters: dlq.*"
    )
    target: Pattern | None = Field(
        default=None, description="Where letters go that died too often; each * is what it was in dlq: dead.*"
    )
    max_retries: int = Field(
        default=3, ge=0, le=MAX_RETRIES, description="Letters that died more often than this are moved."
    )
    count_by: Counted = Field(
        default=as_written("first"),
        description="How deaths are counted: first, sum, own, reason:REASON, queue:NAME, header:NAME.",
    )
    target_type: Literal["quorum", "classic"] = Field(
        default="quorum", description="The type of targets that have to be created."
    )
    create: bool = Field(default=True, description="Create targets that are missing.")

    def contradictions(self) -> Iterator[TableFinding]:
        if self.dlq is not None and self.target is not None:
            if self.target.count("*") > self.dlq.count("*"):
                yield TableFinding(("target",), f"at most as many * as dlq has, which is {self.dlq!r}")
            elif self.target == self.dlq:
                yield TableFinding(("target",), "another queue than dlq")


class File(Table):
    """The settings of Deadletter (the command dlq)."""

    broker: Broker = Field(default=as_written({}), description="The broker.")
    store: StoreTable = Field(default=as_written({}), description="The store.")
    policies: list[PolicyTable] = Field(
        default=[], description="What happens to letters: the first that matches decides."
    )
    default_policy: DefaultPolicy = Field(
        default=as_written({}), description="What happens to letters that no policy matches."
    )
    watches: list[WatchTable] = Field(
        default=[], description="Which dead-letter queues are looked after; a queue belongs to the first."
    )
    guards: Guards = Field(default=as_written({}), description="What keeps retries from doing harm.")
    serve: Serve = Field(default=as_written({}), description="How the service, dlq serve, runs.")
    desk: Desk = Field(
        default=as_written({}), description="Which letters come into the store, and how long they stay."
    )
    alerts: AlertsTable = Field(default=as_written({}), description="When somebody should know.")
    check: CheckTable = Field(default=as_written({}), description="Defaults of the command dlq check.")


def json_schema() -> dict[str, Any]:
    """The JSON schema of the file, draft 2020-12, for editors: completion, descriptions, red lines.

    It knows keys and types; what contradicts what is only known to `dlq config check`.
    """
    schema = File.model_json_schema(by_alias=True, mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "deadletter.toml"}
