"""`dlq edit` and `dlq recipes` as typer sees them; the work is in the modules beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from deadletter.cli.letters import completing
from deadletter.cli.letters.record_options import ChangeWish, RecordsWish
from deadletter.cli.replays import completing_replays
from deadletter.cli.terminal.option_sets import with_option_sets

app: Final = typer.Typer()
recipes: Final = typer.Typer(help="Edits with a name.", no_args_is_help=True)
app.add_typer(recipes, name="recipes")

LetterArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="Its number, or its id or the beginning of it.", autocompletion=completing.letters
    ),
]
NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The name of the recipe.", autocompletion=completing_replays.recipes),
]


@app.command(short_help="Change one stored letter; a replay sends it so.")
@with_option_sets
def edit(
    *,
    letter: LetterArgument,
    jq: Annotated[
        str | None,
        typer.Option("--jq", metavar="PROGRAM", help="A jq program over {body, headers, properties}."),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=JSON", help="Set one value; may be repeated."),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            metavar="NAME",
            help="By a saved recipe.",
            autocompletion=completing_replays.recipes,
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="A file that an earlier edit left.")
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Back to the original.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Keep it; without, it only says what would change.")
    ] = False,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Why, for the audit.")] = "",
    wish: ChangeWish,
) -> None:
    """Change one stored letter: in $EDITOR, or with --jq, --set or --recipe.

    The original is kept. What is changed becomes a draft, and a replay that takes the letter sends the draft.
    What was not changed stays byte for byte; headers keep their AMQP types; headers of Deadletter and of the
    broker cannot be changed. In the editor the difference is shown and you are asked; without a terminal
    nothing is kept unless --yes says so. If the editor fails, or the file cannot be read, it is kept.

    \b
    dlq edit 812
    dlq edit 812 --set '.body.amount=3'
    dlq edit 812 --jq '.body.amount |= tonumber' --yes --note 'amount was a text'
    dlq edit 812 --drop

    Exit codes: 0 done, 1 it cannot be changed so, 2 usage or no such letter, 3 neither service nor store
    can be reached.
    """
    from deadletter.cli.replays import edit_command as command

    wanted = command.OneEdit(
        letter=letter,
        program=jq,
        sets=tuple(sets or ()),
        recipe=recipe,
        file=file,
        drop=drop,
        yes=yes,
        note=note,
    )
    raise typer.Exit(command.run(wish, wanted))


@recipes.command("list", short_help="List saved recipes.")
@with_option_sets
def list_(*, wish: RecordsWish) -> None:
    """List saved recipes, by name."""
    from deadletter.cli.replays import recipes_command as command

    raise typer.Exit(command.list_recipes(wish))


@recipes.command(short_help="Show one recipe.")
@with_option_sets
def show(*, name: NameArgument, wish: RecordsWish) -> None:
    """Show one recipe: its program, who saved it, for which letters."""
    from deadletter.cli.replays import recipes_command as command

    raise typer.Exit(command.show_recipe(wish, name))


@recipes.command(short_help="Save a jq program under a name.")
@with_option_sets
def save(
    *,
    name: NameArgument,
    jq: Annotated[
        str, typer.Option("--jq", metavar="PROGRAM", help="A jq program over {body, headers, properties}.")
    ],
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="What it is for.")] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Also where there is one of this name.")] = False,
    wish: ChangeWish,
) -> None:
    """Save a jq program under a name; it is compiled first."""
    from deadletter.cli.replays import recipes_command as command
    from deadletter.store.replays.recipe_table import Recipe

    raise typer.Exit(command.save_recipe(wish, Recipe(name=name, program=jq, note=note), replace=replace))


@recipes.command(short_help="Delete one recipe.")
@with_option_sets
def delete(
    *,
    name: NameArgument,
    wish: ChangeWish,
) -> None:
    """Delete one recipe; its program is said once more, and is in the audit."""
    from deadletter.cli.replays import recipes_command as command

    raise typer.Exit(command.delete_recipe(wish, name))


@recipes.command(short_help="From one repaired letter: what does the same to its group.")
@with_option_sets
def propose(
    *,
    letter: LetterArgument,
    save_as: Annotated[
        str | None, typer.Option("--save", metavar="NAME", help="Keep a proposal under this name.")
    ] = None,
    pick: Annotated[int, typer.Option(min=1, metavar="N", help="Which one to keep.")] = 1,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="Try it on at most so many letters of the group.")
    ] = 10_000,
    wish: ChangeWish,
) -> None:
    """Propose jq programs that do to other letters what dlq edit did to this one, the best first.

    Each is run on the letter itself before it is shown, and tried on its group: how many would change, how
    many stay as they are, which ones cannot be changed and why. Nothing is changed.

    \b
    dlq edit 812
    dlq recipes propose 812
    dlq recipes propose 812 --save amounts

    Exit codes: 0 done, 1 nothing to propose, 2 usage, 3 neither service nor store can be reached.
    """
    from deadletter.cli.replays import recipes_command as command

    asked = command.ProposeWish(letter=letter, save=save_as, pick=pick, most=limit)
    raise typer.Exit(command.propose(wish, asked))
