"""What comes of a question: an answer, or why there is none."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Protocol


class HttpAnswer(NamedTuple):
    """What the server said, whole. `method` is how it was asked."""

    method: str
    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> Any:
        """Raises ValueError."""
        return json.loads(self.body)


class HttpFailed(Exception):
    """No whole answer came; what was asked for may be done or not."""


class NobodyAnswers(HttpFailed):
    """No connection came about: nothing was asked."""


class Asking(Protocol):
    """A conversation with one server."""

    async def ask(
        self, method: str, path: str, content: object = None, *, answer_s: float | None = None
    ) -> HttpAnswer:
        """`path` is below the server's URL, and encoded; `content` is sent as JSON. `answer_s`: how long this
        answer may take to come, where that is not the usual time. Raises HttpFailed.

        All but a POST may be asked twice: when the connection that was kept had just ended.
        """
        ...
