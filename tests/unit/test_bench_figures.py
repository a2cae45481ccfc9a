"""What the measurements in `bench` make of their runs: what is quiet, quotable, red, and how it is said."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench import chart, figures, growth_chart, growth_figures, markdown
from bench.__main__ import worst
from bench.agreement import agree, most_rounds
from bench.conditions import Conditions
from bench.errors import BenchError
from bench.figures import Bar, Row
from bench.ground import QueueType
from bench.growth_figures import Point
from bench.quiet import Mark, Process, Quiet, Ticks, heard, noise, shares, spread, ticks
from bench.race import Run

AT_REST = Quiet(
    load=0.1, idle_before=0.98, steal=0.0, idle=0.1, others=0.01, loudest="cron", spin_spread=0.01
)
STAT = "cpu  100 20 30 400 50 6 7 8 9 0\ncpu0 1 2 3 4 5 6 7 8 9 0\nintr 12\n"


def conditions(load: float = 0.1) -> Conditions:
    return Conditions(
        at="2026-01-02T03:04:05+00:00", cores=2, load=load, python="3.11.7", uvloop="0.2", pika="1.3",
        aio_pika="9.5", body_bytes=1000, prefetch=1000, rounds=5, most_rounds=9, cpu="Some CPU",
        memory_gb=16.2, kernel="6.1", brokers=("RabbitMQ 4.3.6 on Erlang 27",),
    )  # fmt: skip


def run(
    mover: str,
    per_s: float,
    number: int,
    *,
    broker: str = "4.3.6",
    queue_type: QueueType = "quorum",
    cpu_us: float = 15.0,
    count: int = 50_000,
    quiet: Quiet = AT_REST,
    complaint: str | None = None,
) -> Run:
    return Run(
        broker=broker, queue_type=queue_type, mover=mover, round=number, count=count, seconds=count / per_s,
        cpu_us=None if mover == "shovel" else cpu_us, rss_start_bytes=None, rss_peak_bytes=None,
        complaint=complaint, quiet=quiet,
    )  # fmt: skip


def round_of(number: int, *, ours: float = 1.3, whole: float = 1.2, limit: float = 1.4) -> list[Run]:
    """One round with these times the shovel's pace, which is another in each."""
    shovel = 10_000.0 + 1_000 * number
    paces = {"dlq move": whole, "shovel": 1.0, "courier": ours, "spliced": limit}
    return [run(mover, shovel * times, number) for mover, times in paces.items()]


def quiet_runs(rounds: int = 5) -> list[Run]:
    return [one for number in range(1, rounds + 1) for one in round_of(number)]


def row(mover: str, runs: list[Run], busy: str = "") -> Row:
    (found,) = [one for one in figures.rows(runs, busy=busy) if one.mover == mover]
    return found


def said(bars: list[Bar]) -> list[tuple[bool, str]]:
    return [(bar.passed, bar.what.partition(": ")[2]) for bar in bars]


