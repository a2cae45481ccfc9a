"""`dlq check`: what died too often goes to a queue for permanent failures; made for cron."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from deadletter import config
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.output import Exit, columns, data, parked_lines, result
from deadletter.cli.terminal.screen import MoveScreen
from deadletter.cli.terminal.units import count
from deadletter.core.text.durations import elapsed_text
from deadletter.core.text.safe_text import line
from deadletter.core.topology.queue_patterns import mapping
from deadletter.errors import UsageError
from deadletter.operations.checking import CheckWish, QueueReport, Report, check


def run(
    *,
    dlq: str | None,
    target: str | None,
    max_retries: int | None,
    count_by: str | None,
    create: bool | None,
    target_type: str | None,
    prefetch: int,
    lift_limit: bool,
    dry_run: bool,
    file: Path | None,
    url: str | None,
    api: str | None,
    as_json: bool,
) -> Exit:
    options = {
        "broker.url": url,
        "broker.api": api,
        "check.dlq": dlq,
        "check.target": target,
        "check.max_retries": max_retries,
        "check.count_by": count_by,
        "check.create": create,
        "check.target_type": target_type,
    }
    settings = config.load_command(config=file, options=options)
    asked = settings.check
    if asked is None or asked.dlq is None or asked.target is None:
        said = (None, None) if asked is None else (asked.dlq, asked.target)
        missing = " and ".join(
            name for name, value in zip(("--dlq", "--target"), said, strict=True) if value is None
        )
        raise UsageError(f"expected {missing}, as options or in the [check] section of deadletter.toml")
    wish = CheckWish(
        names=mapping(asked.dlq, asked.target),
        max_retries=asked.max_retries,
        count_by=asked.count_by,
        dry_run=dry_run,
        create=asked.create,
        target_type=asked.target_type,
        api=settings.broker.api,
        prefetch=prefetch,
        lift_limit=lift_limit,
    )
    addresses = settings.broker.addresses

    async def work() -> Report:
        with MoveScreen(wish.names.source) as screen:
            return await check(addresses, wish, on_event=screen.on_event_at)

    report = event_loop.run(work())
    if as_json:
        data(_as_json(report))
    else:
        result(_as_text(report, wish))
    return Exit.DONE if all(queue.complete for queue in report.queues) else Exit.LEFT


def _as_text(report: Report, wish: CheckWish) -> str:
    if not report.queues:
        return f"no queue is named by {wish.names.source!r}; nothing to do"
    verb = "would move" if report.dry_run else "moved"
    rows = [["queue", "target", "seen", verb, "left", "failed", "took"]]
    rows += [
        [
            q.queue,
            q.target,
            f"{q.seen:,}",
            f"{q.moved:,}",
            f"{q.left:,}",
            f"{q.failed:,}",
            elapsed_text(q.seconds),
        ]
        for q in report.queues
    ]
    lines = [columns(rows)]
    for queue in report.queues:
        lines += [line(f"{queue.queue}: {said}") for said in _remarks(queue)]
    moved = sum(queue.moved for queue in report.queues)
    seen = sum(queue.seen for queue in report.queues)
    lines.append(
        f"{verb} {count(moved)} of {seen:,} in {count(len(report.queues), 'queue')}, "
        f"{elapsed_text(report.seconds)}"
    )
    if any(queue.left for queue in report.queues):
        lines.append(
            "what stayed was put back: in its old order on classic queues, mostly so on quorum queues"
        )
    return "\n".join(lines)


def _remarks(queue: QueueReport) -> list[str]:
    said = [] if queue.error is None else [f"not checked: {queue.error}"]
    said += [f"{count(number)} could not be moved and stayed: {why}" for why, number in queue.reasons.items()]
    if queue.maybe_twice:
        said.append(
            f"after a lost connection up to {count(queue.maybe_twice)} may be in both queues, with the same "
            "deadletter-id"
        )
    return said + parked_lines(queue.queue, queue.parked, queue.endangered) + list(queue.notes)


def _as_json(report: Report) -> dict[str, object]:
    return {
        "dry_run": report.dry_run,
        "broker": report.server_version,
        "seconds": round(report.seconds, 3),
        "queues": [asdict(queue) | {"seconds": round(queue.seconds, 3)} for queue in report.queues],
    }
