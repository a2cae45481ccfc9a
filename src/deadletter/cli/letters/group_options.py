"""`dlq groups`, and what people say of a group, as typer sees them; the work is in `groups_command`."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from deadletter.cli.letters import completing
from deadletter.cli.letters.record_options import (
    NUMBER_MAX,
    ChangeWish,
    GroupArgument,
    GroupArguments,
    OriginFilter,
)
from deadletter.cli.terminal.option_sets import with_option_sets
from deadletter.core.grouping.group_states import GroupState
from deadletter.errors import UsageError

app: Final = typer.Typer()


@app.command(short_help="What failed: stored letters by their cause.")
@with_option_sets
def groups(
    *,
    group: Annotated[
        str | None,
        typer.Argument(metavar="GROUP", help="All about this one.", autocompletion=completing.groups),
    ] = None,
    why: Annotated[
        str | None,
        typer.Option(
            "--why",
            metavar="GROUP",
            help="Why its letters are together: frames and masks.",
            autocompletion=completing.groups,
        ),
    ] = None,
    preview: Annotated[
        bool,
        typer.Option("--preview", help="What the grouping rules of the file would make of stored letters."),
    ] = False,
    regroup: Annotated[
        bool,
        typer.Option(
            "--regroup", help="Apply them to stored letters; without --yes it says what would change."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --regroup: do it.")] = False,
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="open|resolved|muted|snoozed|any", help="Which ones (open); may be repeated."),
    ] = None,
    vhost: Annotated[
        str | None, typer.Option("--vhost", metavar="VHOST", help="With letters of this vhost.")
    ] = None,
    origin: OriginFilter = None,
    category: Annotated[
        str | None,
        typer.Option(metavar="transient|overload|data|permanent|bug|unknown", help="Of this kind."),
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", metavar="WORDS", help="With these words in what or where.")
    ] = None,
    sort: Annotated[
        str, typer.Option(metavar="last|first|letters", help="The latest, the newest or the largest first.")
    ] = "last",
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="How many to list.")] = 25,
    after: Annotated[int, typer.Option(min=0, max=NUMBER_MAX, metavar="N", help="Go on after so many.")] = 0,
    wish: ChangeWish,
) -> None:
    """List groups of stored letters that failed alike: how many, since when, where, what would help.

    Per group: its number, letters that are here of all that came, the last 24 hours, when the last and the
    first one died, what it says, and below where that was.

    \b
    dlq groups                         what is open, the latest first
    dlq groups --sort letters          the largest first
    dlq groups 12                      all about one: releases, hosts, notes, letters
    dlq groups --why 12                what made its letters one group
    dlq groups --preview               what changed rules in [desk] would join and part
    dlq groups --regroup --yes         and that for letters that are stored; stopped, it goes on later
    dlq groups --state any --json      all of them, for programs

    Exit codes: 0 done, 1 --regroup was stopped, 2 usage, 3 neither service nor store can be reached.
    """
    from deadletter.cli.letters import groups_command as command

    if yes and not regroup:
        raise UsageError("--yes: expected --regroup with it; everything else here only looks")
    if regroup:
        from deadletter.cli.letters import regroup_command

        if group is not None or why is not None or preview:
            raise UsageError("expected --regroup alone: it is about all groups")
        raise typer.Exit(regroup_command.run(wish, yes=yes))
    if preview:
        if group is not None or why is not None or wish.at is not None:
            raise UsageError("expected --preview alone: it looks at all groups, in the store itself")
        raise typer.Exit(command.preview_groups(wish))
    if group is not None and why is not None:
        raise UsageError("expected GROUP or --why GROUP, got both")
    if group is not None or why is not None:
        raise typer.Exit(command.one_group(wish, group or why or "", why=why is not None))
    filters = command.GroupFilters(
        states=state or (),
        vhost=vhost,
        origin=origin,
        category=category,
        text=text,
        sort=sort,
        limit=limit,
        after=after,
    )
    raise typer.Exit(command.list_groups(wish, filters))


@app.command(short_help="This is cured: the group opens again by itself if it is not.")
@with_option_sets
def resolve(
    *,
    group: GroupArguments,
    wish: ChangeWish,
) -> None:
    """Say that the cause of groups is cured. A letter of them that dies later opens them again.

    \b
    dlq resolve 12 14
    """
    _state(wish, group, GroupState.RESOLVED)


@app.command(short_help="This is known: no need to look.")
@with_option_sets
def mute(
    *,
    group: GroupArguments,
    wish: ChangeWish,
) -> None:
    """Take groups off the list of open ones until somebody opens them again (dlq reopen).

    \b
    dlq mute 12 --as anna
    """
    _state(wish, group, GroupState.MUTED)


@app.command(short_help="Later: the group is open again after a while.")
@with_option_sets
def snooze(
    *,
    group: GroupArguments,
    until: Annotated[
        str, typer.Option("--until", "--for", metavar="TIME", help="4h, 2d, or 2025-06-01T09:00 UTC.")
    ],
    wish: ChangeWish,
) -> None:
    """Take groups off the list of open ones for a while.

    \b
    dlq snooze 12 --for 4h
    dlq snooze 12 14 --until 2025-06-02T08:00
    """
    _state(wish, group, GroupState.SNOOZED, until)


@app.command(short_help="Put a resolved, muted or snoozed group back on the list.")
@with_option_sets
def reopen(
    *,
    group: GroupArguments,
    wish: ChangeWish,
) -> None:
    """Put groups back on the list of open ones.

    \b
    dlq reopen 12
    """
    _state(wish, group, GroupState.OPEN)


def _state(wish: ChangeWish, names: list[str], state: GroupState, until: str | None = None) -> None:
    from deadletter.cli.letters import groups_command as command

    raise typer.Exit(command.set_state(wish, names, state, until))


@app.command(short_help="Say what kind of failure a group is.")
@with_option_sets
def category(
    *,
    group: GroupArgument,
    kind: Annotated[
        str, typer.Argument(metavar="transient|overload|data|permanent|bug|unknown", help="What would help.")
    ],
    wish: ChangeWish,
) -> None:
    """Say what kind of failure a group is; the first guess comes from the error's type and words.

    \b
    dlq category 12 bug
    """
    from deadletter.cli.letters import groups_command as command

    raise typer.Exit(command.set_category(wish, group, kind))


@app.command(short_help="Write something beside a group.")
@with_option_sets
def note(
    *,
    group: GroupArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to write.")],
    wish: ChangeWish,
) -> None:
    """Write something beside a group, with your name: dlq groups GROUP shows it.

    \b
    dlq note 12 'waits for the bank, ticket 4711'
    """
    from deadletter.cli.letters import groups_command as command

    raise typer.Exit(command.add_note(wish, group, text))


@app.command(short_help="Make several groups one.")
@with_option_sets
def merge(
    *,
    into: Annotated[
        str,
        typer.Argument(metavar="GROUP", help="The one that stays.", autocompletion=completing.groups),
    ],
    others: Annotated[
        list[str],
        typer.Argument(metavar="OTHER...", help="Those that join it.", autocompletion=completing.groups),
    ],
    wish: ChangeWish,
) -> None:
    """Make several groups one, for letters that are here and for those that come. dlq split undoes it.

    \b
    dlq merge 12 14 15
    """
    from deadletter.cli.letters import groups_command as command

    raise typer.Exit(command.merge(wish, into, others))


@app.command(short_help="Take a merged group out again.")
@with_option_sets
def split(
    *,
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="The beginning of its key, as dlq groups GROUP shows it.")
    ],
    wish: ChangeWish,
) -> None:
    """Make a group that was merged into another one of its own again.

    \b
    dlq split 3f2a9c
    """
    from deadletter.cli.letters import groups_command as command

    raise typer.Exit(command.split(wish, key))
