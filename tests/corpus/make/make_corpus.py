"""Makes the corpus of failures: real frameworks, a real broker, and what they left in their dead-letter queues.

Each framework has a program. It is put where an application would be, run once per release of that application,
and ended when all that it sent has failed. It tells what it sent in a list: a key that occurs in the letter, the
group to which the letter belongs, and why. Then the dead letters are taken as bytes and written down.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import re
import shutil
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from tests.brokers import Vhost, call
from tests.postbox import run, with_channel

from deadletter.amqp.channel import Channel, Delivery
from deadletter.core.letter import message, names
from deadletter.testing.node.private import PrivateBroker, private_broker

HERE: Final = Path(__file__).resolve().parent
CORPUS: Final = HERE.parent / "failures"
VHOST: Final = "corpus"
SHOWN_CHARS: Final = 80
"""Of a long text in the readable part; the whole is in the bytes."""
PATIENCE_S: Final = 150.0
HEADINGS: Final = 23
"""Lines that the second release has above each module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A program, where it is put, how it is started, and the queues in which its failures end."""

    name: str
    app: str
    """The application, its folder below /srv and, in Python, its package."""
    command: Sequence[str]
    """In the application's folder; `{tools}` is where the frameworks are installed."""
    queues: Sequence[str]
    version: Sequence[str]
    """A command that prints it."""
    shared: str | None = None
    """A folder of sources that this framework shares with others."""
    link: tuple[str, str] | None = None
    """What of the tools is linked into the application's folder, and under which name."""
    upgrade: tuple[str, str] | None = None
    """The same of the second release, where it is another: a newer Python."""
    moved: bool = False
    """Whether the second release is in another folder."""
    broker: str = "4.3"
    releases: int = 2


def _pip(*packages: str) -> Sequence[str]:
    told = "+' '+".join(f"'{package} '+version('{package}')" for package in packages)
    return ("{tools}/py/bin/python", "-c", f"from importlib.metadata import version;print({told})")


def _npm(folder: str, package: str) -> Sequence[str]:
    told = f"require('{{tools}}/{folder}/node_modules/{package}/package.json').version"
    return ("node", "-p", f"'{package} '+{told}+' on node '+process.version")


def _deb(*packages: str) -> Sequence[str]:
    return ("dpkg-query", "-W", "-f", "${{Package}} ${{Version}} ", *packages)


_PYTHON: Final = ("venv/bin/python", "worker.py")
_VENV: Final = ("py", "venv")
_NODE: Final = ("node", "--preserve-symlinks", "worker.js")
_MODULES: Final = ("node/node_modules", "node_modules")
FRAMEWORKS: Final = (
    Framework(
        name="deadletter", app="shop", command=_PYTHON, queues=("deadletter.parked",), shared="python",
        link=_VENV, version=_pip("deadletter"), moved=True,
    ),
    Framework(
        name="celery", app="billing", command=_PYTHON, queues=("billing.dlq", "billing.failed"), shared="python",
        link=_VENV, version=_pip("celery", "kombu"),
    ),
    Framework(
        name="dramatiq", app="media", command=_PYTHON, queues=("media.XQ", "media.fast.XQ"), shared="python",
        link=_VENV, version=_pip("dramatiq"),
    ),
    Framework(
        name="faststream", app="parcels", command=_PYTHON,
        queues=("parcels.orders__dlq", "parcels.imports__dlq"), shared="python",
        link=_VENV, version=_pip("faststream", "aio-pika"),
    ),
    Framework(
        name="aiopika", app="bakery", command=_PYTHON, queues=("bakery.orders__dlq",), shared="python",
        link=_VENV, upgrade=("py313", "venv"), version=_pip("aio-pika", "deadletter"),
    ),
    Framework(
        name="kombu", app="ledger", command=_PYTHON, queues=("ledger.errors",), shared="python",
        link=_VENV, version=_pip("kombu"), moved=True,
    ),
    Framework(
        name="taskiq", app="notify", command=_PYTHON, queues=("notify.dead_letter",), shared="python",
        link=_VENV, version=_pip("taskiq", "taskiq-aio-pika"),
    ),
    Framework(
        name="amqplib", app="webshop", command=_NODE, queues=("webshop.errors",), shared="node", link=_MODULES,
        version=_npm("node", "amqplib"),
    ),
    Framework(
        name="rascal", app="depot", command=_NODE, queues=("depot.dead", "depot.errors"), shared="node",
        link=_MODULES, version=_npm("node", "rascal"),
    ),
    Framework(
        name="moleculer", app="fleet", command=_NODE, queues=("fleet.dead",),
        link=("moleculer/node_modules", "node_modules"), version=_npm("moleculer", "@moleculer/channels"), releases=1,
    ),
    Framework(
        name="symfony", app="catalog", command=("php", "worker.php"),
        queues=("catalog.failed", "prices.failed", "catalog.rejected"), version=_deb("php-symfony-messenger", "php-cli"),
    ),
    Framework(
        name="java", app="freight", command=("sh", "start.sh"), queues=("freight.errors",),
        version=_deb("librabbitmq-client-java", "openjdk-17-jdk-headless"),
    ),
    Framework(
        name="ruby", app="harbour", command=("ruby", "worker.rb"), queues=("harbour.errors",),
        version=_deb("ruby-bunny", "ruby"), moved=True,
    ),
    *(
        Framework(
            name=f"rabbitmq-{version}", app="mill", command=_PYTHON, queues=("mill.dead",), shared="plain",
            link=_VENV, version=_pip("pika"), broker=version, releases=1,
        )
        for version in ("3.10", "4.3")
    ),
)  # fmt: skip


