"""`dlq doctor`: where letters can be lost, multiplied, stuck or spun here, and what to do about it."""

from __future__ import annotations

import gc
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from deadletter import __version__, config
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.output import Exit, data, result
from deadletter.cli.terminal.units import count
from deadletter.core.text.durations import elapsed_text
from deadletter.core.text.safe_text import block, exact_json, is_plain, line
from deadletter.doctor.finding import Finding, Severity
from deadletter.doctor.rules import RULES
from deadletter.doctor.sarif import sarif
from deadletter.errors import UsageError
from deadletter.operations.examining import Diagnosis, Examined, examine_broker, examine_file

Format = Literal["text", "json", "sarif"]
WIDTH: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorWish:
    """What was asked for, as it was typed."""

    definitions: Path | None
    vhost: str | None
    broker_version: str | None
    ignore: Sequence[str]
    at_least: str
    format: str
    rules: bool
    file: Path | None
    url: str | None
    api: str | None
    as_json: bool


def run(wish: DoctorWish) -> Exit:
    return _list_rules(as_json=wish.as_json) if wish.rules else _examine(wish)


def _examine(wish: DoctorWish) -> Exit:
    # Hundreds of thousands of small values that all live to the end of a short process: looking for garbage
    # among them over and over was two fifths of the time on a large broker.
    gc.disable()
    form, at_least = _format("json" if wish.as_json else wish.format), _severity(wish.at_least)
    ignore = frozenset(name for text in wish.ignore for name in text.replace(",", " ").split())
    settings = config.load_command(config=wish.file, options={"broker.url": wish.url, "broker.api": wish.api})
    if wish.definitions is not None:
        told = examine_file(
            wish.definitions,
            vhost=wish.vhost,
            version=wish.broker_version,
            watches=settings.watches,
            ignore=ignore,
            at_least=at_least,
        )
    elif wish.vhost is not None or wish.broker_version is not None:
        raise UsageError(
            "expected --vhost and --broker-version together with --definitions only; a live broker tells its "
            "version, and its vhost is in --url"
        )
    else:
        told = event_loop.run(
            examine_broker(
                settings.broker.addresses[0],
                settings.broker.api,
                watches=settings.watches,
                ignore=ignore,
                at_least=at_least,
            )
        )
    _tell(told, form)
    return Exit.LEFT if told.findings else Exit.DONE


def _list_rules(*, as_json: bool) -> Exit:
    """Every rule, with what it is about."""
    if as_json:
        told = [
            {"id": r.id, "harm": r.harm.value, "live": r.live, "summary": r.summary, "why": r.why}
            for r in RULES
        ]
        data(told)
        return Exit.DONE
    blocks = [
        f"{rule.id}  ({rule.harm.value}{', live brokers only' if rule.live else ''})\n"
        + _wrapped(rule.summary)
        + "\n"
        + _wrapped(rule.why)
        for rule in RULES
    ]
    result("\n\n".join(blocks))
    return Exit.DONE


def _format(text: str) -> Format:
    match text:
        case "text" | "json" | "sarif":
            return text
        case _:
            raise UsageError(f"--format: expected text, json or sarif, got {text!r}")


def _severity(text: str) -> Severity:
    try:
        return Severity(text)
    except ValueError:
        raise UsageError(f"--at-least: expected error, warning or note, got {text!r}") from None


def _tell(told: Diagnosis, form: Format) -> None:
    match form:
        case "text":
            result(_as_text(told))
        case "json":
            data(_as_json(told))
        case "sarif":
            log = sarif(
                [(vhost.vhost, finding) for vhost in told.vhosts for finding in vhost.findings],
                RULES,
                version=__version__,
                file=str(told.file) if told.file is not None else None,
            )
            result(exact_json(log, indent=2))


def _as_text(told: Diagnosis) -> str:
    blocks: list[str] = []
    for vhost in told.vhosts:
        blocks += [finding_text(finding) for finding in vhost.findings]
        blocks.append(_summary(vhost, told))
    return "\n\n".join(blocks)


def finding_text(finding: Finding) -> str:
    """One finding as a person reads it."""
    rows = [
        ["path", line(" → ".join(finding.path))],
        ["why", _in_line(finding, finding.why)],
        ["fix", _in_line(finding, finding.fix)],
    ]
    head = (
        f"{finding.severity.value.upper()}  {line(finding.subject)}  {finding.harm.value}  [{finding.rule}]"
    )
    return "\n".join([head, *(_labelled(label, text) for label, text in rows)])


def _in_line(finding: Finding, text: str) -> str:
    """Without the lines that only a name makes: one could bring a command of its own to be copied."""
    for said in (finding.subject, *finding.path):
        for name in (said, said.partition(" ")[2]):
            if name and not is_plain(name):
                text = text.replace(name, line(name))
    return block(text)


def _labelled(label: str, text: str) -> str:
    # A command stays on one line, however long: it is there to be copied.
    lines = [
        line
        for paragraph in text.split("\n")
        for line in (
            [paragraph]
            if paragraph.lstrip().startswith(("rabbitmq", "dlq "))
            else textwrap.wrap(paragraph, WIDTH - 8, break_long_words=False, break_on_hyphens=False) or [""]
        )
    ]
    return "\n".join(f"  {label if number == 0 else '':<4}  {line}" for number, line in enumerate(lines))


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _summary(vhost: Examined, told: Diagnosis) -> str:
    where = f"{told.source}, vhost {vhost.vhost!r}" if told.file is not None else told.source
    version = f"RabbitMQ {vhost.version}" if vhost.version else "version not known (--broker-version)"
    found = [
        count(number, severity.value)
        for severity in Severity
        if (number := sum(finding.severity is severity for finding in vhost.findings))
    ]
    size = [
        count(vhost.queues, "queue"),
        count(vhost.exchanges, "exchange"),
        count(vhost.bindings, "binding"),
        elapsed_text(told.seconds),
    ]
    lines = [f"{', '.join(found) or 'nothing found'} in {where} ({version}): {', '.join(size)}"]
    if not vhost.live:
        lines.append("a file shows the shape only: consumers, growth and ages need a live broker")
    elif not vhost.permissions_known:
        lines.append("permissions were not looked at: the management API tells them to administrators only")
    return "\n".join(lines)


def _as_json(told: Diagnosis) -> dict[str, object]:
    return {
        "source": told.source,
        "seconds": round(told.seconds, 3),
        "vhosts": [
            {
                "vhost": vhost.vhost,
                "broker": vhost.version,
                "live": vhost.live,
                "queues": vhost.queues,
                "exchanges": vhost.exchanges,
                "bindings": vhost.bindings,
                "permissions_known": vhost.permissions_known,
                "findings": [
                    {
                        "rule": finding.rule,
                        "severity": finding.severity.value,
                        "harm": finding.harm.value,
                        "subject": finding.subject,
                        "path": list(finding.path),
                        "why": finding.why,
                        "fix": finding.fix,
                    }
                    for finding in vhost.findings
                ],
            }
            for vhost in told.vhosts
        ],
    }
