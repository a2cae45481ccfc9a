"""Preparing a store: the table's shape, somebody else's table left as it is, several at once, old and new.

About `store.preparing`, `store.opening`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.postgres import PrivatePostgres
from tests.store.grounds import Ground, PostgresGround, SqliteGround

from deadletter.core.deciding.event_config import Row
from deadletter.errors import StoreRefused, StoreUnreachable, TableMissing
from deadletter.store.opening import open_store
from deadletter.store.preparing import MIGRATIONS, migrate

pytestmark = pytest.mark.unprepared

NEWEST = "0008"
PG_SHAPE = (
    "SELECT column_name, data_type, character_maximum_length, is_nullable, column_default "
    "FROM information_schema.columns WHERE table_name = 'dlq_event_config' ORDER BY ordinal_position"
)


async def test_the_table_has_exactly_its_shape(ground: Ground) -> None:
    await migrate(ground.url)
    match ground:
        case SqliteGround():
            assert ground.sql(
                "SELECT name, type, \"notnull\", pk FROM pragma_table_info('dlq_event_config')"
            ) == ("id|INTEGER|1|1\nname|VARCHAR(100)|0|0\nmax_retries|INTEGER|0|0")
        case PostgresGround():
            assert ground.sql(PG_SHAPE) == (
                "id|integer||NO|\nname|character varying|100|YES|\nmax_retries|integer||YES|"
            )
            assert "PRIMARY KEY (id)" in ground.definition()


async def test_a_new_file_has_large_pages_and_one_that_is_there_keeps_its_own(tmp_path: Path) -> None:
    sizes: list[int] = []
    for name, made in (("new.db", ""), ("old.db", "CREATE TABLE theirs (id integer)")):
        path = tmp_path / name
        if made:
            with closing(sqlite3.connect(path)) as before:
                before.execute("PRAGMA page_size = 4096")
                before.execute(made)
        await migrate(f"sqlite:///{path}")
        with closing(sqlite3.connect(path)) as after:
            sizes += after.execute("PRAGMA page_size").fetchone()
    assert sizes == [8192, 4096]


FOREIGN = [
    "CREATE TABLE dlq_event_config (id int PRIMARY KEY, name varchar(100), max_retries integer)",
    # more columns, another order and types, as somebody's own migrations may have made it
    """CREATE TABLE dlq_event_config (tenant text NOT NULL DEFAULT 'x', max_retries bigint, name text UNIQUE,
    id bigint PRIMARY KEY CHECK (id > 0))""",
]


@pytest.mark.parametrize("created", FOREIGN)
async def test_a_table_that_is_there_is_used_as_it_is(ground: Ground, created: str) -> None:
    if isinstance(ground, SqliteGround):
        ground.path.parent.mkdir()
    ground.sql(created)
    ground.sql("INSERT INTO dlq_event_config (id, name, max_retries) VALUES (4, 'a.b', 2), (5, NULL, NULL)")
    before = ground.definition(), ground.sql("SELECT * FROM dlq_event_config ORDER BY id")
    async with open_store(ground.url) as store:
        assert await store.event_rows() == [
            Row(id=5, name=None, max_retries=None),
            Row(id=4, name="a.b", max_retries=2),
        ]
        assert (ground.definition(), ground.sql("SELECT * FROM dlq_event_config ORDER BY id")) == before
        await store.set_event("c", 1)
        await store.set_event("a.b", 9)
    assert (
        ground.sql("SELECT id, name, max_retries FROM dlq_event_config ORDER BY id") == "4|a.b|9\n5||\n6|c|1"
    )
    assert ground.definition() == before[0]


async def test_a_table_in_another_schema_of_the_search_path(postgres_ground: PostgresGround) -> None:
    ground = postgres_ground
    ground.sql("CREATE SCHEMA ours")
    ground.sql("CREATE SCHEMA theirs")
    ground.sql(
        "CREATE TABLE theirs.dlq_event_config (id int PRIMARY KEY, name varchar(100), max_retries int)"
    )
    ground.sql("INSERT INTO theirs.dlq_event_config VALUES (1, 'a', 3)")
    for parameters in ("search_path=ours,theirs", "options=-csearch_path%3Dours,theirs"):
        async with open_store(f"{ground.url}?{parameters}") as store:
            assert (await store.event_rows())[-1] == Row(id=1, name="a", max_retries=3)
            await store.set_event("b", 1)
    tables = "SELECT schemaname, tablename FROM pg_tables WHERE schemaname IN ('ours', 'theirs', 'public')"
    found = ground.sql(tables).splitlines()
    assert {"ours|deadletter_handled", "ours|deadletter_letters", "ours|deadletter_version"} <= {*found}
    assert [name for name in found if not name.startswith("ours|deadletter_")] == ["theirs|dlq_event_config"]
    assert ground.sql("SELECT count(*) FROM theirs.dlq_event_config") == "2"


async def test_the_applications_own_alembic_is_not_in_the_way(ground: Ground) -> None:
    if isinstance(ground, SqliteGround):
        ground.path.parent.mkdir()
    ground.sql("CREATE TABLE alembic_version (version_num varchar(32) NOT NULL)")
    ground.sql("INSERT INTO alembic_version VALUES ('theirs')")
    await migrate(ground.url)
    assert ground.sql("SELECT * FROM alembic_version") == "theirs"
    assert ground.sql("SELECT * FROM deadletter_version") == NEWEST


async def test_five_at_once_in_one_process(ground: Ground) -> None:
    await asyncio.gather(*(migrate(ground.url) for _ in range(5)))
    assert ground.sql("SELECT * FROM deadletter_version") == NEWEST


def test_five_processes_at_once(ground: Ground) -> None:
    program = (
        "import asyncio, sys; from deadletter.store.preparing import migrate; sys.stdin.readline(); "
        "asyncio.run(migrate(sys.argv[1]))"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program, ground.url],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(5)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("now\n")
        process.stdin.flush()
    ended = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0] * 5, ended
    assert ground.sql("SELECT * FROM deadletter_version") == NEWEST


LATER = """
from __future__ import annotations
import sqlalchemy as sa
from alembic.operations import Operations
revision = "9999"
down_revision = "0008"
def upgrade(op: Operations) -> None:
    op.add_column("dlq_event_config", sa.Column("note", sa.String(100), nullable=True))
    op.create_table("deadletter_more", sa.Column("id", sa.Integer, primary_key=True))
