"""The options that many commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings file, TOML or YAML (environment: DLQ_CONFIG; else ./deadletter.toml, then "
        "~/.config/deadletter/deadletter.toml).",
    ),
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Broker: amqp://user:password@host:5672/vhost (amqps:// for TLS, %2F for a slash in the vhost); "
        "several hosts of one cluster separated by commas (environment: DLQ_URL).",
    ),
]
ApiOption = Annotated[
    str | None,
    typer.Option("--api", metavar="URL", help="URL of the management API (environment: DLQ_API)."),
]
LiftLimit = Annotated[
    bool,
    typer.Option(
        "--lift-limit",
        help="Take the delivery limit off the queue while this runs (by a policy, through the management "
        "API) and put it back afterwards: faster where letters have few deliveries left, and a kill loses "
        "none.",
    ),
]
StoreOption = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="URL of the store (environment: DLQ_STORE).")
]
Prefetch = Annotated[
    int, typer.Option(min=1, max=65535, metavar="N", help="How many letters to hold at once, at most.")
]
PrivateVersion = Annotated[
    str | None,
    typer.Option(metavar="3.10|4.0|4.3", help="Which version, of those fetched with `make brokers`."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
