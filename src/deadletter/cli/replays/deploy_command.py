"""`dlq deployed` and `dlq deploys`: releases that were told, and what to try with a new one."""

from __future__ import annotations

from deadletter.cli.letters.asking import age_text, at_text, now_ms
from deadletter.cli.letters.record_options import ChangeWish, RecordsWish
from deadletter.cli.replays.asking_replays import with_desk
from deadletter.cli.terminal.output import Exit, columns, data, result
from deadletter.cli.terminal.units import count
from deadletter.core.text.safe_text import line
from deadletter.operations.records.records import json_of
from deadletter.operations.replays.at_hand import DeskAtHand
from deadletter.operations.replays.next_commands import typed
from deadletter.operations.replays.replay_told import DeployPage, DeployTold, OfferedGroup


def deployed(wish: ChangeWish, service: str, release: str) -> Exit:
    async def work(desk: DeskAtHand) -> Exit:
        told = await desk.replays.deployed(service, release, who=wish.named)
        if wish.as_json:
            data(json_of(told))
        else:
            result(deployed_text(told))
        return Exit.DONE

    return with_desk(wish, work)


def deploys(wish: RecordsWish, service: str | None, *, after: int | None, limit: int) -> Exit:
    async def work(desk: DeskAtHand) -> Exit:
        page = await desk.replays.deploys(service, after=after, limit=limit)
        if wish.as_json:
            data(json_of(page))
        else:
            result(deploys_text(page, now_ms=now_ms()))
        return Exit.DONE

    return with_desk(wish, work)


def deployed_text(told: DeployTold) -> str:
    """What was told, and a line for each group that could be tried now."""
    deploy = told.deploy
    known = "" if told.news else ", which was told before"
    said = [line(f"{deploy.service} {deploy.release}, {at_text(deploy.at_ms)} UTC{known}")]
    if not told.offered:
        said.append("no open group is of that service; nothing to try")
        return "\n".join(said)
    said.append(f"{count(len(told.offered), 'open group')} of it, to be tried with a canary:")
    said += [one for offered in told.offered for one in _offer(offered, deploy.release)]
    said.append("each says first what it would do; --yes begins it, --resolve closes what does not come back")
    return "\n".join(said)


def _offer(group: OfferedGroup, release: str) -> list[str]:
    failed = f", failed last in {group.release}" if group.release else ""
    why = ["--why", f"release {release}"]
    command = typed("replay", "--group", str(group.group), "--pace", "canary", "--resolve", *why)
    plain = typed("replay", "--group", str(group.group), "--pace", "canary", "--resolve")
    return [
        line(f"   {group.group}: {group.title} ({count(group.open)} in {group.origin}{failed})"),
        f"      {command or plain}",
    ]


def deploys_text(page: DeployPage, *, now_ms: int) -> str:
    if not page.deploys:
        return "no release was told; a pipeline does it with: dlq deployed SERVICE RELEASE"
    rows = [["service", "release", "told (UTC)", "ago", "by"]]
    rows += [
        [one.service, one.release, at_text(one.at_ms), age_text(one.at_ms, now_ms), one.who]
        for one in page.deploys
    ]
    said = [columns(rows)]
    if page.more is not None:
        said.append(f"there are more: --after {page.more}")
    newest = page.deploys[0]
    if (command := typed("deployed", newest.service, newest.release)) is not None:
        said.append(f"what could be tried with the newest: {command}")
    return "\n".join(said)
