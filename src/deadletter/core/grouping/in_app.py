"""Which frames are the application's own: the ones in which somebody of the team would look for the fault.

Ordered rules, the first that fits decides: what the file says, then where packages of each language live,
then the names of runtimes and frameworks. What nothing knows is the application's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from deadletter.core.grouping.stacks import Frame
from deadletter.core.text.glob import glob

_INSTALLED: Final = re.compile(
    r"site-packages|dist-packages|/deadletter/(?:consumer|adapters)/|/lib/python\d|[/\\]lib[/\\]python\d|^<"
    r"|node_modules|^node:|^internal/|/vendor/|/gems/|/go/pkg/mod/|/usr/(?:local/)?go/|/usr/share/php/"
    r"|/usr/lib/(?:ruby|go)|/rubygems/|/\.pyenv/|/\.cargo/|\\Python3\d+\\Lib\\"
)
_RUNTIME: Final = re.compile(
    r"(?:java|javax|jdk|sun|com\.sun|kotlin|kotlinx|scala|groovy|akka|reactor|io\.netty|org\.springframework"
    r"|org\.apache|org\.hibernate|com\.rabbitmq|com\.zaxxer|com\.fasterxml|System|Microsoft|MassTransit"
    r"|NServiceBus|RabbitMQ|GreenPipes|Newtonsoft|Npgsql|EasyNetQ|Autofac|Polly|runtime|net|reflect|sync"
    r"|encoding|database|testing)(?:[./]|$)"
)
_LIBRARY: Final = re.compile(
    r"(?:builtins|httpx|httpcore|requests|urllib3|aiohttp|sqlalchemy|psycopg\d?|asyncpg|sqlite3|pydantic\w*"
    r"|json|asyncio|concurrent|socket|ssl|redis|celery|kombu|amqp|pika|aio_pika|jinja2|django|botocore|grpc"
    r"|Symfony|Doctrine|GuzzleHttp|Illuminate|PDO|JSON|Net|Errno|Bunny|ActiveRecord|Faraday|OpenSSL"
    r"|deadletter)(?:\.|$)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCode:
    """What the file says of frames: patterns on path or module, with `*` for any run."""

    ours: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()

    def has(self, frame: Frame) -> bool:
        """Whether a frame is the application's."""
        names = (frame.path, frame.module, str(frame))
        if any(glob(pattern, name) for pattern in self.ours for name in names):
            return True
        if any(glob(pattern, name) for pattern in self.foreign for name in names):
            return False
        if _INSTALLED.search(frame.path):
            return False
        return "/" in frame.path or "\\" in frame.path or not _RUNTIME.match(frame.module)

    def names(self, error_type: str) -> bool:
        """Whether an error's type is one of the application's own: it has a namespace, and nobody else's."""
        module = error_type.replace("\\", ".").replace("::", ".").rpartition(".")[0]
        return bool(module) and not _RUNTIME.match(module) and not _LIBRARY.match(module)


BY_DEFAULT: Final = OwnCode()
