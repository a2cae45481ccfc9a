"""A configuration file as a tree of plain values, and the line on which each of them stands.

TOML comes from the standard library, which does not say where it found what; so the text, once it is known to
be valid, is walked a second time for the lines alone. YAML's nodes know theirs.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from pathlib import Path
from typing import Final, NamedTuple

from deadletter.errors import ConfigError, Problem

MAX_FILE_BYTES: Final = 1024 * 1024
_MAX_YAML_VALUES: Final = 100_000
_YAML_TABLE: Final = "tag:yaml.org,2002:map"
_YAML_LIST: Final = "tag:yaml.org,2002:seq"

Trail = tuple[str | int, ...]
"""The way to a value: keys, and places in lists."""


class Written(NamedTuple):
    """What a file says, and on which line it says it."""

    tree: dict[str, object]
    lines: dict[Trail, int]


def read(path: Path) -> Written:
    """TOML, or YAML by its extension. Raises ConfigError for what cannot be read as either."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _refused("a file that can be read", error.strerror or "an error", str(path)) from error
    if len(raw) > MAX_FILE_BYTES:
        raise _refused(f"at most {MAX_FILE_BYTES} bytes", "more", str(path))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _refused("text in UTF-8", f"the byte 0x{raw[error.start]:02x}", f"{path}:{line}") from error
    return _yaml(text, path) if path.suffix in (".yaml", ".yml") else _toml(text, path)


def _refused(expected: str, got: str, source: str) -> ConfigError:
    return ConfigError((Problem(key="file", expected=expected, got=got, source=source),))


def _toml(text: str, path: Path) -> Written:
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # its text quotes a sign at most, never the line, which may hold a password; the place is only in it
        why, _, place = str(error).partition(" (at ")
        found = re.search(r"line (\d+)", place)
        source = f"{path}:{found[1]}" if found else f"{path}:{text.count(chr(10)) + 1}"
        raise _refused("TOML", f"an error in it: {why}", source) from None
    return Written(tree, _Lines(text).found)


class _Lines:
    """Walks valid TOML and notes the line of every key and every item of a list."""

    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._at = 0
        self._line_ends = [place for place, sign in enumerate(self._text) if sign == "\n"]
        self.found: dict[Trail, int] = {}
        self._lists: dict[Trail, int] = {}
        """How many tables each [[list]] has so far."""
        table: Trail = ()
        while (sign := self._next_sign(skip=" \t\n")) is not None:
            if sign == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> Trail:
        many = self._text.startswith("[[", self._at)
        line = self._line()
        self._at += 2 if many else 1
        *parents, last = self._keys()
        self._at += 2 if many else 1
        trail: Trail = ()
        for key in parents:
            self.found.setdefault((*trail, key), line)
            trail = self._inside((*trail, key))
        trail = (*trail, last)
        self.found.setdefault(trail, line)
        if many:
            self._lists[trail] = self._lists.get(trail, 0) + 1
            trail = self._inside(trail)
            self.found[trail] = line
        return trail

    def _inside(self, trail: Trail) -> Trail:
        return (*trail, self._lists[trail] - 1) if trail in self._lists else trail

    def _pair(self, table: Trail) -> None:
        line = self._line()
        trail = table
        for key in self._keys():
            trail = (*trail, key)
            self.found.setdefault(trail, line)
        self._next_sign()
        self._at += 1  # =
        self._value(trail)

    def _keys(self) -> list[str]:
        keys = []
        while True:
            match self._next_sign():
                case "'" | '"':
                    keys.append(self._string())
                case _:
                    begin = self._at
                    while self._text[self._at : self._at + 1].isalnum() or self._text[self._at] in "_-":
                        self._at += 1
                    keys.append(self._text[begin : self._at])
            if self._next_sign() != ".":
                return keys
            self._at += 1

    def _value(self, trail: Trail) -> None:
        match self._next_sign():
            case "'" | '"':
                self._string()
            case "[":
                self._at += 1
                place = 0
                while self._next_sign(skip=" \t\n,") != "]":
                    self.found[*trail, place] = self._line()
                    self._value((*trail, place))
                    place += 1
                self._at += 1
            case "{":
                self._at += 1
                while self._next_sign(skip=" \t\n,") != "}":
                    self._pair(trail)
                self._at += 1
            case _:
                while self._text[self._at : self._at + 1] not in ("", "\n", ",", "]", "}", "#"):
                    self._at += 1

    def _string(self) -> str:
        for quotes in ('"""', "'''", '"', "'"):
            if self._text.startswith(quotes, self._at):
                break
        begin = self._at + len(quotes)
        end = begin
        while not self._text.startswith(quotes, end):
            end += 2 if self._text[end] == "\\" and quotes[0] == '"' else 1
        # up to two quotes may stand right before the three that end it
        while len(quotes) == 3 and self._text.startswith(quotes[0], end + 3):
            end += 1
        self._at = end + len(quotes)
        inside = self._text[begin:end]
        if "\\" in inside and quotes == '"':
            return str(tomllib.loads(f'key = "{inside}"')["key"])
        return inside

    def _next_sign(self, skip: str = " \t") -> str | None:
        """The next sign that says something, stepped up to; None at the end. Comments end their line."""
        while self._at < len(self._text):
            sign = self._text[self._at]
            if sign == "#":
                end = self._text.find("\n", self._at)
                self._at = end if end >= 0 else len(self._text)
            elif sign in skip:
                self._at += 1
            else:
                return sign
        return None

    def _line(self) -> int:
        return bisect_left(self._line_ends, self._at) + 1


