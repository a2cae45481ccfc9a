"""Lines: the second walk through a TOML file finds what the first one read.

About `config.files`.
"""

from __future__ import annotations

from pathlib import Path

from tests.paths import ROOT

from deadletter.config.files import Trail, read


def trails(value: object, trail: Trail = ()) -> set[Trail]:
    found = {trail} if trail else set()
    if isinstance(value, dict):
        for key, inner in value.items():
            found |= trails(inner, (*trail, key))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            found |= trails(inner, (*trail, place))
    return found


TOML = """\
# a comment with [brackets] and = signs
top = 1 # trailing
"quoted key" = "a # in a string"
'single.dotted' = 2
a.b."c.d" = [1, [2, 3], {x = 1, y.z = [4]}]

[table] # comment
text = \"\"\"
[not.a.table]
key = "not a key"
quotes \\\"\"\" inside\"\"\"\"
raw = '''
[[not a list]]
x = 1'''''
multi = [
  "one", # with a comment ]
  { two = 2, three = \"\"\"
[x]\"\"\" },

  'th]ree',
]
date = 2026-01-02T03:04:05Z

[[list]]
name = "first"
[list.inner.deep]
x = true
[[list.below]]
y = 1
[[list.below]]
y = 2

[[list]]
name = "second"
[list.below]
z = { }
[table.later]
"esc\\u0061ped" = 1
"""


def test_every_value_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    for text in (TOML, TOML.replace("\n", "\r\n")):
        file.write_bytes(text.encode())
        tree, lines = read(file)
        assert trails(tree) <= lines.keys()
        assert {trail: lines[trail] for trail in LINES} == LINES


LINES: dict[Trail, int] = {
    ("top",): 2,
    ("quoted key",): 3,
    ("single.dotted",): 4,
    ("a", "b", "c.d"): 5,
    ("a", "b", "c.d", 2, "y", "z", 0): 5,
    ("table",): 7,
    ("table", "text"): 8,
    ("table", "raw"): 12,
    ("table", "multi"): 15,
    ("table", "multi", 0): 16,
    ("table", "multi", 1, "two"): 17,
    ("table", "multi", 1, "three"): 17,
    ("table", "multi", 2): 20,
    ("table", "date"): 22,
    ("list", 0, "name"): 25,
    ("list", 0, "inner", "deep", "x"): 27,
    ("list", 0, "below", 1, "y"): 31,
    ("list", 1): 33,
    ("list", 1, "name"): 34,
    ("list", 1, "below", "z"): 36,
    ("table", "later", "escaped"): 38,
}


def test_the_example_too() -> None:
    example = ROOT / "docs" / "examples" / "deadletter.toml"
    tree, lines = read(example)
    assert trails(tree) <= lines.keys()
    text = example.read_text().splitlines()
    for trail, line in lines.items():
        key = trail[-1]
        if isinstance(key, str):
            assert key in text[line - 1]


def test_yaml_lines(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("a: 1\nb:\n  - c: 2\n    d: [x,\n      y]\n  -\n    e: 3\n")
    tree, lines = read(file)
    assert trails(tree) <= lines.keys()
    assert (lines["b", 0, "c"], lines["b", 0, "d"], lines["b", 0, "d", 1], lines["b", 1, "e"]) == (3, 4, 5, 7)
