"""The page on settings and the example file cannot drift from what the code reads.

To write the tables of the page anew: `python -m tests.unit.config.test_config_docs`.

About `config.tables.file`, `config.tables.keys`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.paths import ROOT

from deadletter.config import load
from deadletter.config.environment import EVERY_VARIABLE, MODE_VARIABLE, WATCH_VARIABLE
from deadletter.config.files import read
from deadletter.config.plain import CONFIG_VARIABLE
from deadletter.config.secrets import shown
from deadletter.config.settings import Mode, Settings
from deadletter.config.tables.file import json_schema
from deadletter.config.tables.keys import ConfigKey, keys, variables
from deadletter.core.deciding.backoff import compile_schedule

DOCS = ROOT / "docs"
PAGE = DOCS / "configuration.md"
EXAMPLE = DOCS / "examples" / "deadletter.toml"


def documented_as(key: ConfigKey) -> str:
    """A back-off is described once, wherever it may stand; so are the errors of a policy."""
    if "backoff" in key.path:
        return f"backoff.{key.path[-1]}"
    return key.name.replace("default_policy.errors.", "policies.errors.")


def row(name: str) -> str:
    same = [key for key in keys() if documented_as(key) == name]
    variable = next((f"`{key.variable}`" for key in same if key.variable), "")
    default = same[0].field.get_default()
    if same[0].field.is_required():
        written = "required"
    else:
        written = "" if default is None else f"`{json.dumps(default)}`"
    return f"| `{name}` | {written} | {variable} | {same[0].field.description} |"


def names() -> list[str]:
    return list(dict.fromkeys(documented_as(key) for key in keys()))


def test_every_key_has_its_row_in_the_page() -> None:
    page = PAGE.read_text().splitlines()
    assert [row(name) for name in names() if row(name) not in page] == []


def test_the_page_has_no_row_for_a_key_there_is_not() -> None:
    documented = re.findall(r"^\| `([a-z_.]+)` \|", PAGE.read_text(), flags=re.MULTILINE)
    assert sorted(documented) == sorted(names())


def test_the_page_says_where_a_backoff_may_stand() -> None:
    page = PAGE.read_text()
    places = {".".join(key.path[:-1]) for key in keys() if key.path[-2:-1] == ("backoff",)}
    assert [place for place in sorted(places) if f"`{place}`" not in page] == []


def test_every_variable_in_the_page_is_one() -> None:
    named = set(re.findall(r"DLQ_[A-Z_]+[A-Z]", PAGE.read_text()))
    of_a_watch = {WATCH_VARIABLE, MODE_VARIABLE, EVERY_VARIABLE}
    assert named - {"DLQ_RETRY_INTERVAL_SECONDS"} == {*variables(), CONFIG_VARIABLE, *of_a_watch}, (
        "one stands there as an example of a name that is refused"
    )


def test_every_key_is_in_the_schema_with_what_it_is_for() -> None:
    schema = json.dumps(json_schema())
    for key in keys():
        assert f'"{key.path[-1]}": ' in schema
        assert key.field.description
        assert json.dumps(key.field.description) in schema


def test_variables_are_unambiguous() -> None:
    settable = [key for key in keys() if key.variable]
    assert len(variables()) == len(settable)
    assert all(not key.in_list for key in settable)


def test_the_example_loads_and_shows_every_section() -> None:
    settings = load(config=EXAMPLE, environment={})
    assert [policy.name for policy in settings.policies] == [
        "too-late", "big-orders", "orders", "goqueue", "default",
    ]  # fmt: skip
    assert len(settings.watches) == 5
    written = {tuple(part for part in trail if isinstance(part, str)) for trail in read(EXAMPLE).lines}
    shown_keys = {documented_as(key) for key in keys() if key.path in written}
    assert [name for name in names() if name not in shown_keys and "default_policy" not in name] == []


def test_the_example_holds_its_secrets_when_shown() -> None:
    settings = load(config=EXAMPLE, environment={})
    everything = "\n".join(f"{e.key} {e.value} {shown(e.value)}" for e in settings.effective)
    assert "change-me" not in everything
    assert "T000" not in everything
    assert "change-me" not in repr(settings)
    assert "T000" not in repr(settings)


def test_each_key_stands_with_its_section() -> None:
    section = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif found := re.match(r"\| `([a-z_]+)\.[a-z_.]+` \|", line):
            assert found[1] == section, line


def example(name: str) -> Settings:
    settings = load(config=DOCS / "examples" / name, environment={})
    assert f"(examples/{name})" in PAGE.read_text()
    return settings


def test_every_example_is_shown_and_loads() -> None:
    names_there = {path.name for path in (DOCS / "examples").iterdir()}
    assert names_there == {"deadletter.toml", "processor.toml", "retry-service.toml", "serve.toml"}
    for name in sorted(names_there):
        example(name)


def test_the_processor_is_what_its_document_asks_for() -> None:
    settings = example("processor.toml")
    (watch,) = settings.watches
    assert (watch.dlq, watch.layout, watch.mode) == ("retry-queue", "levels", Mode.CONSUME)
    assert watch.delays_ms == (10_000, 15_000, 20_000)
    assert settings.policies.default.retries == 0
    assert [(rule.match.routing_key, rule.retries) for rule in settings.policies.rules] == [
        ("order.placed", 3)
    ]


def test_the_retry_service_is_what_its_document_asks_for() -> None:
    by_clock, growing, at_start, asked = example("retry-service.toml").watches
    assert (by_clock.dlq, by_clock.mode, by_clock.every_ms) == ("bot_events.dlq", Mode.SWEEP, 900_000)
    assert growing.pauses is not None
    pauses_ms = compile_schedule(growing.pauses, 3).typical_delays_ms
    assert (pauses_ms, growing.limit_per_boot) == ((300_000, 900_000, 2_700_000), 3)
    assert (at_start.mode, asked.mode) == (Mode.STARTUP, Mode.MANUAL)
    assert {watch.layout for watch in (by_clock, growing, at_start, asked)} == {"sweep"}


def test_the_rows_on_other_systems_are_settings_that_load(tmp_path: Path) -> None:
    """What the table promises under `here`, read as the lines of a watch."""
    of_a_watch = ("mode", "every", "backoff", "limit_per_boot", "layout", "dlq")
    file = tmp_path / "deadletter.toml"
    seen: list[str] = []
    for said in PAGE.read_text().partition("| there | here |")[2].splitlines():
        here = [line for line in re.findall(r"`([a-z_]+ = [^`]+)`", said) if line.split()[0] in of_a_watch]
        named = [] if any(line.startswith("dlq") for line in here) else ['dlq = "x.dlq"']
        file.write_text("\n".join(["[[watches]]", *named, *here]))
        load(config=file, environment={})
        seen += here
    assert {line.split()[0] for line in seen} == {*of_a_watch}


if __name__ == "__main__":
    for name in names():
        print(row(name))