def _yaml(text: str, path: Path) -> Written:
    import yaml

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        source = f"{path}:{mark.line + 1}" if mark else str(path)
        why = getattr(error, "problem", None) or "not YAML"
        raise _refused("YAML", f"an error in it: {why}", source) from None
    if root is None:
        return Written({}, {})
    constructor = yaml.SafeLoader("")
    lines: dict[Trail, int] = {}
    problems: list[Problem] = []

    def value_of(node: yaml.Node, trail: Trail) -> object:
        line = node.start_mark.line + 1
        lines.setdefault(trail, line)
        # an alias inside an alias grows like the grains on the chessboard
        if len(lines) > _MAX_YAML_VALUES:
            raise _refused(f"at most {_MAX_YAML_VALUES} values", "more", f"{path}:{line}")
        if isinstance(node, yaml.MappingNode) and node.tag == _YAML_TABLE:
            return mapping_of(node, trail)
        if isinstance(node, yaml.SequenceNode) and node.tag == _YAML_LIST:
            return [value_of(item, (*trail, place)) for place, item in enumerate(node.value)]
        try:
            if isinstance(node, yaml.ScalarNode):
                return constructor.construct_object(node)
            raise ValueError(node.tag)
        except (yaml.YAMLError, ValueError):
            raise _refused("a plain value", f"the tag {node.tag}", f"{path}:{line}") from None

    def mapping_of(node: yaml.MappingNode, trail: Trail) -> dict[str, object]:
        table: dict[str, object] = {}
        for key_node, item in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise _refused("a name for a key", "a list or a table", f"{path}:{line}")
            key = str(key_node.value)
            if key in table:
                problems.append(
                    Problem(
                        key=".".join(map(str, (*trail, key))),
                        expected="one value",
                        got=f"the second; the first is on line {lines[*trail, key]}",
                        source=f"{path}:{line}",
                    )
                )
                continue
            lines[*trail, key] = line
            table[key] = value_of(item, (*trail, key))
        return table

    if not isinstance(root, yaml.MappingNode):
        raise _refused("a table of settings", f"a {root.id}", f"{path}:1")
    try:
        tree = mapping_of(root, ())
    except RecursionError:
        raise _refused("values inside values to a sensible depth", "too many", str(path)) from None
    finally:
        constructor.dispose()
    if problems:
        raise ConfigError(tuple(problems))
    return Written(tree, lines)
