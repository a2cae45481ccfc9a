"""Lines for a shell that we tell people to run: `rabbitmqctl` and `rabbitmqadmin`, every word quoted.

A vhost with a space, a queue with a quote or a dollar in its name must not become another command.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from typing import Final

from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.rabbitmq_versions import Traits

_SPECIAL: Final = re.compile(r"([.^$*+?()\[\]{}|\\])")


def set_policy(policy: BrokerPolicy, vhost: str) -> str:
    return _ctl(
        "set_operator_policy" if policy.operator else "set_policy",
        vhost,
        *("--apply-to", policy.apply_to, "--priority", str(policy.priority), policy.name, policy.pattern),
        json.dumps(dict(policy.definition), ensure_ascii=False, default=repr),
    )


def clear_policy(name: str, vhost: str, *, operator: bool = False) -> str:
    return _ctl("clear_operator_policy" if operator else "clear_policy", vhost, name)


def set_permissions(user: str, vhost: str, patterns: Iterable[str]) -> str:
    """`patterns`: configure, write, read."""
    return _ctl("set_permissions", vhost, user, *patterns)


def delete_queue(queue: str, vhost: str) -> str:
    return _ctl("delete_queue", vhost, queue)


def list_bindings(vhost: str) -> str:
    return _ctl("list_bindings", vhost)


def set_user_tags(user: str, *tags: str) -> str:
    return shlex.join(("rabbitmqctl", "set_user_tags", user, *tags))


def admin(traits: Traits, vhost: str, what: str, **options: str) -> str:
    """`rabbitmqadmin`; `what` is as `declare queue`. From 4.3 on the tool is another one, with other
    spelling."""
    if traits.new_admin_tool:
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
        return shlex.join(("rabbitmqadmin", "--vhost", vhost, *what.split(), *words))
    words = [f"{name}={value}" for name, value in options.items()]
    return shlex.join(("rabbitmqadmin", f"--vhost={vhost}", *what.split(), *words))


def named(name: str) -> str:
    """The pattern of a policy for this name alone, as a person writes it. `layouts.naming.exactly` means the
    same and escapes more: its patterns are on brokers, so it stays as it is."""
    escaped = _SPECIAL.sub(r"\\\1", name)
    return f"^{escaped}$"


def _ctl(verb: str, vhost: str, *words: str) -> str:
    return shlex.join(("rabbitmqctl", verb, "-p", vhost, *words))
