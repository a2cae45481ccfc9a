"""`dlq replay, replays, deployed, deploys` as typer sees them; the work is in the modules beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from deadletter.cli.letters.letter_filters import LetterFilters
from deadletter.cli.letters.record_options import NUMBER_MAX, ChangeWish, RecordsWish
from deadletter.cli.replays import completing_replays
from deadletter.cli.replays.pace_options import PaceOptions
from deadletter.cli.replays.plan_options import EditOptions, TargetOptions, outcome_ms
from deadletter.cli.terminal.option_sets import with_option_sets
from deadletter.errors import UsageError

START: Final = "start"

ReplayArgument = Annotated[
    str,
    typer.Argument(
        metavar="REPLAY",
        help="Its number, as dlq replays lists them.",
        autocompletion=completing_replays.replays,
    ),
]
Limit = Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="How many to list.")]
After = Annotated[
    int | None,
    typer.Option(min=0, max=NUMBER_MAX, metavar="N", help="Go on after this one: the last page said so."),
]


class LettersOrWord(TyperGroup):
    """`dlq replay --group 12` beside `dlq replay pause 7`: what begins with no word of ours starts one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Typer's own context is of no public type."""
        known = bool(args) and args[0] in self.commands
        return super().parse_args(ctx, args if known else [START, *args])


app: Final = typer.Typer()
replaying: Final = typer.Typer(cls=LettersOrWord)
app.add_typer(
    replaying, name="replay", short_help="Send stored letters back; pause, resume, cancel, change the pace."
)


@replaying.command(START, short_help="Say what would be sent; with --yes, begin.")
@with_option_sets
def start(
    *,
    named: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID...",
            help="Numbers, or beginnings of ids; none: whatever the filters find.",
            autocompletion=completing_replays.letters_or_words,
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Begin; without, it only says what it would do.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it would do, as without --yes.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Then watch it. Ctrl-C stops watching, not the replay.")
    ] = False,
    target: TargetOptions,
    edits: EditOptions,
    try_: Annotated[
        int, typer.Option("--try", min=1, metavar="N", help="Try an edit on at most so many letters.")
    ] = 10_000,
    tried: Annotated[
        str | None,
        typer.Option("--tried", metavar="CODE", help="The code that the trial of this edit told."),
    ] = None,
    pace: PaceOptions,
    outcome: Annotated[
        str,
        typer.Option("--outcome", metavar="SPAN", help='What is not back after this is "not returned".'),
    ] = "10min",
    resolve: Annotated[
        bool,
        typer.Option("--resolve", help="Resolve groups of which all went and none came back, at its end."),
    ] = False,
    overrule_guards: Annotated[
        bool, typer.Option("--overrule-guards", help="Send although a guard holds retries of that queue.")
    ] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Begin although the look before it says STOP.")
    ] = False,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, for the audit.")] = "",
    filters: LetterFilters,
    vhost: Annotated[
        str, typer.Option("--vhost", metavar="VHOST", help="Of this one, where letters are of several.")
    ] = "",
    wish: ChangeWish,
) -> None:
    """Send stored letters back: those named, or all that the filters find (as of dlq letters).

    Without --yes nothing is sent: it says how many they are, where they would go, how fast, and what there is
    to say about that (is the queue there, who else gets them, consumers, depth, limits, loops, releases).
    With it they are frozen as they are then; what comes later is left out. dlq serve sends them. Each goes to
    the queue it failed in, one first, then 10, then 100, as long as they do not come back, unless you say
    otherwise. An edit of many is tried first: the trial tells the code that --yes wants with --tried.

    \b
    dlq replay --group 12                          what would happen
    dlq replay --group 12 --yes --watch --resolve --why 'release 1.4.3'
    dlq replay 812 813 --yes
    dlq replay --origin orders --since 2h --rate 20/s --yes
    dlq replay --group 12 --recipe amounts         how many it would change, with differences
    dlq replay --group 12 --recipe amounts --yes --tried 3f2a9c1b
    dlq replay --where '.body.total > 1000' --to-queue orders.checked --pace auto --room 200

    \b
    dlq replay pause 7       send nothing until it is resumed
    dlq replay resume 7
    dlq replay cancel 7      what was not sent stays here
    dlq replay pace 7 --rate 5/s

    Exit codes: 0 done, 1 not begun, or with --watch: it stopped, or letters are back or refused; 2 usage,
    3 neither service nor store can be reached.
    """
    from deadletter.cli.replays import replay_command as command
    from deadletter.operations.replays.replay_told import EditWish

    if yes and dry_run:
        raise UsageError("expected --yes or --dry-run, got both")
    filters = replace(filters, ids=[*(filters.ids or ()), *(named or ())] or None)
    wanted = command.StartWish(
        filters=filters,
        vhost=vhost,
        target=target.chosen(),
        pace=pace.chosen(),
        outcome_ms=outcome_ms(outcome),
        edit=EditWish(program=edits.edit or "", recipe=edits.recipe or ""),
        try_most=try_,
        tried=tried,
        resolves=resolve,
        overrules_guards=overrule_guards,
        anyway=anyway,
        why=why,
        yes=yes,
        watch=watch,
    )
    raise typer.Exit(command.run(wish, wanted))


