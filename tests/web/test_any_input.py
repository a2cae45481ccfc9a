"""The API and any input: schemathesis makes requests from the OpenAPI document, right ones and wrong ones.
No answer may be a server error, or anything that the document does not tell of.

About `desk.api.all_routes`, `desk.problems`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self, TypeAlias, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case, SerializationContext
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python._constants.orchestrator import make_constants_value_source
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.web.conftest import Office
from tests.web.whole_desk import MadeUpOutlook, everything

from deadletter.desk.access.access import Access
from deadletter.desk.answers.news import News
from deadletter.desk.api.sources import MoreSources
from deadletter.desk.http_app import create_app
from deadletter.desk.server import serve
from deadletter.operations.records.exact_letters import MEDIA_TYPE as ARCHIVE
from deadletter.operations.rulebook.store_rulebook import StoreRulebook
from deadletter.service.telling.service_health import ServiceHealth
from deadletter.service.telling.service_metrics import Metrics

QUICK = 5
"""So many requests of each kind in the normal suite;"""
LONG = 300
"""and in the long one."""
_NOT_ASKED = ("/api/v1/events", "/health/ready", "/health/live")
"""One never ends, and the others say 503 for no."""


class Running(threading.Thread):
    """A desk with everything in a thread of its own, with a loop of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._ready = threading.Event()
        self._ending: asyncio.Event
        self._loop: asyncio.AbstractEventLoop
        self.url = ""

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        async with everything(self._folder / "letters.db") as behind:
            app = create_app(
                Office(),
                Metrics(),
                ServiceHealth(lambda: 0.0),
                Access(host="127.0.0.1"),
                behind.records,
                behind.replays,
                behind.more,
            )
            task = asyncio.create_task(serve(app, "127.0.0.1:0", on_ready=self._begun))
            await self._ending.wait()
            task.cancel()
            await asyncio.wait({task})

    def _begun(self, url: str) -> None:
        self.url = url
        self._ready.set()

    def __enter__(self) -> Self:
        self.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_error: object) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self.join(30)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("any input")) as desk:
        yield desk


AnyCase: TypeAlias = Case[Any]


@schemathesis.serializer(ARCHIVE)
def an_archive(_context: SerializationContext, value: object) -> bytes:
    """Of no letters, mostly: anything at all."""
    return repr(value).encode("utf-8", "replace")


_RULES = cast("StoreRulebook", object())
"""It is there, and is not asked."""


def whole_document() -> dict[str, object]:
    """Of an app with everything: nobody is asked for it."""

    async def nobody() -> Any:
        raise AssertionError("the document asks nobody")

    more = MoreSources(journal=nobody, outlook=MadeUpOutlook(), rulebook=_RULES, news=News())
    health = ServiceHealth(lambda: 0.0)
    app = create_app(Office(), Metrics(), health, Access(host="127.0.0.1"), nobody, nobody, more)
    return app.openapi()


schema = schemathesis.openapi.from_dict(whole_document()).exclude(path=list(_NOT_ASKED))


def operations() -> Iterator[tuple[str, APIOperation[Any, Any, Any, Any]]]:
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), "the document has an operation that nobody can read"
        yield found.ok().label, found.ok()


_OPERATIONS = dict(operations())
_CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def bounded(most: int) -> settings:
    return settings(
        max_examples=most,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],
    )


load_all_checks()


def asked(operation: str, most: int, running: Running) -> None:
    """So many requests of this operation, and those at the edges of what it takes. As `schema.parametrize`
    does, but now: to think them out takes seconds, which every worker would spend on collecting."""

    @bounded(most)
    def ask(case: AnyCase) -> None:
        case.call_and_validate(base_url=running.url, checks=_CHECKS, timeout=60)

    build_operation_test(
        config=schema.config,
        operation=_OPERATIONS[operation],
        test_func=ask,
        given_kwargs={},
        feedback=FeedbackSources(constants_value_source=make_constants_value_source(schema)),
    )()


@pytest.mark.parametrize("operation", _OPERATIONS)
def test_no_request_makes_a_mistake_of_ours(operation: str, running: Running) -> None:
    asked(operation, QUICK, running)


@pytest.mark.slow
@pytest.mark.parametrize("operation", _OPERATIONS)
def test_no_request_of_very_many_makes_a_mistake_of_ours(operation: str, running: Running) -> None:
    asked(operation, LONG, running)
