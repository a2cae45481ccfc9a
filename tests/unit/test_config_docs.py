"""The page on settings and the example file cannot drift from what the code reads.

To write the tables of the page anew: `python -m tests.unit.test_config_docs`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from deadletter.config import load
from deadletter.config.files import read
from deadletter.config.keys import Key, keys, variables
from deadletter.config.schema import json_schema
from deadletter.config.secrets import shown
from deadletter.config.sources import CONFIG_VARIABLE

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "configuration.md"
EXAMPLE = DOCS / "examples" / "deadletter.toml"


def documented_as(key: Key) -> str:
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
    assert named == {*variables(), CONFIG_VARIABLE}


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
    assert len(settings.watches) == 4
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


if __name__ == "__main__":
    for name in names():
        print(row(name))
