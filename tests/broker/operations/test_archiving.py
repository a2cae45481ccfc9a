"""Letters into a file and out of it again, between real brokers: every byte, every property, no letter lost.

About `cli.archives.archive_options`, `cli.archives.export_command`, `cli.archives.import_command`,
`operations.archiving.from_queue`, `operations.archiving.into_queue`, `operations.archiving.sinks`,
`core.letter.restored`.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests import amqp_oracle as oracle
from tests import postbox
from tests.amqp_oracle import Field
from tests.brokers import Vhost, call, fresh_vhost
from tests.commanding import command
from tests.postbox import wait_for

from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import ignore
from deadletter.core.letter import message, names
from deadletter.core.letter.archive_format import ArchiveHead, ArchivePacker
from deadletter.core.letter.message import RawMessage, View, encode
from deadletter.core.letter.restored import restored
from deadletter.operations.archiving.archive_reading import ArchiveReader
from deadletter.operations.archiving.from_queue import QueueExport
from deadletter.operations.archiving.into_queue import QueueImport, Restoration, Target
from deadletter.operations.archiving.sinks import ArchiveSink
from deadletter.operations.lifting import taking
from deadletter.testing.cuttable_line import Plug
from deadletter.testing.node.private import PrivateBroker, private_broker

LINE = (sys.executable, "-m", "deadletter.cli.main")
SHORT = st.one_of(st.none(), st.text(max_size=12).map(str.encode))
# What every version of RabbitMQ takes: the two types it does not read (U, L) and odd floats are left out.
FIELDS: st.SearchStrategy[Field] = st.recursive(
    st.one_of(
        st.booleans().map(oracle.boolean),
        st.integers(-(2**7), 2**7 - 1).map(oracle.int8),
        st.integers(0, 2**8 - 1).map(oracle.uint8),
        st.integers(-(2**15), 2**15 - 1).map(oracle.int16),
        st.integers(0, 2**16 - 1).map(oracle.uint16),
        st.integers(-(2**31), 2**31 - 1).map(oracle.int32),
        st.integers(0, 2**32 - 1).map(oracle.uint32),
        st.integers(-(2**63), 2**63 - 1).map(oracle.int64),
        st.floats(width=32, allow_nan=False, allow_infinity=False).map(oracle.float32),
        st.floats(allow_nan=False, allow_infinity=False).map(oracle.float64),
        st.builds(oracle.decimal, st.integers(0, 255), st.integers(0, 2**32 - 1)),
        st.binary(max_size=12).map(oracle.text),
        st.binary(max_size=12).map(oracle.binary),
        st.integers(0, 2**33).map(oracle.timestamp),
        st.just(oracle.void()),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(oracle.array),
        st.lists(st.tuples(st.text(max_size=4).map(str.encode), inner), max_size=4).map(oracle.table),
    ),
    max_leaves=6,
)
# CC, BCC and the broker's own headers are apart (below): publishing them is no plain publish.
TABLES = st.lists(
    st.tuples(st.text(max_size=8).map(str.encode), FIELDS), max_size=8, unique_by=lambda e: e[0]
)
PROPERTIES = st.builds(
    oracle.properties,
    content_type=SHORT,
    content_encoding=SHORT,
    headers=st.one_of(st.none(), TABLES.map(oracle.table_bytes)),
    delivery_mode=st.sampled_from((None, 1, 2)),
    priority=st.one_of(st.none(), st.integers(0, 255)),
    correlation_id=SHORT,
    reply_to=SHORT,
    expiration=st.sampled_from((None, b"86400000")),
    message_id=SHORT,
    timestamp_s=st.one_of(st.none(), st.integers(0, 2**63 - 1)),
    kind=SHORT,
    app_id=SHORT,
    cluster_id=SHORT,
)
MESSAGES = st.builds(RawMessage, PROPERTIES, st.binary(max_size=300))


def dlq(*arguments: str | Path, url: str, code: int = 0) -> str:
    done = command(*map(str, arguments), environment={**os.environ, "DLQ_URL": url})
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def another_broker() -> Iterator[PrivateBroker]:
    """The installed one: where the letters come from."""
    with private_broker(None) as running:
        yield running


@pytest.fixture(scope="module")
def old(another_broker: PrivateBroker) -> Iterator[Vhost]:
    with fresh_vhost(another_broker) as fresh:
        postbox.declare(fresh.url, "dead")
        yield fresh


@pytest.fixture(scope="module")
def new(broker: PrivateBroker) -> Iterator[Vhost]:
    with fresh_vhost(broker) as fresh:
        postbox.declare(fresh.url, "again", "unexpected")
        yield fresh


# Shrinking would publish for minutes: the messages of a failure are small enough.
@settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(MESSAGES, min_size=1, max_size=30))
def test_property_by_property_from_broker_to_broker(
    old: Vhost, new: Vhost, tmp_path_factory: pytest.TempPathFactory, some: list[RawMessage]
) -> None:
    folder = tmp_path_factory.mktemp("archives")
    store = f"sqlite:///{folder / 'letters.db'}"
    postbox.publish_raw(old.url, "dead", *some)
    dlq("export", folder / "first.dlq", "--from-queue", "dead", "--take", url=old.url)
    assert postbox.take_raw(old.url, "dead") == []
    dlq("import", folder / "first.dlq", "--to-store", "--store", store, url=old.url)
    dlq("export", folder / "second.dlq", "--store", store, "--state", "any", url=old.url)
    # RabbitMQ 4 sorts headers by itself: what it makes of the very same publish is what must come.
    postbox.publish_raw(new.url, "again", *some)
    expected = postbox.take_raw(new.url, "again")
    dlq("import", folder / "first.dlq", "--to-queue", "again", url=new.url)
    came = postbox.take_raw(new.url, "again")
    assert came == expected
    assert [one.body for one in came] == [one.body for one in some]
    assert [message.view(one.properties) for one in came] == [message.view(one.properties) for one in some]
    # Through the store as well; equal letters are one letter and its copies there.
    dlq("import", folder / "second.dlq", "--to-queue", "again", url=new.url)
    came = postbox.take_raw(new.url, "again")
    assert set(came) == set(expected)
    assert len(came) == len(set(some))
    assert postbox.take_raw(new.url, "unexpected") == []


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_dead_letters_keep_deaths_and_lose_counts_alone(
    old: Vhost, vhost: Vhost, tmp_path: Path, kind: str
) -> None:
    queue = f"dead.{kind}"
    postbox.declare(old.url, queue, kind=kind)
    postbox.fill(old.url, queue, [b"%d" % n for n in range(5)], headers={"a": "b"}, message_id="m")
    dlq("export", tmp_path / "look.dlq", "--from-queue", queue, url=old.url)  # counts a delivery on quorum
    dlq("export", tmp_path / "a.dlq", "--from-queue", queue, "--take", url=old.url)
    postbox.declare(vhost.url, "again")
    dlq("import", tmp_path / "a.dlq", "--to-queue", "again", url=vhost.url)
    dlq("import", tmp_path / "look.dlq", "--to-queue", "again", url=vhost.url)
    came = [message.view(one.properties) for one in postbox.take_raw(vhost.url, "again")]
    assert len(came) == 10
    for view in came:
        assert view.headers is not None
        assert view.headers.keys() & names.DELIVERY_COUNTS == set()
        assert view.headers[names.X_DEATH]
        assert view.headers["a"] == "b"
    # A quorum queue sorts headers when it counts a delivery; the values are the same.
    firsts = [dict(view.headers or {}) for view in came[:5]]
    seconds = [dict(view.headers or {}) for view in came[5:]]
    assert sorted(map(repr, (sorted(h.items(), key=repr) for h in firsts))) == sorted(
        map(repr, (sorted(h.items(), key=repr) for h in seconds))
    )


def test_cc_makes_no_copy_and_the_key_stays(vhost: Vhost, tmp_path: Path) -> None:
    postbox.declare(vhost.url, "dead", "again", "other")
    headers = oracle.table_bytes([(b"CC", oracle.array([oracle.text(b"other")]))])
    one = RawMessage(oracle.properties(headers=headers, delivery_mode=2), b"x")
    postbox.publish_raw(vhost.url, "dead", one)
    assert len(postbox.take_raw(vhost.url, "other")) == 1, "that is what CC does"
    dlq("export", tmp_path / "a.dlq", "--from-queue", "dead", "--take", url=vhost.url)
    dlq("import", tmp_path / "a.dlq", "--to-queue", "again", url=vhost.url)
    (post,) = postbox.drain(vhost.url, "again", expect=1)
    assert post.routing_key == "dead"
    assert post.headers["CC"] == ["other"]
    assert postbox.take_raw(vhost.url, "other") == []
    said = dlq("import", tmp_path / "a.dlq", "--to-exchange", "", "--key", "again", url=vhost.url)
    assert "CC of 1 letter was set aside" in said
    (post,) = postbox.drain(vhost.url, "again", expect=1)
    assert post.headers == {names.CC: ["other"]}
    assert postbox.take_raw(vhost.url, "other") == []


def test_a_foreign_user_is_set_aside(vhost: Vhost, tmp_path: Path) -> None:
    postbox.declare(vhost.url, "dead", "again")
    (user,) = {one["name"] for one in [call_whoami(vhost)]}
    postbox.publish_raw(vhost.url, "dead", RawMessage(encode(View(user_id=user, delivery_mode=2)), b"x"))
    dlq("export", tmp_path / "a.dlq", "--from-queue", "dead", "--take", url=vhost.url)
    dlq("import", tmp_path / "a.dlq", "--to-queue", "again", url=vhost.url)
    (came,) = postbox.take_raw(vhost.url, "again")
    assert message.view(came.properties).user_id == user, "the same user may say so"
    foreign = restored(came, user="somebody-else", may_copy=False)
    assert foreign.set_aside == ("user_id",)
    assert message.view(foreign.message.properties).headers == {names.USER_ID: user}


def call_whoami(vhost: Vhost) -> dict[str, str]:
    found = call(vhost.broker, "GET", "whoami")
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_look_leaves_them_and_says_so(vhost: Vhost, tmp_path: Path, kind: str) -> None:
    postbox.declare(vhost.url, "dead", kind=kind)
    postbox.fill(vhost.url, "dead", [b'{"n": %d}' % n for n in range(30)], content_type="application/json")
    said = dlq("export", tmp_path / "a.dlq", "--from-queue", "dead", url=vhost.url)
    assert said.startswith(f"30 letters in {tmp_path / 'a.dlq'} (an archive)\nthey are still in dead\n")
    assert stat.S_IMODE((tmp_path / "a.dlq").stat().st_mode) == 0o600
    lines = [json.loads(one) for one in dlq("export", "--from-queue", "dead", url=vhost.url).splitlines()]
    assert sorted(one["body"]["n"] for one in lines) == list(range(30))
    assert {one["reason"] for one in lines} == {"expired"}
    assert len(postbox.drain(vhost.url, "dead", expect=30)) == 30
    told = json.loads(dlq("import", tmp_path / "a.dlq", "--dry-run", "--json", url=vhost.url))
    assert (told["would_import"], told["whole"], told["queues"]) == (30, True, {"dead": 30})


def test_nothing_is_overwritten(vhost: Vhost, tmp_path: Path) -> None:
    postbox.declare(vhost.url, "dead")
    postbox.fill(vhost.url, "dead", [b"x"], dead=False)
    (tmp_path / "a.dlq").write_text("mine")
    done = command(
        "export", str(tmp_path / "a.dlq"), "--from-queue", "dead", "--take",
        environment={**os.environ, "DLQ_URL": vhost.url},
    )  # fmt: skip
    assert done.returncode == 2
    assert "is there already; --force replaces it" in done.stderr
    assert (tmp_path / "a.dlq").read_text() == "mine"
    assert postbox.depth(vhost.url, "dead") == 1
    dlq("export", tmp_path / "a.dlq", "--from-queue", "dead", "--take", "--force", url=vhost.url)
    assert postbox.depth(vhost.url, "dead") == 0
    assert [one.name for one in tmp_path.iterdir()] == ["a.dlq"]


def test_a_full_queue_ends_it_and_the_rest_goes_on(vhost: Vhost, tmp_path: Path) -> None:
    postbox.declare(vhost.url, "dead")
    postbox.declare(vhost.url, "small", x_max_length=100, x_overflow="reject-publish")
    postbox.fill(vhost.url, "dead", [b"%d" % n for n in range(400)], dead=False)
    dlq("export", tmp_path / "a.dlq", "--from-queue", "dead", "--take", url=vhost.url)
    arrived: list[bytes] = []
    left = "1-"
    for _ in range(60):
        told = json.loads(
            dlq_any(
                "import",
                tmp_path / "a.dlq",
                "--to-queue",
                "small",
                "--letters",
                left,
                "--json",
                url=vhost.url,
            )
        )
        arrived += [one.body for one in postbox.take_raw(vhost.url, "small")]
        assert told["imported"] + told["failed"] > 0
        left = told["left"]
        if not left:
            break
    assert Counter(arrived) == Counter(b"%d" % n for n in range(400)), "each once"


def dlq_any(*arguments: str | Path, url: str) -> str:
    return command(*map(str, arguments), environment={**os.environ, "DLQ_URL": url}).stdout


def test_one_that_cannot_be_published_takes_no_other_with_it(vhost: Vhost, tmp_path: Path) -> None:
    postbox.declare(vhost.url, "dead", "again")
    folder = tmp_path / "a.dlq"
    postbox.fill(vhost.url, "dead", [b"%d" % n for n in range(20)], dead=False)
    dlq("export", folder, "--from-queue", "dead", "--take", url=vhost.url)
    bad = oracle.properties(expiration=b"soon", delivery_mode=2)  # 406 closes the channel
    packer = ArchivePacker(ArchiveHead(id=b"i" * 16, made_ms=0, source="", taken=False, writer=""))
    raw = packer.begin()
    for one in ArchiveReader(folder).letters():
        letter = one.letter
        if one.number == 7:
            letter.message = RawMessage(bad, b"bad")
        packer.add(letter)
    other = tmp_path / "b.dlq"
    other.write_bytes(raw + packer.end())
    said = dlq("import", other, "--to-queue", "again", url=vhost.url, code=1)
    assert "19 letters imported into again" in said
    assert "the broker does not accept it: 406" in said
    assert "--letters 7" in said
    came = [one.body for one in postbox.take_raw(vhost.url, "again")]
    assert set(came) == {b"%d" % n for n in range(20) if n != 6}


def test_a_queue_that_is_not_there(vhost: Vhost, tmp_path: Path) -> None:
    postbox.declare(vhost.url, "dead")
    postbox.fill(vhost.url, "dead", [b"x"], dead=False)
    dlq("export", tmp_path / "a.dlq", "--from-queue", "dead", url=vhost.url)
    done = command(
        "import", str(tmp_path / "a.dlq"), "--to-queue", "nowhere",
        environment={**os.environ, "DLQ_URL": vhost.url},
    )  # fmt: skip
    assert done.returncode == 1
    assert "no queue 'nowhere'" in done.stderr
    assert vhost.get("exchanges", "deadletter.return.nowhere") is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_killed_while_it_takes_no_letter_is_lost(vhost: Vhost, tmp_path: Path, kind: str) -> None:
    """SIGKILL at any moment: each letter is in the queue or in what was written, or in both."""
    postbox.declare(vhost.url, "dead", kind=kind)
    bodies = [b"%05d" % n + b"x" * 200 for n in range(2500)]
    postbox.fill(vhost.url, "dead", bodies, dead=False)
    archive, part = tmp_path / "a.dlq", tmp_path / "a.dlq.part"
    line = [
        *LINE,
        "export",
        str(archive),
        "--from-queue",
        "dead",
        "--take",
    ]
    kills = 0
    for attempt in range(5):
        resume = ["--resume"] if part.exists() and part.stat().st_size else []
        running = subprocess.Popen(
            [*line, *resume], env={**os.environ, "DLQ_URL": vhost.url}, stdout=subprocess.DEVNULL
        )
        before = part.stat().st_size if part.exists() else 0
        until = time.monotonic() + 120
        while running.poll() is None and time.monotonic() < until:
            if part.exists() and part.stat().st_size > before:
                time.sleep(0.03 * attempt)
                break
            time.sleep(0.002)
        running.send_signal(signal.SIGKILL)
        kills += running.wait() == -signal.SIGKILL
        if archive.exists():
            break
    if not archive.exists():
        resume = ["--resume"] if part.exists() and part.stat().st_size else []
        subprocess.run([*line, *resume], env={**os.environ, "DLQ_URL": vhost.url}, check=True, timeout=60)
    assert kills
    postbox.declare(vhost.url, "again")
    dlq("import", archive, "--to-queue", "again", url=vhost.url)
    posts = postbox.drain(vhost.url, "again")
    rest = postbox.drain(vhost.url, "dead")
    assert {post.body for post in [*posts, *rest]} == set(bodies)
    assert rest == []
    assert not part.exists()


@pytest.mark.parametrize("after", [30_000, 200_000, 500_000])
def test_a_line_that_is_cut_loses_nothing_and_what_may_be_twice_is_told(
    vhost: Vhost, tmp_path: Path, after: int
) -> None:
    postbox.declare(vhost.url, "dead", "again")
    bodies = [b"%04d" % n + b"x" * 400 for n in range(2000)]
    postbox.fill(vhost.url, "dead", bodies, dead=False)
    (address,) = parse_addresses(vhost.url)
    path = tmp_path / "a.dlq"

    async def take() -> int:
        async with Plug(address, cut_after_heard_bytes=after) as plug:
            async with taking([plug.address], "dead", api=vhost.api, lift=False) as asked:
                sink = ArchiveSink.create(path, source="", taken=True, replace=False, now_ms=1)
                export = QueueExport(
                    [plug.address], "dead", sink, asked, take=True, limit=None, on_event=ignore
                )
                tally = await export.run()
                sink.finish()
            assert plug.cuts
            return export.maybe_twice(tally)

    twice = postbox.run(take())
    found = Counter(one.message.body for one in ArchiveReader(path).letters())
    assert set(found) == set(bodies)
    assert found.total() - len(bodies) <= twice
    assert postbox.depth(vhost.url, "dead") == 0

    async def put_back() -> Restoration:
        async with Plug(address, cut_after_sent_bytes=after) as plug:
            letters = ArchiveReader(path).letters()
            done = await QueueImport(
                [plug.address], Target("again"), letters, on_event=ignore, on_progress=ignore
            ).run()
            assert plug.cuts
            return done

    done = postbox.run(put_back())
    came = Counter(post.body for post in postbox.drain(vhost.url, "again", expect=found.total()))
    assert done.arrived == found.total()
    assert not done.left
    assert came.keys() == found.keys()
    assert came.total() - found.total() <= done.maybe_twice


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_full_disk_loses_nothing(vhost: Vhost, tmp_path: Path, kind: str) -> None:
    postbox.declare(vhost.url, "dead", kind=kind)
    bodies = [os.urandom(300) for _ in range(2500)]
    postbox.fill(vhost.url, "dead", bodies, dead=False)
    archive, part = tmp_path / "a.dlq", tmp_path / "a.dlq.part"
    done = subprocess.run(
        [*LINE, "export", str(archive), "--from-queue", "dead", "--take"],
        env={**os.environ, "DLQ_URL": vhost.url},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000)),
    )
    assert done.returncode == 1, done
    assert "File too large; what was taken by then is in" in done.stderr
    assert not archive.exists()
    written = [one.message.body for one in ArchiveReader(part).letters()]
    wait_for(lambda: postbox.depth(vhost.url, "dead") + len(written) >= 2500, "the rest in its queue")
    assert 0 < postbox.depth(vhost.url, "dead") < 2500
    dlq("export", archive, "--from-queue", "dead", "--take", "--resume", url=vhost.url)
    assert postbox.depth(vhost.url, "dead") == 0
    reader = ArchiveReader(archive)
    found = Counter(one.message.body for one in reader.letters())
    assert reader.whole
    assert set(found) == set(bodies)


@pytest.mark.slow
def test_stopped_while_it_takes_each_is_in_one_home(vhost: Vhost, tmp_path: Path) -> None:
    postbox.declare(vhost.url, "dead")
    bodies = [b"%05d" % n + b"x" * 300 for n in range(20_000)]
    postbox.fill(vhost.url, "dead", bodies, dead=False)
    archive, part = tmp_path / "a.dlq", tmp_path / "a.dlq.part"
    running = subprocess.Popen(
        [*LINE, "export", str(archive), "--from-queue", "dead", "--take", "--json"],
        env={**os.environ, "DLQ_URL": vhost.url}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not part.exists() or part.stat().st_size < 20_000:
        assert running.poll() is None
        time.sleep(0.005)
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=60)
    told = json.loads(said)
    assert running.returncode == 1
    assert not told["complete"]
    rest = postbox.drain(vhost.url, "dead")
    assert told["letters"] + len(rest) == len(bodies) + told["maybe_twice"]
    assert told["maybe_twice"] == 0
    postbox.declare(vhost.url, "again")
    dlq("import", archive, "--to-queue", "again", url=vhost.url)
    came = [post.body for post in postbox.drain(vhost.url, "again")]
    assert Counter(came + [post.body for post in rest]) == Counter(bodies)
