"""What a person reads: the table, the bars, and the notes that keep the figures honest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench import figures
from bench.agreement import Ratio
from bench.conditions import Conditions
from bench.figures import Bar, Row

WIDTH_MIN: Final = 140
"""A table in a file or a log is not cut to 80 columns."""


def wide_console() -> Console:
    return Console(width=max(WIDTH_MIN, Console().width))


def show_movers(console: Console, conditions: Conditions, table: Sequence[Row], bars: Sequence[Bar]) -> None:
    console.print()
    console.print(_movers_table(table))
    console.print(
        f"{conditions.machine}.\n{conditions}.\n"
        "From “go” until the target has every letter; connecting counts, imports do not. “dlq move” is the "
        "whole command, from Enter to its end, imports and all. Each figure is the median of the rounds that "
        "count (lowest to highest). × shovel and × limit: within each round, then the median; the limit is "
        "“spliced”, which passes letters on unread and keeps no books. CPU: of the client's process; a "
        "shovel's is the broker's and is not told apart.",
        soft_wrap=True,
    )
    if fewer := figures.fewer(table):
        console.print(f"Slow movers moved fewer letters: {fewer}.", soft_wrap=True)
    for doubt in figures.doubted(table):
        console.print(f"[yellow]Not quotable:[/] {escape(doubt)}", soft_wrap=True, highlight=False)
    show_bars(console, bars)


def warn_if_busy(console: Console, load: float, cores: int, *, is_busy: bool) -> None:
    if is_busy:
        console.print(
            f"[yellow]The machine was busy at the start (load {load:.1f} on {cores} cores): "
            "do not quote these figures.[/]",
            soft_wrap=True,
        )


def _movers_table(table: Sequence[Row]) -> Table:
    shown = Table(title="Moving dead letters, confirmed before acked", title_justify="left")
    shown.add_column("RabbitMQ")
    shown.add_column("queues")
    shown.add_column("mover", no_wrap=True)
    for name in ("letters", "letters/s", "(range)", "× shovel", "(range)", "× limit", "CPU µs/letter"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("", no_wrap=True)
    before: tuple[str, str] | None = None
    for row in table:
        where = (row.broker, row.queue_type)
        if before is not None and where != before:
            shown.add_section()
        shown.add_row(
            *(where if where != before else ("", "")),
            row.mover,
            f"{row.count:,}",
            f"{row.per_s:,.0f}",
            "{:,.0f}–{:,.0f}".format(*row.per_s_range),
            _times(row.to_shovel),
            "–" if row.to_shovel is None else f"{row.to_shovel.low:.2f}–{row.to_shovel.high:.2f}",
            _times(row.to_limit),
            "n/a" if row.cpu_us is None else f"{row.cpu_us:.1f}",
            _coloured(figures.verdict(row)),
            style="bold" if row.mover == figures.OURS else "",
        )
        before = where
    return shown


def _times(ratio: Ratio | None) -> str:
    return "–" if ratio is None else f"{ratio.median:.2f}"


def _coloured(verdict: str) -> str:
    if verdict.startswith("RED"):
        return f"[red]{verdict}[/]"
    return f"[yellow]{verdict}[/]" if "not quotable" in verdict else f"[green]{verdict}[/]"


def show_bars(console: Console, bars: Sequence[Bar]) -> None:
    console.print()
    for bar in bars:
        word = "[green]PASS[/]" if bar.passed else "[red]RED [/]"
        note = "" if bar.quotable else " [yellow](not quotable)[/]"
        console.print(f"{word} {escape(bar.what)}{note}", soft_wrap=True, highlight=False)