"""


async def test_an_older_instance_works_on_while_a_newer_one_upgrades(ground: Ground, tmp_path: Path) -> None:
    newer = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, newer, ignore=shutil.ignore_patterns("__pycache__"))
    (newer / "versions" / "v9999_later.py").write_text(LATER)
    async with open_store(ground.url) as old:
        await old.set_event("a", 1)
        await migrate(ground.url, migrations=newer)
        assert ground.sql("SELECT * FROM deadletter_version") == "9999"
        assert await old.event_rows() == [Row(id=1, name="a", max_retries=1)]
        await old.set_event("a", 2)
        await old.set_event("b", 3)
        assert await old.remove_event("a") == 1
    # and it may start again, when the store is newer than it knows
    async with open_store(ground.url) as old:
        assert await old.event_rows() == [Row(id=2, name="b", max_retries=3)]
    assert ground.sql("SELECT * FROM deadletter_version") == "9999"


def test_every_migration_only_adds() -> None:
    steps = sorted((MIGRATIONS / "versions").glob("v*.py"))
    assert steps
    for step in steps:
        taking = re.findall(
            r"\b(drop|rename|alter_column|downgrade|DROP|RENAME|ALTER|DELETE)\w*", step.read_text()
        )
        taking = [word for word in taking if word != "DELETE" or "OR DELETE OR" not in step.read_text()]
        assert taking == [], step


async def test_who_may_not_create_uses_what_is_there(postgres_ground: PostgresGround) -> None:
    ground, server = postgres_ground, postgres_ground.server
    ground.sql("DROP ROLE IF EXISTS reader")
    ground.sql("CREATE ROLE reader LOGIN PASSWORD 'secret'")
    url = ground.url.replace("//dlq:", "//reader:")
    with pytest.raises(StoreRefused, match="we may not create it; have somebody who may run: CREATE TABLE"):
        await migrate(url)
    ground.sql(FOREIGN[0])
    ground.sql("INSERT INTO dlq_event_config VALUES (1, 'a', 3)")
    with pytest.raises(StoreRefused, match="permission denied for table dlq_event_config"):
        async with open_store(url) as store:
            await store.event_rows()
    ground.sql("GRANT SELECT ON dlq_event_config TO reader")
    async with open_store(url) as store:
        assert await store.event_rows() == [Row(id=1, name="a", max_retries=3)]
        with pytest.raises(StoreRefused, match="permission denied"):
            await store.set_event("a", 1)
    assert (
        server.psql("SELECT count(*) FROM pg_tables WHERE tablename = 'deadletter_version'", ground.url)
        == "0"
    )


async def test_what_is_said_when_there_is_no_store(
    postgres: PrivatePostgres, tmp_path: Path, sqlite_ground: SqliteGround
) -> None:
    with pytest.raises(StoreRefused, match="password authentication failed") as wrong:
        await migrate(postgres.database_url("deadletter", password="hunter2"))
    assert "hunter2" not in str(wrong.value)
    with pytest.raises(StoreRefused, match='database "nope" does not exist'):
        await migrate(postgres.database_url("nope"))
    with pytest.raises(StoreUnreachable, match="does not answer"):
        await migrate("postgresql://u:hunter2@127.0.0.1:1/d")
    (tmp_path / "file").write_text("no database, and long enough to be taken for one" * 10)
    with pytest.raises(StoreRefused, match="file is not a database"):
        await migrate(f"sqlite:///{tmp_path}/file")
    with pytest.raises(StoreUnreachable, match=f"{os.strerror(20)}"):
        await migrate(f"sqlite:///{tmp_path}/file/below/x.db")
    with pytest.raises(StoreUnreachable, match="unable to open database file"):
        async with open_store(sqlite_ground.url, prepare=False) as store:
            await store.event_rows()
    assert not sqlite_ground.path.exists()
    async with open_store(postgres.fresh_database(), prepare=False) as store:
        with pytest.raises(TableMissing, match="dlq_event_config"):
            await store.event_rows()