class TestQuiet:
    def test_the_first_line_of_the_kernel_s_figures(self) -> None:
        assert ticks(STAT) == Ticks(busy=150, idle=450, steal=8)

    def test_shares_of_the_time_between(self) -> None:
        before, after = Ticks(busy=0, idle=0, steal=0), Ticks(busy=30, idle=60, steal=10)
        assert shares(before, after) == (0.6, 0.1)
        assert shares(after, after) == (0.0, 0.0)

    def test_others_are_who_is_left(self) -> None:
        start = Mark(
            at=10.0,
            stat=Ticks(busy=1000, idle=0, steal=0),
            processes={
                1: Process(name="bench", parent=0, own=100),
                2: Process(name="mover", parent=1, own=40),
                3: Process(name="broker", parent=0, own=500),
                4: Process(name="cron", parent=0, own=7),
                8: Process(name="kthreadd", parent=0, own=1),
                9: Process(name="kworker", parent=8, own=300),  # will have ended, and be in nobody
            },
            ours=frozenset({1, 2, 3}),
            kernel=frozenset({8, 9}),
        )
        end = Mark(
            at=12.0,
            stat=Ticks(busy=1400, idle=0, steal=0),
            processes={
                1: Process(name="bench", parent=0, own=110, ended=140),  # the mover has ended
                3: Process(name="broker", parent=0, own=650),
                4: Process(name="cron", parent=0, own=17, ended=9000),  # an old child of its has ended
                5: Process(name="make", parent=0, own=60),
                8: Process(name="kthreadd", parent=0, own=1),
                10: Process(name="kworker", parent=8, own=20),
            },
            ours=frozenset({1, 3}),
            kernel=frozenset({8, 10}),
        )
        told = heard(start, end, ticks_per_s=100)
        # 400 in all, 110 of them the mover's and this process's, 150 the broker's, 20 the kernel's
        assert told.others == pytest.approx(120 / 100 / 2)
        assert told.loudest == "make"
        # At least what those say of themselves that are still there, and never below nothing.
        unseen = heard(start, replace(end, stat=start.stat), ticks_per_s=100)
        assert unseen.others == pytest.approx(70 / 100 / 2)
        alone = replace(end, stat=start.stat, processes={1: end.processes[1], 3: end.processes[3]})
        assert heard(start, alone, ticks_per_s=100).others == 0.0

    def test_spread_is_between_the_quartiles(self) -> None:
        assert spread([1.0]) == 0.0
        assert spread([1.0, 1.0, 1.0, 1.0, 9.0]) == 0.0
        assert spread([0.9, 0.95, 1.0, 1.05, 1.1]) == pytest.approx(0.1)

    def test_at_rest_there_is_no_noise(self) -> None:
        assert noise(AT_REST) == ()

    @pytest.mark.parametrize(
        ("loud", "words"),
        [
            ({"steal": 0.034}, "3.4% of the time stolen"),
            ({"others": 0.5}, "others took 50% of a core, mostly cron"),
            ({"others": 0.5, "loudest": ""}, "others took 50% of a core"),
            ({"idle_before": 0.4}, "only 40% idle before"),
            ({"spin_spread": 0.2}, "the idle loop spreads 20%"),
        ],
    )
    def test_noise_is_said(self, loud: dict[str, object], words: str) -> None:
        values = {name: getattr(AT_REST, name) for name in Quiet.__slots__}
        assert noise(Quiet(**{**values, **loud})) == (words,)


class TestAgreement:
    def test_rounds_that_agree(self) -> None:
        found = agree(dict.fromkeys(range(1, 6), 0.9), {}, to="the look")
        assert (found.ratio.median, found.quotable) == (0.9, True)
        assert str(found.ratio) == "0.90 × (0.90–0.90)"

    def test_every_doubt_is_said(self) -> None:
        found = agree({1: 0.5, 2: 1.0}, {2: ("it was loud",)}, to="the look", busy="load 9")
        assert found.doubts == (
            "load 9",
            "rounds: 2, needed 5",
            "the machine was not quiet in 1 of 2 rounds (the last: it was loud)",
            "its ratios to the look are 33.3% apart between the quartiles, allowed 3%",
        )

    def test_rounds_that_were_not_quiet_are_left_out_where_enough_were(self) -> None:
        ratios = {**dict.fromkeys(range(1, 6), 0.9), 6: 0.1}
        assert agree(ratios, {6: ("it was loud",)}, to="the look").ratio.low == 0.9

    @pytest.mark.parametrize(
        ("least", "asked", "most"), [(5, None, 9), (1, None, 1), (1, 3, 3), (12, None, 12), (5, 2, 5)]
    )
    def test_who_asks_for_few_rounds_does_not_get_many(
        self, least: int, asked: int | None, most: int
    ) -> None:
        assert most_rounds(least, asked) == most


