"""Stacks as frameworks write them into letters, read: which errors were raised, along which functions.

Python, Java, .NET, Node, Go, Ruby and PHP write them differently; each line is known by its own form, so
that a stack which was cut, indented or mixed still gives its frames. A frame is a module and a function:
never a line number, an address or a generated suffix, which change with every release.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

MAX_CHARS: Final = 64 * 1024
MAX_FRAMES: Final = 400
_MAX_LINE_CHARS: Final = 1_000

_PYTHON: Final = re.compile(r'\s*File "(?P<path>[^"]{1,500})", line \d+(?:, in (?P<function>.{1,200}))?')
_JAVA: Final = re.compile(
    r"\s*at (?:[\w.-]{1,80}(?:@[\w.-]{1,30})?/)?(?P<function>[\w.$<>/]{1,400})"
    r"\((?:[\w$-]{1,200}\.(?:java|kt|scala|groovy)(?::\d+)?|Native Method|Unknown Source|<generated>)\)"
)
_DOTNET: Final = re.compile(
    r"\s*at (?P<function>[\w.+`<>$\[\],|]{1,400})\([^)]{0,600}\)(?: in (?P<path>.{1,500}):line \d+)?\s*$"
)
_NODE: Final = re.compile(
    r"\s*at (?:(?:async |new ){0,2}(?P<function>[^()]{1,200}) \()?"
    r"(?P<path>(?:file:///|node:|[A-Za-z]:\\|/)?[^():]{1,500}):\d+:\d+\)?\s*$"
)
_PHP: Final = re.compile(
    r"#\d+ (?:(?P<path>[^(\s][^(]{0,500})\(\d+\)|\[internal function\]): (?P<function>[^(]{1,300})\("
)
_RUBY: Final = re.compile(
    r"\s*(?:from )?(?P<path>[^\s:][^:]{0,500}\.(?:rb|ru|rake)|<internal:[^>]{1,100}>):\d+"
    r":in [`'](?P<function>[^']{1,200})'"
)
_GO: Final = re.compile(
    r"(?P<function>[\w./*()-]{1,300}\.[\w.()*-]{1,200})\((?:0x[0-9a-f]{1,16}|\.{3}|[,\s{}?]){0,80}\)\s*$"
)
_INNER: Final = " ---> "
_CAUSE: Final = re.compile(r"\s*(?:Caused by: |\[cause\]: |Next )")
_END_OF_INNER: Final = re.compile(r"\s*--- End of inner exception stack trace ---")
_TREE: Final = re.compile(r"^\s{0,20}(?:\| ?|\+[-+ 0-9.]{0,80}\|? ?)")
"""How Python draws a group of exceptions."""
_ERROR: Final = re.compile(
    r"(?:PHP )?(?:Uncaught )?(?P<type>[A-Za-z_$][\w.$\\:`]{0,200}?)(?: \[[\w.]{1,60}\])?"
    r"(?:: (?P<message>.{0,1000})|:?\s*$)"
)
_GENERATED: Final = re.compile(
    r"(\$\$[\w$]{1,80}|\$Proxy\d+|_\$\$_javassist_\w{1,40}|\$\d+|`\d+|<>c__DisplayClass[\d_]+"
    r"|0x[0-9a-f]+|\bb__[\d_]+)"
)
_ANOTHER: Final = ("Traceback (", "The above exception", "During handling", "Exception Group Tr")
_COMPREHENSIONS: Final = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>"})
_RELEASE: Final = re.compile(r"^v?\d[\d._-]*$|\d{4,}|\d+(?=\.\d)|(?<=\d\.)\d+")
"""Numbers of releases and versions in the name of a folder."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A function of some module; `line` is its source where the stack shows it."""

    module: str
    function: str
    path: str = ""
    line: str = ""

    def __str__(self) -> str:
        return f"{self.module}:{self.function}" if self.module else self.function


@dataclass(frozen=True, slots=True)
class Raised:
    """One error of a chain, with the frames from the outermost to where it was raised."""

    error_type: str
    message: str
    frames: tuple[Frame, ...]
    of_group: bool = False
    """One of several that were raised together."""


def read_stack(stack: str) -> tuple[Raised, ...]:
    """The errors of a stack, the root cause first; empty where nothing in it is a stack."""
    lines = [line[:_MAX_LINE_CHARS] for line in stack[:MAX_CHARS].replace("\r\n", "\n").split("\n")]
    if any(_PYTHON.match(_untreed(line)) for line in lines):
        return tuple(_python(lines))
    if _INNER in lines[0]:
        return tuple(_nested(lines))
    return tuple(reversed(list(_innermost_first(lines))))


