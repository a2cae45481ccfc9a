"""Definitions as RabbitMQ exports them, of one vhost or all, and files that are none.

About `core.topology.definitions`, `broker.definitions_file`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deadletter.broker.definitions_file import read_definitions
from deadletter.core.topology.vhost import DestinationKind
from deadletter.errors import UsageError


def written(tmp_path: Path, document: object) -> Path:
    path = tmp_path / "definitions.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_every_vhost_is_read(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {
            "rabbitmq_version": "3.10.8",
            "vhosts": [{"name": "/"}, {"name": "empty"}],
            "queues": [
                {"vhost": "/", "name": "orders", "durable": True, "arguments": {"x-queue-type": "quorum"}},
                {"vhost": "other", "name": "mail", "durable": False, "arguments": {}},
            ],
            "exchanges": [{"vhost": "/", "name": "in", "type": "topic"}],
            "bindings": [
                {"vhost": "/", "source": "in", "destination": "orders", "destination_type": "queue",
                 "routing_key": "o.#", "arguments": {}},
                {"vhost": "/", "source": "in", "destination": "amq.fanout", "destination_type": "exchange",
                 "routing_key": "", "arguments": {}},
            ],
            "policies": [
                {"vhost": "/", "name": "p", "pattern": "^o", "apply-to": "quorum_queues",
                 "definition": {"max-length": 10}, "priority": 3},
            ],
            "parameters": [
                {"vhost": "/", "component": "operator_policy", "name": "op",
                 "value": {"pattern": "", "apply-to": "queues", "definition": {"max-length": 4}}},
                {"vhost": "/", "component": "shovel", "name": "s", "value": {}},
            ],
        },
    )  # fmt: skip
    found = read_definitions(path)

    assert set(found) == {"/", "empty", "other"}
    orders = found["/"].queues["orders"]
    assert (orders.type, orders.max_length, orders.policy, orders.operator_policy) == ("quorum", 4, "p", "op")
    assert "x-queue-type" not in orders.arguments
    assert {binding.to for binding in found["/"].bindings} == {
        DestinationKind.QUEUE,
        DestinationKind.EXCHANGE,
    }
    assert not found["other"].queues["mail"].durable
    assert found["/"].version == "3.10.8"
    assert found["/"].permissions is None
    assert not found["empty"].queues
    assert "amq.topic" in found["empty"].exchanges


def test_the_export_of_one_vhost_names_it_nowhere(tmp_path: Path) -> None:
    path = written(tmp_path, {"queues": [{"name": "orders"}], "exchanges": [], "bindings": []})
    found = read_definitions(path, version="4.3.6")
    assert list(found) == ["/"]
    assert found["/"].version == "4.3.6"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("{", "expected JSON"),
        ("[]", "expected RabbitMQ definitions"),
        ({"users": []}, "expected RabbitMQ definitions"),
        ({"queues": {}}, "queues: expected a list of objects"),
        ({"queues": [{"durable": True}]}, r"queues\[0\]"),
        ({"queues": [], "policies": [{"name": "p"}]}, r"policies\[0\]"),
        ({"queues": [], "bindings": [{"source": "a", "destination": "b", "destination_type": "hall"}]},
         r"bindings\[0\]"),
    ],
)  # fmt: skip
def test_what_is_no_export_is_refused_with_its_place(tmp_path: Path, document: object, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_definitions(written(tmp_path, document))


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_definitions(tmp_path / "nothing.json")