@replaying.command(short_help="Send nothing until it is resumed.")
@with_option_sets
def pause(*, replay: ReplayArgument, wish: ChangeWish) -> None:
    """Hold a replay. What is being sent is settled; outcomes are still noted.

    \b
    dlq replay pause 7
    """
    _turn(wish, replay, "pause")


@replaying.command(short_help="Go on with one that was paused.")
@with_option_sets
def resume(*, replay: ReplayArgument, wish: ChangeWish) -> None:
    """Go on with a replay that was paused.

    \b
    dlq replay resume 7
    """
    _turn(wish, replay, "resume")


@replaying.command(short_help="Send no more; what waits stays here.")
@with_option_sets
def cancel(*, replay: ReplayArgument, wish: ChangeWish) -> None:
    """End a replay. Letters that were not sent are open again; what was sent is waited for.

    \b
    dlq replay cancel 7
    """
    _turn(wish, replay, "cancel")


def _turn(wish: ChangeWish, replay: str, to: str) -> None:
    from deadletter.cli.replays import replays_command as command
    from deadletter.operations.wording.turning import Turn

    raise typer.Exit(command.turn(wish, replay, Turn(to)))


@replaying.command("pace", short_help="Faster or slower from now on.")
@with_option_sets
def set_pace(*, replay: ReplayArgument, pace: PaceOptions, wish: ChangeWish) -> None:
    """Change the pace of a replay from now on. A canary begins with its first step again.

    \b
    dlq replay pace 7 --rate 5/s
    dlq replay pace 7 --pace auto --room 200
    dlq replay pace 7 --canary 1,10,100 --share 2%
    """
    from deadletter.cli.replays import replays_command as command

    if pace.says_nothing:
        raise UsageError("expected a pace: --pace, --rate, --canary, --share, --room or --wait")
    raise typer.Exit(command.set_pace(wish, replay, pace.chosen()))


@app.command(short_help="Replays: how far they are, what became of each letter.")
@with_option_sets
def replays(
    *,
    replay: Annotated[
        str | None,
        typer.Argument(
            metavar="REPLAY", help="All about this one.", autocompletion=completing_replays.replays
        ),
    ] = None,
    outcomes: Annotated[
        str | None,
        typer.Option(
            "--outcomes",
            metavar="back|quiet|done|refused|doubtful|sent|waiting|let-go|all",
            help="Its letters of which this became. quiet: not returned in time.",
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Watch it. Ctrl-C stops watching, not the replay.")
    ] = False,
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="freezing|running|paused|stopped|cancelled|done|any",
            help="Which ones (any); may be repeated.",
        ),
    ] = None,
    limit: Limit = 25,
    after: After = None,
    wish: RecordsWish,
) -> None:
    """List replays, the newest first; or all about one.

    "not returned" is no success: nobody said so. "done" is what its consumer confirmed.

    \b
    dlq replays                          all of them
    dlq replays --state running
    dlq replays 7                        one: figures, steps, why it waits, what to do next
    dlq replays 7 --outcomes back        what came back, how long after, with which error
    dlq replays 7 --outcomes doubtful    what may have gone twice
    dlq replays 7 --watch

    Exit codes: 0 done, 1 with --watch: it stopped, or letters are back or refused; 2 usage or no such replay,
    3 neither service nor store can be reached.
    """
    from deadletter.cli.replays import replays_command as command

    if replay is None:
        if outcomes is not None or watch:
            raise UsageError("expected the number of a replay with --outcomes and --watch")
        raise typer.Exit(command.list_replays(wish, state or (), after=after, limit=limit))
    if state or (outcomes is not None and watch):
        raise UsageError("expected REPLAY alone, with --outcomes, or with --watch")
    if watch:
        raise typer.Exit(command.watch_replay(wish, replay))
    if outcomes is not None:
        raise typer.Exit(command.list_outcomes(wish, replay, outcomes, after=after, limit=limit))
    raise typer.Exit(command.one_replay(wish, replay))


@app.command(short_help="Tell of a release; says which groups to try with it.")
@with_option_sets
def deployed(
    *,
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="As its letters name it.")],
    release: Annotated[str, typer.Argument(metavar="RELEASE", help="As its letters will name it.")],
    wish: ChangeWish,
) -> None:
    """Tell of a release that was deployed. Open groups of that service are listed, with the line that tries
    each with a canary. A group that does not come back is closed with this release.

    \b
    dlq deployed shop 1.4.3
    dlq deployed shop 1.4.3 --at http://desk:8080 --as pipeline

    Exit codes: 0 done, 2 usage, 3 neither service nor store can be reached.
    """
    from deadletter.cli.replays import deploy_command as command

    raise typer.Exit(command.deployed(wish, service, release))


@app.command(short_help="Releases that were told.")
@with_option_sets
def deploys(
    *,
    service: Annotated[str | None, typer.Argument(metavar="SERVICE", help="Of this one alone.")] = None,
    limit: Limit = 25,
    after: After = None,
    wish: RecordsWish,
) -> None:
    """List releases that were told (dlq deployed), the newest first.

    \b
    dlq deploys
    dlq deploys shop --json
    """
    from deadletter.cli.replays import deploy_command as command

    raise typer.Exit(command.deploys(wish, service, after=after, limit=limit))