class TestRows:
    def test_ratios_are_taken_within_a_round(self) -> None:
        ours = row("courier", quiet_runs())
        assert ours.to_shovel is not None
        assert ours.to_limit is not None
        assert ours.to_shovel.median == pytest.approx(1.3)
        assert ours.to_shovel.spread == pytest.approx(0.0)
        assert ours.to_limit.median == pytest.approx(1.3 / 1.4)
        assert (ours.rounds, ours.quotable) == (5, True)

    def test_there_and_back_are_one_pace(self) -> None:
        runs = [
            run(mover, per_s, 1)
            for mover, per_s in (
                ("shovel", 10_000.0),
                ("courier", 15_000.0),
                ("courier", 10_000.0),
                ("shovel", 10_000.0),
            )
        ]
        ours = row("courier", runs)
        assert ours.rounds == 1
        assert ours.per_s == pytest.approx(12_000)
        assert ours.to_shovel is not None
        assert ours.to_shovel.median == pytest.approx(1.2)

    def test_few_rounds_are_not_quotable(self) -> None:
        assert row("courier", quiet_runs(4)).doubts == ("rounds: 4, needed 5",)

    def test_few_letters_are_not_quotable(self) -> None:
        runs = [run(mover, 1000.0, n, count=2000) for n in range(1, 6) for mover in ("courier", "shovel")]
        assert row("courier", runs).doubts == ("2,000 letters, needed 50,000",)

    def test_ratios_far_apart_are_not_quotable(self) -> None:
        runs = [one for n in range(1, 6) for one in round_of(n, ours=1.3 + n / 20)]
        found = row("courier", runs)
        assert "apart between the quartiles, allowed 3%" in found.doubts[0]
        assert row("dlq move", runs).quotable
        assert not figures.settled(runs)

    def test_a_load_at_the_start_is_a_doubt_about_all(self) -> None:
        found = figures.rows(quiet_runs(), busy="load 3.0 on 2 cores at the start")
        assert {one.doubts for one in found} == {("load 3.0 on 2 cores at the start",)}

    def test_a_round_that_was_not_quiet_is_left_out_where_enough_are(self) -> None:
        loud = Quiet(load=2, idle_before=0.9, steal=0.2, idle=0, others=0, loudest="", spin_spread=0)
        runs = [*quiet_runs(5), *round_of(6)[:3], run("spliced", 3.0, 6, quiet=loud)]
        assert row("spliced", runs).per_s_range[0] > 3.0
        assert row("courier", runs).rounds == 5
        assert figures.settled(runs)

    def test_where_too_few_were_quiet_all_are_shown_and_doubted(self) -> None:
        loud = Quiet(load=2, idle_before=0.9, steal=0.2, idle=0, others=0, loudest="", spin_spread=0)
        runs = [*quiet_runs(4), run("shovel", 10.0, 5, quiet=loud), run("courier", 13.0, 5, quiet=loud)]
        found = row("courier", runs)
        assert found.rounds == 5
        assert found.doubts == (
            "the machine was not quiet in 1 of 5 rounds (the last: 20.0% of the time stolen)",
        )
        assert not figures.settled(runs)


class TestBars:
    def test_what_is_promised_where(self) -> None:
        assert figures.ratio_bar("3.10.8", "classic") == 1.05
        assert figures.ratio_bar("3.10.8", "quorum") == 1.15
        assert figures.ratio_bar("4.3.6", "classic") == figures.ratio_bar("4.3.6", "quorum") == 1.25
        assert figures.ratio_bar("4.0.9", "quorum") is None
        assert figures.ratio_bar("3.1.0", "quorum") is None

    def test_all_met(self) -> None:
        bars = figures.bars(figures.rows(quiet_runs()))
        assert said(bars) == [
            (True, "1.200 × shovel, needed at least 1.1 ×"),
            (True, "1.300 × shovel, needed at least 1.25 ×"),
            (True, "0.929 × the limit, needed at least 0.85 ×"),
            (True, "15.0 µs CPU per letter, allowed 18"),
        ]
        assert figures.exit_code(bars) == 0

    @pytest.mark.parametrize(
        ("runs", "red"),
        [
            ([one for n in range(1, 6) for one in round_of(n, ours=1.24)], "1.240 × shovel"),
            ([one for n in range(1, 6) for one in round_of(n, whole=1.09)], "1.090 × shovel"),
            ([one for n in range(1, 6) for one in round_of(n, limit=1.6)], "0.812 × the limit"),
            ([*quiet_runs(), *(run("courier", 1e4, n, cpu_us=18.1) for n in range(6, 16))], "18.1 µs CPU"),
        ],
    )
    def test_one_red_is_said_and_ends_with_1(self, runs: list[Run], red: str) -> None:
        table = figures.rows(runs)
        bars = figures.bars(table)
        (found,) = [bar for bar in bars if not bar.passed]
        assert red in found.what
        assert figures.exit_code(bars) == 1
        assert "RED" in {figures.verdict(one) for one in table}

    def test_what_passes_and_is_not_quotable_ends_with_3(self) -> None:
        table = figures.rows(quiet_runs(3))
        assert figures.exit_code(figures.bars(table)) == 3
        assert [figures.verdict(one) for one in table] == [
            "PASS, not quotable",
            "not quotable",
            "PASS, not quotable",
            "not quotable",
        ]

    def test_a_lost_letter_is_red_whoever_lost_it(self) -> None:
        runs = [*quiet_runs(), run("pika", 1e3, 5, complaint="a letter is gone")]
        bars = figures.bars(figures.rows(runs))
        assert [bar.what for bar in bars if not bar.passed] == [
            "pika, RabbitMQ 4.3.6, quorum: round 5: a letter is gone"
        ]


