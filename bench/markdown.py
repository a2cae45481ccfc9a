"""The movers' table for a page, in Markdown, put between two marks: nobody copies figures by hand.

<!-- bench:movers -->
<!-- /bench:movers -->
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bench import figures
from bench.agreement import SPREAD_MOST, Ratio, apart
from bench.conditions import Conditions
from bench.errors import BenchError
from bench.figures import Row

BEGIN: Final = "<!-- bench:movers -->"
END: Final = "<!-- /bench:movers -->"


def table(rows: Sequence[Row], conditions: Conditions) -> str:
    """The table, and under it what it was taken on."""
    lines = [
        "| RabbitMQ | queues | mover | letters/s | × shovel | × limit | CPU µs/letter | |",
        "|---|---|---|--:|--:|--:|--:|---|",
        *(_line(row) for row in rows),
        "",
        f"{conditions.machine}; {conditions}.",
        "× shovel and × limit: within each round, the median (lowest to highest).",
    ]
    if not all(row.quotable for row in rows):
        lines += ["", "Not quotable:", "", *(f"- {doubt}" for doubt in _doubts(rows))]
    return "\n".join(lines) + "\n"


def _doubts(rows: Sequence[Row]) -> list[str]:
    """Of each place one line with all ratios that are too far apart; whatever else is doubtful as it is."""
    found: list[str] = []
    rest: list[Row] = []
    for place, there in figures.grouped(rows, lambda row: f"RabbitMQ {row.broker}, {row.queue_type}").items():
        wide: list[str] = []
        for row in there:
            said = {to: ratio.spread for to, ratio in _ratios(row) if {*apart(ratio, to)} & {*row.doubts}}
            if said:
                spreads = " and ".join(f"{spread:.1%} to {to}" for to, spread in said.items())
                wide.append(f"`{row.mover}` {spreads}")
            told = {doubt for to, ratio in _ratios(row) for doubt in apart(ratio, to)}
            rest.append(replace(row, doubts=tuple(doubt for doubt in row.doubts if doubt not in told)))
        if wide:
            found.append(
                f"{place}, ratios more than {SPREAD_MOST:.0%} apart between the quartiles: {', '.join(wide)}"
            )
    return found + figures.doubted(rest)


def _ratios(row: Row) -> list[tuple[str, Ratio]]:
    """What it is compared with, in the words of a doubt."""
    both = (("the shovel", row.to_shovel), ("the limit", row.to_limit))
    return [(to, ratio) for to, ratio in both if ratio is not None]


def _line(row: Row) -> str:
    name = f"**`{row.mover}`**" if row.mover == figures.OURS else f"`{row.mover}`"
    cells = [
        row.broker,
        row.queue_type,
        name,
        f"{row.per_s:,.0f}",
        _times(row.to_shovel),
        _times(row.to_limit),
        "–" if row.cpu_us is None else f"{row.cpu_us:.1f}",
        figures.verdict(row),
    ]
    return f"| {' | '.join(cells)} |"


def _times(ratio: Ratio | None) -> str:
    return "–" if ratio is None else f"{ratio.median:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"


def replaced(page: str, text: str) -> str:
    """The page with this text between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchError(f"expected a line {BEGIN} and after it a line {END}, found no such two")
    return f"{before}{BEGIN}\n{text}{END}{after}"