def _untreed(line: str) -> str:
    return _TREE.sub("", line, count=1) if line.lstrip()[:1] in ("|", "+") else line


def _python(lines: Sequence[str]) -> Iterator[Raised]:
    """Tracebacks in the order Python writes them: the cause above what it caused."""
    frames: list[Frame] = []
    at = 0
    plain = [_untreed(line) for line in lines]
    together = any(line.lstrip()[:2] in ("| ", "+-") for line in lines)
    while at < len(plain):
        line = plain[at]
        at += 1
        if found := _PYTHON.match(line):
            source = plain[at].strip() if at < len(plain) and plain[at].startswith("    ") else ""
            _append(frames, Frame(_module(found["path"]), found["function"] or "", found["path"], source))
        elif frames and line and not line[0].isspace() and (error := _ERROR.match(line)):
            message = [error["message"] or ""]
            while at < len(plain) and not _begins_another(plain[at]):
                message.append(plain[at])
                at += 1
            yield Raised(error["type"], "\n".join(message).strip(), tuple(frames), together)
            frames = []
    if frames:
        yield Raised("", "", tuple(frames), together)


def _append(frames: list[Frame], frame: Frame) -> None:
    """A comprehension is a frame of its own up to Python 3.11, and no frame from 3.12 on."""
    if frame.function in _COMPREHENSIONS and frames and frames[-1].path == frame.path:
        frames[-1] = replace(frames[-1], line=frame.line)
    elif len(frames) < MAX_FRAMES:
        frames.append(replace(frame, function=_function(frame.function)))


def _begins_another(line: str) -> bool:
    return not line.strip("-+ ") or line.startswith(_ANOTHER)


def _innermost_first(lines: Sequence[str]) -> Iterator[Raised]:
    """Java, Node, Go, Ruby and PHP write the last error first and its frames from the innermost outwards."""
    error_type, message, frames = "", "", list[Frame]()
    for line in lines:
        if frame := _frame(line):
            if len(frames) < MAX_FRAMES:
                frames.append(frame)
        elif cause := _CAUSE.match(line):
            if error_type or message or frames:
                yield Raised(error_type, message, tuple(reversed(frames)))
            (error_type, message), frames = _error(line[cause.end() :]), []
        elif not (frames or error_type or message) and line.strip():
            error_type, message = _error(line)
    if error_type or frames:
        yield Raised(error_type, message, tuple(reversed(frames)))


def _nested(lines: Sequence[str]) -> Iterator[Raised]:
    """.NET names all errors in the first line, then writes the frames of the innermost, then the next's."""
    named = [_error(part) for part in lines[0].split(_INNER)]
    frames: list[Frame] = []
    for line in lines[1:]:
        if frame := _frame(line):
            if len(frames) < MAX_FRAMES:
                frames.append(frame)
        elif _END_OF_INNER.match(line) and len(named) > 1:
            yield Raised(*named.pop(), tuple(reversed(frames)))
            frames = []
    for error_type, message in reversed(named):
        yield Raised(error_type, message, tuple(reversed(frames)))
        frames = []


def _error(line: str) -> tuple[str, str]:
    found = _ERROR.match(line.strip())
    return (found["type"], (found["message"] or "").strip()) if found else ("", line.strip())


def _frame(line: str) -> Frame | None:
    for form in (_JAVA, _DOTNET):
        if found := form.match(line):
            module, _, function = found["function"].rpartition(".")
            return Frame(_clean(module), _clean(function), found.groupdict().get("path") or module)
    if (found := _NODE.match(line)) or (found := _PHP.match(line)) or (found := _RUBY.match(line)):
        path = found["path"] or ""
        return Frame(_module(path), _function(found["function"] or "<anonymous>"), path)
    if found := _GO.match(line):
        package, _, function = found["function"].rpartition(".")
        return Frame(_clean(package), _clean(function), package)
    return None


def _module(path: str) -> str:
    """The last two parts of a path: deployments move, packages stay."""
    parts = [part for part in re.split(r"[/\\]", path.removeprefix("file://")) if part]
    if not parts:
        return ""
    file = parts[-1].rpartition(".")[0] or parts[-1]
    folder = _RELEASE.sub("#", parts[-2]) if len(parts) > 1 else ""
    return f"{folder}/{file}" if folder else file


def _function(name: str) -> str:
    return _clean(name.strip().replace("Object.<anonymous>", "<anonymous>").split(" [as ")[0])


def _clean(name: str) -> str:
    return _GENERATED.sub("", name)
