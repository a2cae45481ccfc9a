"""Letters that nobody asked to be stored stay in their queue where the store would not outlast a restart.

About `service.storing.lasting`, `cli.stored_here`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deadletter import config
from deadletter.cli.stored_here import stored_words
from deadletter.config.settings import DeskSettings
from deadletter.service.storing.lasting import why_not_stored

CONTAINER = """\
1 0 0:50 / / rw,relatime master:1 - overlay overlay rw,lowerdir=/a,upperdir=/b
2 1 0:51 / /proc rw - proc proc rw
3 1 0:52 / /tmp rw - tmpfs tmpfs rw
4 1 8:1 /volumes/x /var/lib/deadletter rw,relatime - ext4 /dev/sda1 rw
5 1 8:1 /volumes/y /var/my\\040data rw,relatime shared:7 - xfs /dev/sda1 rw
6 4 0:53 / /var/lib/deadletter/cache rw - tmpfs tmpfs rw
"""


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    file = tmp_path / "mountinfo"
    file.write_text(CONTAINER)
    return file


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("sqlite:////root/.local/share/deadletter/deadletter.db", "overlay"),
        ("sqlite:////tmp/deadletter.db", "tmpfs"),
        ("sqlite:////var/lib/deadletter/cache/d.db", "tmpfs"),
        ("sqlite:////var/lib/deadletter/deadletter.db", None),
        ("sqlite:////var/my data/d.db", None),
        ("sqlite:////var/lib/deadletters/d.db", "overlay"),
        ("postgresql://u@h/d", None),
    ],
)
def test_a_place_that_is_gone_tomorrow(mounts: Path, url: str, kind: str | None) -> None:
    why = why_not_stored(DeskSettings(), url, mounts=mounts)
    assert why is None if kind is None else why is not None and why.endswith(f"it is on {kind}")


def test_who_asks_for_it_gets_it(mounts: Path) -> None:
    asked = DeskSettings(asked=True)
    assert why_not_stored(asked, "sqlite:////tmp/deadletter.db", mounts=mounts) is None


def test_off_is_off_everywhere(mounts: Path) -> None:
    off = DeskSettings(ingest=False)
    for url in ("sqlite:////var/lib/deadletter/deadletter.db", "postgresql://u@h/d"):
        assert why_not_stored(off, url, mounts=mounts) == "[desk] ingest is false"


def test_where_nobody_tells_of_mounts_it_is_believed_to_last(tmp_path: Path) -> None:
    assert why_not_stored(DeskSettings(), "sqlite:////tmp/d.db", mounts=tmp_path / "none") is None


def test_what_is_said_to_who_finds_a_queue_empty(tmp_path: Path) -> None:
    settings = config.load_command(directory=tmp_path, home=tmp_path, environment={"DLQ_DESK_INGEST": "true"})
    assert stored_words("deadletter.parked", settings) == (
        "where dlq serve runs, letters of deadletter.parked are in the desk: dlq letters"
    )
    assert stored_words("orders.dlq", settings) is None
    off = replace(settings, stored=replace(settings.stored, ingest=False))
    assert stored_words("deadletter.parked", off) is None
    none = replace(settings, store=replace(settings.store, off=True))
    assert stored_words("deadletter.parked", none) is None
