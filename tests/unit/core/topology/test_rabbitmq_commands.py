"""Lines for a shell, whatever the names in them are made of, and which of them is advised.

About `core.topology.rabbitmq_commands`, `operations.lifting`.
"""

from __future__ import annotations

import json
import re
import shlex

import pytest

from deadletter.core.topology import rabbitmq_commands
from deadletter.core.topology.look_cost import deliveries_of
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.rabbitmq_versions import traits_of
from deadletter.operations.lifting import Taking

ODD = 'it\'s $(odd); "x" ü'


def test_a_policy_says_what_was_meant_behind_any_shell() -> None:
    policy = BrokerPolicy(
        name=ODD, pattern="^a b$", definition={"dead-letter-exchange": ODD}, apply_to="queues", priority=7
    )
    words = shlex.split(rabbitmq_commands.set_policy(policy, "/a b"))
    assert words[:-1] == [
        *("rabbitmqctl", "set_policy", "-p", "/a b", "--apply-to", "queues", "--priority", "7"),
        *(ODD, "^a b$"),
    ]
    assert json.loads(words[-1]) == {"dead-letter-exchange": ODD}


def test_an_operator_policy_has_commands_of_its_own() -> None:
    policy = BrokerPolicy(name="p", pattern="", definition={"expires": 1}, operator=True)
    assert rabbitmq_commands.set_policy(policy, "/").startswith("rabbitmqctl set_operator_policy -p / ")
    assert (
        rabbitmq_commands.clear_policy("p", "/", operator=True) == "rabbitmqctl clear_operator_policy -p / p"
    )


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (rabbitmq_commands.clear_policy(ODD, "a b"), ["clear_policy", "-p", "a b", ODD]),
        (rabbitmq_commands.delete_queue(ODD, "a b"), ["delete_queue", "-p", "a b", ODD]),
        (rabbitmq_commands.list_bindings("a b"), ["list_bindings", "-p", "a b"]),
        (rabbitmq_commands.set_user_tags(ODD, "management"), ["set_user_tags", ODD, "management"]),
        (
            rabbitmq_commands.set_permissions(ODD, "a b", ("^a$", "", ".*")),
            ["set_permissions", "-p", "a b", ODD, "^a$", "", ".*"],
        ),
    ],
)
def test_every_word_arrives_as_it_is(command: str, words: list[str]) -> None:
    assert shlex.split(command) == ["rabbitmqctl", *words]


def test_the_two_tools_named_rabbitmqadmin() -> None:
    options = {"name": "a b", "destination_type": "queue"}
    old = rabbitmq_commands.admin(traits_of("4.2.0"), "/v w", "declare queue", **options)
    new = rabbitmq_commands.admin(traits_of("4.3.0"), "/v w", "declare queue", **options)
    assert shlex.split(old) == [
        *("rabbitmqadmin", "--vhost=/v w", "declare", "queue", "name=a b", "destination_type=queue"),
    ]
    assert shlex.split(new) == [
        *("rabbitmqadmin", "--vhost", "/v w", "declare", "queue"),
        *("--name", "a b", "--destination-type", "queue"),
    ]


@pytest.mark.parametrize("name", ["orders", "my-service.events", "a+b(c)[d]{e}|f^g$h\\i*?"])
def test_a_pattern_for_one_name(name: str) -> None:
    assert re.fullmatch(rabbitmq_commands.named(name), name)
    assert not re.search(rabbitmq_commands.named(name), f"{name}x")


@pytest.mark.parametrize(("version", "advised"), [("3.10.8", False), ("4.0.5", True), ("", True)])
def test_no_policy_is_advised_that_would_destroy_letters(version: str, advised: bool) -> None:
    """Before 4.0 a delivery limit of -1 makes the first return the last."""
    taking = Taking(queue="dlq", vhost="/", server_version=version, deliveries=deliveries_of(version, 5))
    assert ("set_policy" in taking.advice) is advised
