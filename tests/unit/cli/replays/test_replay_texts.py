"""Replays on a terminal: nothing is claimed that nobody said, nothing foreign acts, what to do next is there.

About `cli.replays.replay_text`, `operations.replays.next_commands`, `cli.replays.pace_options`,
`cli.replays.plan_options`, `operations.wording.pace_words`, `operations.wording.replay_words`,
`operations.wording.turning`, `cli.replays.edit_trial`, `cli.replays.watching`, `cli.replays.deploy_command`.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recorded import HOSTILE

from deadletter.cli.replays.deploy_command import deployed_text, deploys_text
from deadletter.cli.replays.edit_trial import EditTrial, trial_lines
from deadletter.cli.replays.pace_options import PaceOptions
from deadletter.cli.replays.plan_options import EditOptions, TargetOptions, outcome_ms
from deadletter.cli.replays.replay_text import (
    before_text,
    detail_text,
    outcomes_text,
    page_text,
)
from deadletter.cli.replays.watching import LivePicture, ended, picture_lines
from deadletter.cli.terminal.output import Exit
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.replaying.letter_diff import ChangeKind, LetterDifference
from deadletter.core.replaying.preflight import Remark, RemarkLevel
from deadletter.core.replaying.replay_pace import AllAtOnce, Auto, Canary, ReplayPace, pace_json
from deadletter.core.replaying.replay_plan import selection_from, selection_json
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.core.replaying.replay_target import HOME, ReplayTarget, ToExchange, ToQueue, target_json
from deadletter.core.text.safe_text import is_plain
from deadletter.errors import UsageError
from deadletter.operations.records.records import json_of
from deadletter.operations.replays.next_commands import (
    next_lines,
    selection_arguments,
    selection_words,
    typed,
)
from deadletter.operations.replays.replay_told import (
    CanaryStep,
    DeployPage,
    DeployTold,
    EditFailure,
    EditSample,
    OfferedGroup,
    OutcomePage,
    OutcomeState,
    OutcomeTold,
    PreflightTold,
    ReplayDetail,
    ReplayPage,
    ReplayTold,
    ReplayWish,
    StepPlace,
)
from deadletter.operations.wording.pace_words import pace_arguments, pace_words, typed_pace
from deadletter.operations.wording.replay_words import counts_words, left_words
from deadletter.store.replays.deploy_table import Deploy
from deadletter.store.replays.replay_views import ReplayCounts

NOW = 1_750_000_000_000
COUNTS = ReplayCounts(waiting=480, sending=7, sent=100, refused=2, returned=3, done=600, quiet=12, doubtful=1)
REPLAY = ReplayTold(
    id=7,
    vhost="/",
    made_ms=NOW - 180_000,
    who="anna",
    why="the ledger is back",
    state=ReplayState.RUNNING,
    selection={"group": 12},
    target=target_json(HOME),
    pace=json_of(pace_json(Canary())),
    edit=".body.amount |= tonumber",
    recipe="amounts",
    letters=1_204,
    counts=COUNTS,
    outcome_ms=600_000,
    resolves=False,
    overrules_guards=False,
    began_ms=NOW - 170_000,
    last_sent_ms=NOW - 1_000,
    ended_ms=None,
    left_ms=None,
    holder="i1",
    waits_for="step 3: the outcome of 100 is not known yet",
)
DETAIL = ReplayDetail(
    replay=REPLAY,
    origins=("orders", "mail"),
    steps=(
        CanaryStep(number=1, letters=1, place=StepPlace.BEHIND),
        CanaryStep(number=2, letters=10, place=StepPlace.BEHIND),
        CanaryStep(number=3, letters=100, place=StepPlace.NOW, sent=40, returned=1),
        CanaryStep(number=4, letters=1_000, place=StepPlace.AHEAD),
    ),
    newcomers=5,
)
WISH = ReplayWish(selection=LetterQuery(group=12))
BEFORE = PreflightTold(
    vhost="/",
    remarks=(
        Remark(level=RemarkLevel.STOP, about="limit", text="it throws out its oldest ones for good"),
        Remark(level=RemarkLevel.OK, about="target", text="queue 'orders' is there"),
    ),
    letters=1_204,
    exact=True,
    unanswered=0,
    origins={"orders": 1_200, "mail": 4},
    sample=(),
    drafts=0,
)


# -- what is said ------------------------------------------------------------------------------------------
def test_one_replay() -> None:
    told = detail_text(DETAIL, now_ms=NOW)
    for said in (
        "replay 7: running, begun 3 min ago, by anna: the ledger is back",
        "the queues they failed in: orders, mail",
        "1 done with, 10 done with, 100 NOW (40 sent, 1 back), 1,000",
        "recipe amounts: .body.amount |= tonumber",
        "1,204 frozen (--group 12); 5 came since and are left out",
        "nobody can say: a canary waits for outcomes",
        "waits      step 3: the outcome of 100 is not known yet",
        "not returned in 10 min",
        "may have gone twice, with the same id",
        "dlq replays 7 --watch",
        "dlq replay pause 7",
        "dlq replays 7 --outcomes back",
    ):
        assert said in told, said


def test_nobody_claims_success() -> None:
    """Of what did not come back nobody knows more than that."""
    over = replace(
        REPLAY, state=ReplayState.DONE, ended_ms=NOW, counts=ReplayCounts(quiet=1_204), waits_for=""
    )
    texts = [
        detail_text(replace(DETAIL, replay=over, steps=()), now_ms=NOW),
        page_text(ReplayPage(replays=(over,), more=None), now_ms=NOW),
        outcomes_text(over, OutcomePage(outcomes=(OUTCOME,), more=None), "quiet", now_ms=NOW),
        counts_words(over),
    ]
    for told in texts:
        claimed = told.replace("nobody said that it succeeded", "")
        assert not re.search(r"succe|delivered|processed|handled", claimed), told
    assert "not returned in 10 min" in texts[2]
    assert "not returned in 10 min" in texts[3]
    assert "dlq resolve 12" in texts[0], "it is for a person to say that it is cured"
    assert "dlq resolve" not in detail_text(
        replace(DETAIL, replay=replace(over, counts=ReplayCounts(quiet=1_200, returned=4))), now_ms=NOW
    )


OUTCOME = OutcomeTold(
    letter=812,
    letter_id="ab" * 16,
    state=OutcomeState.QUIET,
    doubtful=False,
    why="",
    sent_ms=NOW - 600_000,
    ended_ms=NOW,
    after_ms=600_000,
    returned_letter=None,
    returned_group=None,
    same_group=None,
    error="",
)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"state": OutcomeState.DONE, "after_ms": 3_000}, "done after 3 s: its consumer said so"),
        (
            {
                "state": OutcomeState.RETURNED, "after_ms": 12_000, "returned_letter": 990,
                "returned_group": 12, "same_group": True, "error": "PaymentTimeout",
            },
            "back after 12 s as letter 990, same group: PaymentTimeout",
        ),
        (
            {
                "state": OutcomeState.RETURNED, "after_ms": 12_000, "returned_letter": 990,
                "returned_group": 14, "same_group": False,
            },
            "back after 12 s as letter 990, ANOTHER group (14)",
        ),
        ({"state": OutcomeState.REFUSED, "why": "no queue"}, "refused, in the store: no queue"),
        ({"state": OutcomeState.LET_GO, "sent_ms": None}, "never sent, in the store"),
        ({"doubtful": True}, "MAY HAVE GONE TWICE; not returned in 10 min"),
        ({"state": OutcomeState.SENT}, "the outcome is not known yet"),
        ({"state": OutcomeState.SENDING}, "being sent"),
        ({"state": OutcomeState.WAITING}, "not sent yet"),
    ],
)  # fmt: skip
def test_an_outcome(changed: dict[str, Any], said: str) -> None:
    one = replace(OUTCOME, **changed)
    told = outcomes_text(REPLAY, OutcomePage(outcomes=(one,), more=812), "back", now_ms=NOW)
    assert said in told
    assert "--after 812" in told
    assert f"dlq show {one.returned_letter or 812}" in told


def test_before_one() -> None:
    told = before_text(WISH, BEFORE, ["amounts", "3 letters: …"], now_ms=NOW, width=None)
    for said in (
        "would replay 1,204 letters to the queues they failed in",
        "orders 1,200, mail 4",
        'what is not back after 10 min is told as "not returned"',
        "STOP  limit",
        "the edit",
    ):
        assert said in told, said
    some = before_text(WISH, replace(BEFORE, exact=False, unanswered=2), [], now_ms=NOW, width=None)
    assert "at least 1,204 letters" in some
    assert "of 2 letters the jq program could say nothing" in some


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"left_ms": 240_000}, "about 4 min until all are sent"),
        ({}, "a canary waits for outcomes"),
        ({"pace": {"pace": "all", "rate_per_s": None}}, "nobody can say yet"),
        ({"state": ReplayState.PAUSED}, None),
        ({"counts": ReplayCounts(sent=5)}, None),
    ],
)
def test_the_time_left_is_honest(changed: dict[str, Any], said: str | None) -> None:
    told = left_words(replace(REPLAY, **changed))
    assert told is None if said is None else said in str(told)


# -- the next thing ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("state", "counts", "lines"),
    [
        (ReplayState.FREEZING, ReplayCounts(), ["dlq replays 7 --watch", "dlq replay pause 7"]),
        (ReplayState.PAUSED, ReplayCounts(waiting=3), ["dlq replay resume 7", "dlq replay cancel 7"]),
        (
            ReplayState.STOPPED,
            ReplayCounts(returned=1, let_go=9),
            ["dlq replays 7 --outcomes back", "dlq replay --group 12"],
        ),
        (ReplayState.CANCELLED, ReplayCounts(let_go=9), ["dlq replay --group 12"]),
        (ReplayState.DONE, ReplayCounts(done=9), ["dlq replays 7 --outcomes all", "dlq resolve 12"]),
        (
            ReplayState.DONE,
            ReplayCounts(refused=1, quiet=8, doubtful=2),
            ["dlq replays 7 --outcomes refused", "dlq replays 7 --outcomes doubtful"],
        ),
    ],
)
def test_every_state_has_a_next_command(state: ReplayState, counts: ReplayCounts, lines: list[str]) -> None:
    replay = replace(REPLAY, state=state, counts=counts)
    assert [said for _, said in next_lines(replay)] == lines
    for said in lines:
        assert said in detail_text(replace(DETAIL, replay=replay), now_ms=NOW)


@given(
    st.builds(
        LetterQuery,
        ids=st.lists(st.integers(1, 10**6), max_size=5, unique=True).map(tuple),
        queue=st.none() | st.text(min_size=1),
        group=st.none() | st.integers(1, 10**6),
        error=st.none() | st.text(min_size=1),
        died_from_ms=st.none() | st.integers(0, 4 * 10**12),
        headers=st.lists(st.tuples(st.text(min_size=1), st.text()), max_size=2).map(tuple),
        where=st.none() | st.text(min_size=1),
    )
)
def test_what_is_typed_means_the_same_letters(query: LetterQuery) -> None:
    words = selection_arguments(json_of(selection_json(query)))
    assert words is not None
    assert shlex.split(shlex.join(words)) == words
    for option, value in (("--queue", query.queue), ("--error", query.error), ("--where", query.where)):
        assert (words[words.index(option) + 1] if option in words else None) == value or option in (
            query.queue, query.error, query.where,
        )  # fmt: skip
    said = typed("replay", *words)
    assert said is None or is_plain(said), "what cannot be shown as it is typed is not shown"


def test_a_selection_that_nobody_can_type_is_told_in_words() -> None:
    many = {"ids": list(range(1_000))}
    assert selection_arguments(many) is None
    assert selection_words(many) == "1,000 letters by number"
    assert selection_arguments({"of_a_newer_version": 1}) is None
    assert selection_arguments({"died_from_ms": 1_750_000_000_123}) == ["--since", "2025-06-15T15:06:40.123"]
    assert selection_from({"group": 12}).group == 12


# -- foreign text ------------------------------------------------------------------------------------------
def test_nothing_foreign_acts_on_a_terminal() -> None:
    evil = replace(
        REPLAY,
        who=HOSTILE,
        why=f"{HOSTILE}\nreplay 8: done",
        selection={"error": HOSTILE, "queue": "x;reboot"},
        target=target_json(ToExchange(exchange=HOSTILE, key=HOSTILE)),
        edit=HOSTILE,
        recipe=HOSTILE,
        waits_for=HOSTILE,
        state=ReplayState.STOPPED,
        counts=ReplayCounts(let_go=3),
    )
    outcome = replace(OUTCOME, state=OutcomeState.RETURNED, error=f"{HOSTILE}\n{HOSTILE}", why=HOSTILE)
    trial = EditTrial(
        letters=2,
        changed=1,
        failed=1,
        sample=[
            EditSample(
                letter=1,
                differences=(
                    LetterDifference(path=HOSTILE, change=ChangeKind.ADDED, before=None, after=HOSTILE),
                ),
            )
        ],
        failures=[EditFailure(letter=2, why=(HOSTILE,))],
    )
    before = replace(
        BEFORE,
        origins={HOSTILE: 3},
        remarks=(Remark(level=RemarkLevel.WARNING, about="loop", text=HOSTILE),),
    )
    deploy = Deploy(id=1, service=HOSTILE, release=HOSTILE, at_ms=NOW, who=HOSTILE)
    offer = OfferedGroup(group=3, title=HOSTILE, origin=HOSTILE, open=2, release=HOSTILE)
    told = [
        detail_text(replace(DETAIL, replay=evil, origins=(HOSTILE,)), now_ms=NOW),
        page_text(ReplayPage(replays=(evil,), more=None), now_ms=NOW),
        outcomes_text(evil, OutcomePage(outcomes=(outcome,), more=None), "back", now_ms=NOW),
        before_text(
            replace(WISH, target=ToQueue(queue=HOSTILE)), before, trial_lines(trial), now_ms=NOW, width=80
        ),
        deployed_text(DeployTold(deploy=deploy, news=True, offered=(offer,))),
        deploys_text(DeployPage(deploys=(deploy,), more=None), now_ms=NOW),
    ]
    for text in told:
        assert all(map(is_plain, text.split("\n"))), text
        assert "\nreplay 8: done" not in text
    assert "dlq replay --group 3 --pace canary --resolve" in told[4]
    assert not any(line.strip().startswith("dlq replay --error") for line in told[0].split("\n"))
    assert "dlq replay --queue 'x;reboot'" in detail_text(
        replace(DETAIL, replay=replace(evil, selection={"queue": "x;reboot"})), now_ms=NOW
    )


# -- what is typed -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "pace"),
    [
        (PaceOptions(), Canary()),
        (PaceOptions(rate="20/s"), AllAtOnce(rate_per_s=20.0)),
        (PaceOptions(rate="30/min", pace="all"), AllAtOnce(rate_per_s=0.5)),
        (PaceOptions(pace="all"), AllAtOnce()),
        (PaceOptions(pace="auto", rate="500", room=200, share="2%"), Auto(room=200, share=0.02, ceiling=500)),
        (
            PaceOptions(steps="1, 5,50", share="0.1", wait="90s", room=70),
            Canary(steps=(1, 5, 50), share=0.1, wait_s=90.0, room=70),
        ),
    ],
)
def test_a_pace_as_it_is_typed(options: PaceOptions, pace: ReplayPace) -> None:
    assert options.chosen() == pace
    assert is_plain(pace_words(pace))
    assert typed_pace(pace).chosen() == pace
    assert is_plain(shlex.join(pace_arguments(pace)))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (PaceOptions(pace="slow"), "canary, auto, all"),
        (PaceOptions(pace="canary", rate="5/s"), "no --rate"),
        (PaceOptions(pace="all", share="5%", room=3), "no --share or --room"),
        (PaceOptions(pace="auto", wait="5s"), "no --wait"),
        (PaceOptions(rate="5/s", steps="1,10"), "no --canary"),
        (PaceOptions(pace="auto", rate="5/min"), "at least 1/s"),
        (PaceOptions(steps="1,,10"), "--canary: expected numbers"),
        (PaceOptions(steps="0,10"), "--canary: expected numbers"),
        (PaceOptions(share="5 of 100"), "--share: expected 0% to 100%"),
        (PaceOptions(share="101%"), "--share: expected 0% to 100%"),
        (PaceOptions(share="nan"), "--share: expected 0% to 100%"),
        (PaceOptions(rate="0"), "a rate above zero"),
        (PaceOptions(wait="-1"), "a time above zero"),
    ],
)
def test_what_is_no_pace(options: PaceOptions, problem: str) -> None:
    with pytest.raises(UsageError, match=re.escape(problem)):
        options.chosen()


@pytest.mark.parametrize(
    ("pace", "said"),
    [
        (AllAtOnce(rate_per_s=20), "all, 20/s"),
        (AllAtOnce(rate_per_s=0.5), "all, 30/min"),
        (AllAtOnce(rate_per_s=10 / 3600), "all, 10/h"),
        (AllAtOnce(), "as fast as the broker takes them"),
        (Canary(), "stops when more than 5 % of a step comes back; room for 10,000"),
        (Auto(share=0.025), "more than 2.5 % comes back"),
    ],
)
def test_a_pace_in_words(pace: ReplayPace, said: str) -> None:
    assert said in pace_words(pace)


@pytest.mark.parametrize(
    ("options", "target"),
    [
        (TargetOptions(), HOME),
        (TargetOptions(to_queue="q"), ToQueue(queue="q")),
        (TargetOptions(to_exchange="x"), ToExchange(exchange="x")),
        (TargetOptions(to_exchange="", key="q"), ToExchange(exchange="", key="q")),
    ],
)
def test_a_target_as_it_is_typed(options: TargetOptions, target: ReplayTarget) -> None:
    assert options.chosen() == target


def test_what_is_no_target_and_no_edit() -> None:
    for options in (
        TargetOptions(to_queue="q", to_exchange="x"),
        TargetOptions(key="k"),
        TargetOptions(to_queue=""),
    ):
        with pytest.raises(UsageError):
            options.chosen()
    with pytest.raises(UsageError, match="got both"):
        EditOptions(edit=".", recipe="amounts")
    assert outcome_ms("10min") == 600_000


# -- watching ----------------------------------------------------------------------------------------------
def test_a_picture_says_what_it_does_and_why_it_waits(capsys: pytest.CaptureFixture[str]) -> None:
    said = picture_lines(DETAIL)
    assert said[0] == "replay 7: running, step 3 of 100, 724 of 1,204"
    assert "3 back" in said[1]
    assert said[-1] == "   waits: step 3: the outcome of 100 is not known yet"
    with LivePicture(quiet=False) as picture:
        picture.show(DETAIL)
        counted = replace(REPLAY, waits_for="step 3: the outcome of 99 is not known yet")
        picture.show(replace(DETAIL, replay=counted))
        picture.show(replace(DETAIL, replay=replace(REPLAY, waits_for=HOSTILE)))
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 2, "in a log one that counts down is no news"
    assert all(map(is_plain, told.err.splitlines()))
    with LivePicture(quiet=True) as picture:
        picture.show(DETAIL)
        picture.say("something")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("state", "counts", "code"),
    [
        (ReplayState.DONE, ReplayCounts(done=4, quiet=5), Exit.DONE),
        (ReplayState.DONE, ReplayCounts(done=4, returned=1), Exit.LEFT),
        (ReplayState.DONE, ReplayCounts(done=4, refused=1), Exit.LEFT),
        (ReplayState.STOPPED, ReplayCounts(let_go=4), Exit.LEFT),
        (ReplayState.CANCELLED, ReplayCounts(let_go=4), Exit.LEFT),
    ],
)
def test_how_watching_ends(state: ReplayState, counts: ReplayCounts, code: Exit) -> None:
    assert ended(replace(REPLAY, state=state, counts=counts)) is code