# -- what the applications ask over HTTP -------------------------------------------------------------------
class _Gateway(BaseHTTPRequestHandler):
    """`/503/…` and `/404/…` answer so, `/slow/…` not in time."""

    def do_GET(self) -> None:  # noqa: N802 -- the name the library wants
        way = self.path.split("/")[1]
        if way == "slow":
            time.sleep(2.0)
        self.send_response(int(way) if way.isdecimal() else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET  # noqa: N815 -- likewise

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- likewise
        pass


@contextmanager
def gateway() -> Iterator[str]:
    """A server on a port of its own, until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Gateway)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()


# -- the application, as it is deployed --------------------------------------------------------------------
def deploy(framework: Framework, release: int, tools: Path) -> Path:
    """Put the sources of one release where the application lives; the second has other lines."""
    home = Path("/srv", framework.app)
    where = home / "releases" / f"2026111{release}" if framework.moved else home
    shutil.rmtree(home if release == 1 else where, ignore_errors=True)
    where.mkdir(parents=True, exist_ok=True)
    own = HERE / framework.name
    sources = [*own.rglob("*"), *((HERE / framework.shared).rglob("*") if framework.shared else ())]
    for source in sources:
        if not source.is_file() or "__pycache__" in source.parts:
            continue
        base = own if source.is_relative_to(own) else HERE / str(framework.shared)
        named = str(source.relative_to(base)).replace("shop/", f"{framework.app}/")
        target = where / named
        target.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text()
        if framework.shared == "python":
            text = re.sub(r"\bshop\b", framework.app, text)
        target.write_text(text if release == 1 else shifted(text, source.suffix))
    link = framework.upgrade if release == 2 and framework.upgrade else framework.link
    if link is not None:
        there, name = link
        (where / name).unlink(missing_ok=True)
        (where / name).symlink_to(tools / there)
    return where


def shifted(text: str, suffix: str) -> str:
    """The same program with a notice above it and a comment before each function: a later release."""
    sign, function = {
        ".py": ("#", r"^(?=(async )?def )"),
        ".js": ("//", r"^(?=(async )?function )"),
        ".php": ("//", r"^(?=    public )"),
        ".rb": ("#", r"^(?=  def )"),
        ".java": ("//", r"^(?=    (static|public|private) )"),
    }.get(suffix, ("", ""))
    if not sign:
        return text
    first, rest = ("<?php\n", text.removeprefix("<?php\n")) if suffix == ".php" else ("", text)
    with_comments = re.sub(function, f"{sign} Reviewed for the second release.\n", rest, flags=re.MULTILINE)
    return first + f"{sign} All rights reserved.\n" * HEADINGS + with_comments


# -- one framework ----------------------------------------------------------------------------------------
def make(framework: Framework, broker: PrivateBroker, tools: Path) -> list[dict[str, object]]:
    """Run its program for each release, and take what died."""
    call(broker, "DELETE", "vhosts", VHOST)
    call(broker, "PUT", "vhosts", VHOST)
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    vhost = Vhost(name=VHOST, broker=broker)
    user = vhost.url.split("://")[1].split(":")[0]
    call(broker, "PUT", "permissions", VHOST, user, content=everything)
    sent_list = Path("/srv", f"{framework.app}.sent")
    sent_list.unlink(missing_ok=True)
    for release in range(1, framework.releases + 1):
        where = deploy(framework, release, tools)
        with gateway() as url:
            environment = {
                **os.environ,
                "AMQP_URL": vhost.url, "AMQP_API": broker.api, "GATEWAY": url, "RELEASE": str(release),
                "FRAMEWORK": framework.name, "SENT": str(sent_list), "TOOLS": str(tools),
            }  # fmt: skip
            told = [part.format(tools=tools) for part in framework.command]
            with Path("/srv", f"{framework.app}.log").open("w" if release == 1 else "a") as log:
                program = subprocess.Popen(
                    told, cwd=where, env=environment, stdout=log, stderr=log, start_new_session=True
                )
                try:
                    _wait(vhost, framework, sent_list, program, release)
                finally:
                    program.terminate()
                    try:
                        program.wait(15)
                    except subprocess.TimeoutExpired:
                        program.kill()
                        program.wait()
    version = subprocess.run(
        [part.format(tools=tools) for part in framework.version], capture_output=True, text=True, check=True
    ).stdout.strip()
    sent = [json.loads(line) for line in sent_list.read_text().splitlines()]
    return list(_records(framework, version, broker.version, vhost, sent))


def _wait(
    vhost: Vhost, framework: Framework, sent: Path, program: subprocess.Popen[bytes], release: int
) -> None:
    """Until as many letters are dead as were sent, and some time over: the list may still grow."""
    deadline, quiet = time.monotonic() + PATIENCE_S, 0
    there, wanted = 0, 0
    while quiet < 3:
        if time.monotonic() > deadline or program.poll() not in (None, 0):
            print(f"{framework.name}: {there} of {wanted} letters, exit {program.poll()}; see /srv/*.log")
            return
        time.sleep(1.0)
        told = [json.loads(line) for line in sent.read_text().splitlines()] if sent.exists() else []
        begun = any(entry["release"] == release for entry in told)
        before, wanted = wanted, len(told)
        there = sum(vhost.depth(queue) or 0 for queue in framework.queues)
        quiet = quiet + 1 if begun and before == wanted <= there else 0


def _records(
    framework: Framework, version: str, broker: str, vhost: Vhost, sent: list[dict[str, object]]
) -> Iterator[dict[str, object]]:
    left = {str(entry["key"]): entry for entry in sent}
    met: set[str] = set()
    for queue in framework.queues:
        for delivery in taken(vhost.url, queue):
            raw = delivery.message
            seen = raw.properties + raw.body
            key = next((key for key in left if key.encode() in seen), None)
            if key is None:
                print(f"{framework.name}: a letter in {queue} that nobody sent: {raw.body[:200]!r}")
                continue
            entry = left.pop(key)
            expect = f"{framework.name}/{entry['expect']}"
            yield {
                "expect": expect,
                "why": entry["why"],
                "arguable": entry.get("arguable", ""),
                "framework": framework.name,
                "version": version,
                "release": entry["release"],
                "rabbitmq": broker,
                "queue": queue,
                "exchange": delivery.exchange.decode(),
                "routing_key": delivery.routing_key.decode(),
                "redelivered": delivery.redelivered,
                **({} if expect in met else {"shown": shown(raw.properties)}),
                "properties": packed(raw.properties),
                "body": packed(raw.body),
            }
            met.add(expect)
    for entry in left.values():
        print(f"{framework.name}: not dead: {entry}")


def packed(raw: bytes) -> str:
    """Exact, and short: stacks repeat themselves."""
    return base64.b64encode(zlib.compress(raw, 9)).decode()


def taken(url: str, queue: str) -> list[Delivery]:
    """Everything in the queue, as bytes."""

    async def work(channel: Channel) -> list[Delivery]:
        found = []
        while (delivery := await channel.get(queue)) is not None:
            found.append(delivery)
            channel.ack(delivery.tag)
        await channel.close()
        await asyncio.sleep(0.05)
        return found

    return run(with_channel(url, work))


def shown(properties: bytes) -> dict[str, object]:
    """Properties and headers for people, long texts cut."""
    view = message.view(properties)
    fields = {name: getattr(view, name) for name in view.__slots__ if getattr(view, name) is not None}
    if "headers" in fields:
        fields["headers"] = {
            name: value for name, value in fields["headers"].items() if name not in names.DEATH_SUMMARY
        }
    return {name: _plain(value) for name, value in fields.items()}


def _plain(value: object) -> object:
    match value:
        case str():
            return value if len(value) <= SHOWN_CHARS else f"{value[:SHOWN_CHARS]}… ({len(value)} characters)"
        case bytes():
            return _plain(value.decode("utf-8", "backslashreplace"))
        case dict():
            return {name: _plain(entry) for name, entry in value.items()}
        case list():
            return [_plain(entry) for entry in value]
        case datetime():
            return value.isoformat()
        case bool() | int() | float() | None:
            return value
        case _:
            return str(value)


def main() -> None:
    known = [framework.name for framework in FRAMEWORKS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=Path, required=True, help="where the frameworks are installed")
    parser.add_argument("frameworks", nargs="*", metavar="framework", help=", ".join(known))
    wishes = parser.parse_args()
    wanted = [one for one in FRAMEWORKS if one.name in (wishes.frameworks or known)]
    CORPUS.mkdir(exist_ok=True)
    for version in sorted({one.broker for one in wanted}):
        with private_broker(version) as broker:
            for framework in (one for one in wanted if one.broker == version):
                records = make(replace(framework), broker, wishes.tools)
                lines = (json.dumps(record, ensure_ascii=False, separators=(",", ":")) for record in records)
                (CORPUS / f"{framework.name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
                print(framework.name, len(records), "letters,", len({r["expect"] for r in records}), "groups")


if __name__ == "__main__":
    main()
