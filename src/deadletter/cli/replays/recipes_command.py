"""`dlq recipes`: edits with a name; proposed from a repair and tried on its group, saved, shown, deleted."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass

from deadletter.cli.letters.asking import at_text
from deadletter.cli.letters.record_options import ChangeWish, RecordsWish
from deadletter.cli.replays.asking_replays import with_desk
from deadletter.cli.replays.edit_trial import TRIED_MOST, EditTrial, trial_json, trial_lines, tried
from deadletter.cli.terminal.output import Exit, columns, data, result
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.text.safe_text import line
from deadletter.errors import UsageError
from deadletter.operations.records.records import WHY_CHARS
from deadletter.operations.replays.at_hand import DeskAtHand
from deadletter.operations.replays.replay_told import EditWish, Proposals
from deadletter.operations.replays.replays import Replays
from deadletter.store.replays.recipe_table import Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposeWish:
    """`letter`: one that was edited. `save`: keep the proposal `pick` under this name."""

    letter: str
    save: str | None = None
    pick: int = 1
    most: int = TRIED_MOST


def list_recipes(wish: RecordsWish) -> Exit:
    async def work(desk: DeskAtHand) -> Exit:
        found = (await desk.replays.recipes()).recipes
        if wish.as_json:
            data([asdict(one) for one in found])
        elif not found:
            result("no recipes are saved: dlq recipes save NAME --jq PROGRAM, or dlq recipes propose ID")
        else:
            rows = [("NAME", "ORIGIN", "BY", "SAVED", "PROGRAM")]
            rows += [
                (one.name, one.origin or "–", one.who, at_text(one.made_ms), one.program) for one in found
            ]
            result(columns(rows))
        return Exit.DONE

    return with_desk(wish, work)


def show_recipe(wish: RecordsWish, name: str) -> Exit:
    async def work(desk: DeskAtHand) -> Exit:
        _tell(wish, await desk.replays.recipe(name))
        return Exit.DONE

    return with_desk(wish, work)


def save_recipe(wish: ChangeWish, recipe: Recipe, *, replace: bool) -> Exit:
    if len(recipe.note) > WHY_CHARS:
        raise UsageError(f"--note: expected at most {WHY_CHARS} characters, got {len(recipe.note)}")

    async def work(desk: DeskAtHand) -> Exit:
        _tell(wish, await desk.replays.save_recipe(recipe, who=wish.named, replace=replace))
        return Exit.DONE

    return with_desk(wish, work)


def delete_recipe(wish: ChangeWish, name: str) -> Exit:
    async def work(desk: DeskAtHand) -> Exit:
        gone = await desk.replays.delete_recipe(name, who=wish.named)
        if wish.as_json:
            data({"deleted": asdict(gone)})
        else:
            result(line(f"{gone.name} is deleted; it was: {gone.program}"))
        return Exit.DONE

    return with_desk(wish, work)


def propose(wish: ChangeWish, asked: ProposeWish) -> Exit:
    async def work(desk: DeskAtHand) -> Exit:
        found = await desk.replays.propose(asked.letter)
        query = LetterQuery(group=found.group)
        trials = [
            await tried(
                desk.replays,
                query,
                EditWish(program=one.program),
                most=asked.most,
                quiet=wish.as_json,
            )
            for one in found.proposals
        ]
        saved = None if asked.save is None else await _save(desk.replays, wish, asked, found)
        if wish.as_json:
            data(
                {
                    "letter": found.letter,
                    "proposals": [
                        {"program": one.program, "words": list(one.words), **trial_json(trial)}
                        for one, trial in zip(found.proposals, trials, strict=True)
                    ],
                    "saved": None if saved is None else saved.name,
                }
            )
        else:
            result(proposals_text(found, trials, saved))
        return Exit.DONE if found.proposals else Exit.LEFT

    return with_desk(wish, work)


async def _save(replays: Replays, wish: ChangeWish, asked: ProposeWish, found: Proposals) -> Recipe:
    if not 0 < asked.pick <= len(found.proposals):
        raise UsageError(f"--pick: expected 1 to {len(found.proposals)}, got {asked.pick}")
    chosen = found.proposals[asked.pick - 1]
    recipe = Recipe(
        name=asked.save or "",
        program=chosen.program,
        note="; ".join(chosen.words)[:WHY_CHARS],
        origin=found.origin,
        group_key=found.group_key,
    )
    return await replays.save_recipe(recipe, who=wish.named)


def proposals_text(found: Proposals, trials: list[EditTrial], saved: Recipe | None) -> str:
    if not found.proposals:
        return (
            "nothing short does to others what was done to this letter: write it yourself (dlq recipes save)"
        )
    lines: list[str] = []
    for number, (one, trial) in enumerate(zip(found.proposals, trials, strict=True), 1):
        lines += [line(f"{number}. {one.program}"), *(line(f"   {words}") for words in one.words)]
        lines += [f"   {said}" for said in trial_lines(trial, of="its group")]
    if saved is None:
        lines.append("nothing is saved: --save NAME keeps the first, --pick N another")
    else:
        named = shlex.quote(saved.name)
        lines.append(
            line(f"saved as {saved.name}; try it: dlq replay --group {found.group} --recipe {named}")
        )
    return "\n".join(lines)


def _tell(wish: RecordsWish, one: Recipe) -> None:
    if wish.as_json:
        data(asdict(one))
        return
    told = [("name", one.name), ("program", one.program), ("by", f"{one.who}, {at_text(one.made_ms)}")]
    told += [(what, said) for what, said in (("origin", one.origin), ("note", one.note)) if said]
    result(columns(told))