class TestGrowth:
    POINTS = (
        Point(part="queues", size=20, figures={"ready s": 1.0, "idle % of a core": 0.2, "MB": 100.0}),
        Point(part="queues", size=2000, figures={"ready s": 3.9, "idle % of a core": 1.4, "MB": 140.0}),
        Point(part="letters", size=1000, figures={"CPU µs/letter": 20.0}),
    )

    def test_bars_are_about_the_most_queues(self) -> None:
        found = growth_figures.bars(self.POINTS)
        assert [(bar.what, bar.passed, bar.quotable) for bar in found] == [
            ("2,000 watched queues: ready after 3.9 s, allowed 4", True, True),
            ("2,000 watched queues, idle: 1.40 % of a core, allowed 1.5", True, True),
        ]

    @pytest.mark.parametrize(
        ("figures_", "red"),
        [({"ready s": 4.1, "idle % of a core": 1.0}, 0), ({"ready s": 1.0, "idle % of a core": 1.5}, 1)],
    )
    def test_either_can_be_red(self, figures_: dict[str, float], red: int) -> None:
        found = growth_figures.bars([Point(part="queues", size=2000, figures=figures_)])
        assert [bar.passed for bar in found].index(False) == red
        assert figures.exit_code(found) == 1

    def test_fewer_queues_or_noise_are_not_quotable(self) -> None:
        assert not growth_figures.bars(self.POINTS[:1])[0].quotable
        assert "(the bar is for 2,000)" in growth_figures.bars(self.POINTS[:1])[0].what
        assert not growth_figures.bars(self.POINTS, busy="load 9")[0].quotable
        assert not growth_figures.bars([replace(self.POINTS[1], noise=("loud",))])[0].quotable
        assert growth_figures.bars(self.POINTS[2:]) == []

    def test_the_picture_has_what_was_measured(self) -> None:
        drawn = growth_chart.draw(self.POINTS, conditions())
        assert "dlq serve, by watched queues" in drawn
        assert "dlq doctor" not in drawn
        assert "NOT QUOTABLE" not in drawn
        assert "NOT QUOTABLE" in growth_chart.draw(self.POINTS, conditions(load=2.0))
        assert "NOT QUOTABLE" in growth_chart.draw([replace(self.POINTS[0], noise=("loud",))], conditions())
        assert "Nothing has been measured yet" in growth_chart.draw([], None)


def test_all_together_end_with_the_worst() -> None:
    assert worst([]) == 0
    assert worst([0, 3, 0]) == 3
    assert worst([3, 1, 0]) == 1
    assert worst([1, 2, 3]) == 2
    assert worst([0, -9]) == 2


class TestPictureAndPage:
    def test_the_picture_says_what_is_not_quotable(self) -> None:
        good = chart.draw(figures.rows(quiet_runs()), conditions())
        bad = chart.draw(figures.rows(quiet_runs(), busy="load"), conditions())
        assert "NOT QUOTABLE" not in good
        assert "NOT QUOTABLE" in bad
        assert "1.30× · 93% · 15 µs" in good
        assert "1.30× · 93% · 15 µs ?" in bad
        assert "2 × Some CPU, 16 GB, Linux 6.1, Python 3.11.7, RabbitMQ 4.3.6 on Erlang 27" in good

    def test_the_table_for_a_page(self) -> None:
        text = markdown.table(figures.rows(quiet_runs()), conditions())
        assert (
            "| 4.3.6 | quorum | **`courier`** | 16,900 | 1.30 (1.30–1.30) | 0.93 (0.93–0.93) | 15.0 | PASS |"
            in text
        )
        assert "Not quotable" not in text
        assert "2 × Some CPU" in text

    def test_the_table_says_why_it_is_not_quotable(self) -> None:
        text = markdown.table(
            figures.rows(quiet_runs(), busy="load 3.0 on 2 cores at the start"), conditions()
        )
        assert "PASS, not quotable" in text
        assert "- RabbitMQ 4.3.6, quorum: load 3.0 on 2 cores at the start\n" in text

    def test_a_doubt_about_some_names_them(self) -> None:
        runs = [one for n in range(1, 6) for one in round_of(n, ours=1.3 + n / 20)]
        assert figures.doubted(figures.rows(runs))[0].startswith(
            "RabbitMQ 4.3.6, quorum, courier: its ratios"
        )

    def test_only_what_is_between_the_marks_is_replaced(self) -> None:
        page = f"before\n{markdown.BEGIN}\nold\n{markdown.END}\nafter\n"
        new = markdown.replaced(page, "new\n")
        assert new == f"before\n{markdown.BEGIN}\nnew\n{markdown.END}\nafter\n"
        assert markdown.replaced(new, "new\n") == new

    @pytest.mark.parametrize("page", ["", markdown.BEGIN, f"{markdown.END}\n{markdown.BEGIN}"])
    def test_a_page_without_marks_is_refused(self, page: str) -> None:
        with pytest.raises(BenchError, match="bench:movers"):
            markdown.replaced(page, "")
