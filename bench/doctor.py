"""Whether the doctor is there at once for a large broker: `python -m bench.doctor`.

A definitions file with 10,000 queues and 30,000 bindings (topic and direct exchanges, dead-letter
exchanges, policies; every tenth queue at fault) is examined by `dlq doctor --definitions` as a user runs it,
in a process of its own. Two bars: 3 seconds, the start of the command included, median of the rounds; 300 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from bench import report
from bench.errors import BenchError
from bench.figures import Bar
from bench.options import positive

QUEUES: Final = 10_000
BINDINGS: Final = 30_000
SECONDS_BAR: Final = 3.0
MEMORY_BAR_MB: Final = 300.0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.doctor", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--queues", type=positive, default=QUEUES, help="(%(default)s)")
    parser.add_argument("--bindings", type=positive, default=BINDINGS, help="(%(default)s)")
    parser.add_argument("--rounds", type=positive, default=5, help="(%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "definitions.json"
        path.write_text(json.dumps(definitions(options.queues, options.bindings)))
        try:
            runs = [examine(path) for _ in range(options.rounds)]
        except BenchError as error:
            print(f"The measurement broke off: {error}", file=sys.stderr)
            return 2
    seconds = median(run.seconds for run in runs)
    peak_mb = max(run.peak_mb for run in runs)
    what = f"{options.queues:,} queues, {options.bindings:,} bindings, {runs[0].findings:,} findings"
    bars = [
        Bar(what=f"{what}: {seconds:.2f} s, allowed {SECONDS_BAR:g}", passed=seconds <= SECONDS_BAR),
        Bar(what=f"{what}: {peak_mb:.0f} MB, allowed {MEMORY_BAR_MB:.0f}", passed=peak_mb <= MEMORY_BAR_MB),
    ]
    report.show_bars(report.wide_console(), bars)
    return 0 if all(bar.passed for bar in bars) else 1


class Examined(NamedTuple):
    """One run of the command, from its start to its end."""

    seconds: float
    cpu_s: float
    peak_mb: float
    findings: int


def examine(path: Path) -> Examined:
    """The doctor on a file of definitions."""
    command = [str(Path(sys.executable).with_name("dlq")), "doctor", "--definitions", str(path), "--json"]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    taken = time.perf_counter() - started
    if process.returncode != 1:
        raise BenchError(f"{' '.join(command)} ended with {process.returncode}: {said.decode()[:500]}")
    (vhost,) = json.loads(said)["vhosts"]
    return Examined(taken, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000, len(vhost["findings"]))


def definitions(queues: int, bindings: int) -> dict[str, Any]:
    """A large vhost as RabbitMQ exports it: some queues dead-letter by key, some by topic, some nowhere."""
    exchanges = [
        {"name": "events", "type": "topic"},
        {"name": "commands", "type": "direct"},
        {"name": "news", "type": "fanout"},
        {"name": "dlx", "type": "direct"},
        {"name": "dlx.topic", "type": "topic"},
    ]
    made: list[dict[str, Any]] = []
    bound: list[dict[str, Any]] = []
    for number in range(queues // 2):
        service, name, dlq = number % 200, f"service{number % 200}.queue{number}", f"dlq.queue{number}"
        arguments: dict[str, Any] = {"x-queue-type": ("classic", "quorum")[number % 2]}
        match number % 10:
            case 0:
                arguments |= {"x-dead-letter-exchange": "nowhere"}
            case 1 | 2 | 3:
                arguments |= {"x-dead-letter-exchange": "dlx.topic"}
            case _:
                arguments |= {"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": dlq}
        made += [
            {"name": name, "arguments": arguments},
            {"name": dlq, "arguments": {"x-queue-type": arguments["x-queue-type"], "x-delivery-limit": -1}},
        ]
        bound += [
            {"source": "events", "destination": name, "routing_key": f"service{service}.event{number}.*"},
            {"source": "commands", "destination": name, "routing_key": f"do.{number}"},
            {"source": "dlx", "destination": dlq, "routing_key": dlq},
            {"source": "dlx.topic", "destination": dlq, "routing_key": f"service{service}.event{number}.#"},
            {"source": "dlx.topic", "destination": dlq, "routing_key": f"do.{number}"},
        ]
    for number in range(bindings - len(bound)):
        queue = made[2 * (number % (queues // 2))]["name"]
        bound.append({"source": "events", "destination": queue, "routing_key": f"*.more{number}.#"})
    return {
        "rabbitmq_version": "4.3.6",
        "vhosts": [{"name": "/"}],
        "users": [],
        "permissions": [{"user": "app", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
        "policies": [
            {"vhost": "/", "name": f"p{n}", "pattern": f"^service{n}\\.", "apply-to": "queues",
             "definition": {"max-length": 100_000}, "priority": n}
            for n in range(20)
        ],
        "queues": [{"vhost": "/", "durable": True, "auto_delete": False, **queue} for queue in made],
        "exchanges": [{"vhost": "/", "durable": True, **exchange} for exchange in exchanges],
        "bindings": [
            {"vhost": "/", "destination_type": "queue", "arguments": {}, **binding} for binding in bound
        ],
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
