"""`dlq edit`: one letter changed, by a person in an editor or by jq; shown first, then kept as a draft."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deadletter.cli.letters.record_options import ChangeWish
from deadletter.cli.replays.asking_replays import with_desk
from deadletter.cli.replays.in_editor import edited_text, kept
from deadletter.cli.terminal.output import Exit, data, result
from deadletter.core.replaying import exact_json
from deadletter.core.replaying.exact_json import NotJson
from deadletter.core.replaying.letter_diff import LetterDifference, difference_json, difference_lines
from deadletter.core.text.safe_text import block
from deadletter.errors import DeadletterError, UsageError
from deadletter.operations.records.records import WHY_CHARS
from deadletter.operations.replays.at_hand import DeskAtHand
from deadletter.operations.replays.replay_told import DraftSaved, DraftWish, EditWish
from deadletter.operations.replays.replays import Replays

_SET: Final = re.compile(r"\s*(\.(?:[^=\"]|\"(?:[^\"\\]|\\.)*\")*?)\s*=(?!=)\s*(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneEdit:
    """How a letter is to be changed; with none of the ways, in an editor."""

    letter: str
    program: str | None = None
    sets: tuple[str, ...] = ()
    recipe: str | None = None
    file: Path | None = None
    drop: bool = False
    yes: bool = False
    note: str = ""

    @property
    def by_program(self) -> bool:
        return self.program is not None or bool(self.sets) or self.recipe is not None

    def wish(self) -> EditWish:
        """The program, or the recipe."""
        if self.recipe is not None:
            return EditWish(recipe=self.recipe)
        if self.program is not None:
            return EditWish(program=self.program)
        return EditWish(program=" | ".join(_assignment(one) for one in self.sets))


def run(wish: ChangeWish, edit: OneEdit) -> Exit:
    ways = sum(
        (edit.program is not None, bool(edit.sets), edit.recipe is not None, edit.file is not None, edit.drop)
    )
    if ways > 1:
        raise UsageError("expected one of --jq, --set, --recipe, --file and --drop, got several")
    if edit.program == "" or edit.recipe == "":
        raise UsageError("expected a program or the name of a recipe, got nothing")
    if ways == 0 and not _somebody():
        raise UsageError("expected --jq, --set, --recipe or --file: there is no terminal for an editor")
    if len(edit.note) > WHY_CHARS:
        raise UsageError(f"--note: expected at most {WHY_CHARS} characters, got {len(edit.note)}")

    async def work(desk: DeskAtHand) -> Exit:
        replays = desk.replays
        if edit.drop:
            return await _drop(replays, edit.letter, wish)
        if edit.by_program:
            made = await _saved(replays, wish, edit, DraftWish(edit=edit.wish()), keep=edit.yes)
            _tell(wish, made, file=None)
            return Exit.DONE
        file, text = await _written(replays, edit)
        made = await _by_hand(replays, wish, edit, file, text)
        if edit.file is None and (made.saved or not made.changed):
            file.unlink(missing_ok=True)
        _tell(wish, made, file=None if made.saved else file)
        return Exit.DONE

    return with_desk(wish, work)


async def _saved(
    replays: Replays, wish: ChangeWish, edit: OneEdit, draft: DraftWish, *, keep: bool
) -> DraftSaved:
    return await replays.save_draft(edit.letter, draft, who=wish.named, note=edit.note, keep=keep)


async def _drop(replays: Replays, letter: str, wish: ChangeWish) -> Exit:
    done = await replays.drop_draft(letter, who=wish.named)
    if wish.as_json:
        data({"letter": done.letter, "dropped": done.dropped})
    else:
        said = "its draft is gone, the original is sent" if done.dropped else "it has no draft"
        result(f"letter {done.letter}: {said}")
    return Exit.DONE


def _assignment(said: str) -> str:
    found = _SET.fullmatch(said)
    try:
        if found is None:
            raise NotJson("no path and value")
        exact_json.read(found[2])
    except NotJson as error:
        raise UsageError(
            f"--set: expected a path and a JSON value such as .body.amount=3 or .body.name='\"Ann\"', "
            f"got {said!r} ({error})"
        ) from None
    return f"({found[1]}) = {found[2]}"


# -- by hand ---------------------------------------------------------------------------------------------
async def _written(replays: Replays, edit: OneEdit) -> tuple[Path, str]:
    """The file, and what a person wrote into it."""
    if edit.file is not None:
        file, text = edit.file, _read(edit.file)
    else:
        draft = await replays.draft(edit.letter)
        file, text = edited_text(draft.text, draft.letter)
    if not text.strip():
        raise kept(file, "the file is empty, so nothing was changed")
    return file, text


async def _by_hand(replays: Replays, wish: ChangeWish, edit: OneEdit, file: Path, text: str) -> DraftSaved:
    """Whatever goes wrong, also on the way to the service: what was written stays, and is told."""
    draft = DraftWish(text=text)
    try:
        made = await _saved(replays, wish, edit, draft, keep=edit.yes)
        if made.changed and not made.saved and _agreed(made.differences):
            return await _saved(replays, wish, edit, draft, keep=True)
    except DeadletterError as error:
        raise kept(file, str(error)) from error
    return made


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--file: {file}: expected a text file, got {error}") from error


def _somebody() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _agreed(found: tuple[LetterDifference, ...]) -> bool:
    """What the person says to the difference; nobody there: no."""
    if not _somebody():
        return False
    sys.stderr.write(block("\n".join(difference_lines(found))) + "\nKeep this as what a replay sends? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _tell(wish: ChangeWish, made: DraftSaved, *, file: Path | None) -> None:
    number = made.letter
    if wish.as_json:
        data(
            {
                "letter": number,
                "changed": made.changed,
                "saved": made.saved,
                "file": None if file is None or not made.changed else str(file),
                "differences": difference_json(made.differences),
            }
        )
        return
    if not made.changed:
        result(f"letter {number}: nothing was changed")
        return
    lines = difference_lines(made.differences)
    if made.saved:
        lines.append(f"letter {number}: kept as a draft; a replay sends it so, the original stays (--drop)")
        lines.append(f"send it: dlq replay {number}; the same for its group: dlq recipes propose {number}")
    elif file is not None:
        lines.append(f"letter {number}: nothing was saved; what you wrote is in {file} (--file {file} --yes)")
    else:
        lines.append(f"letter {number}: nothing was saved yet; --yes keeps it as a draft")
    result("\n".join(lines))
