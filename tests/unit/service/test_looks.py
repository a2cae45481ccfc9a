"""One look around after the other: what is asked of the management API, and what is told of queues.

About `service.survey`, `broker.management`, `broker.live_topology`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import httpx
import pytest

from deadletter.amqp.address import parse_addresses
from deadletter.broker import management
from deadletter.broker.management import Management
from deadletter.config.settings import Mode, Watch
from deadletter.errors import ManagementRefused
from deadletter.http.by_httpx import HttpxAsking
from deadletter.service.survey import Surveyor
from deadletter.service.telling.service_events import QueueGone, QueuesAlike, QueueSeen, ServiceEvent

ALL: Final = Watch(dlq="*.dlq", vhost="/", mode=Mode.CONSUME)
SHAPE: Final = ["bindings", "exchanges", "overview"]


class Api:
    """A management API that answers from lists, and notes what it was asked."""

    def __init__(self, *names: str) -> None:
        self.queues: dict[str, dict[str, Any]] = {}
        self.policies: list[dict[str, Any]] = []
        self.broken: set[str] = set()
        self.asked: list[str] = []
        self.odd: Any = None
        """Told instead of a whole list."""
        for name in names:
            self.declare(name)

    def declare(self, name: str, **arguments: object) -> None:
        self.queues[name] = {
            "name": name, "durable": True, "auto_delete": False, "exclusive": False, "arguments": arguments,
            "type": "quorum", "messages": 0, "messages_ready": 0, "consumers": 0, "policy": None,
            "operator_policy": None, "effective_policy_definition": {},
        }  # fmt: skip

    def __call__(self, request: httpx.Request) -> httpx.Response:
        what = request.url.path.removeprefix("/api/").partition("/")[0]
        asked = request.url.params
        self.asked.append(f"{what} {asked['page_size']}" if "page" in asked else what)
        if what in self.broken:
            return httpx.Response(500)
        match what:
            case "overview":
                return httpx.Response(200, json={"rabbitmq_version": "3.10.8"})
            case "queues":
                return httpx.Response(200, content=json.dumps(self._list(asked)))
            case "policies":
                return httpx.Response(200, json=self.policies)
            case _:
                return httpx.Response(200, json=[])

    def _list(self, asked: httpx.QueryParams) -> Any:
        columns = asked["columns"].split(",")
        items = [
            {key: one[key] for key in columns if key in one}
            for one in sorted(self.queues.values(), key=lambda one: str(one["name"]))
        ]
        if "page" not in asked:
            return items if self.odd is None else self.odd
        size = int(asked["page_size"])
        return {"page_count": -(-len(items) // size), "items": items[:size]}

    def requests(self) -> list[str]:
        """Since the last time, in order but for those that are asked at once."""
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than three are a long list."""
    monkeypatch.setattr(management, "PAGE", 3)


class Looking:
    def __init__(self, *names: str) -> None:
        self.api = Api(*names)
        self.told: list[ServiceEvent] = []
        self.now = 0.0
        self.surveyor = Surveyor(
            parse_addresses("amqp://guest:guest@here/")[0], [ALL], self.told.append, lambda: self.now
        )
        client = httpx.AsyncClient(transport=httpx.MockTransport(self.api))
        asking = HttpxAsking(client, "http://here/api")
        self.asked = Management(asking, "http://here/api", "guest", "/", "a test")

    async def look(self) -> tuple[list[str], list[ServiceEvent]]:
        """What was asked, and what was told."""
        self.told.clear()
        await self.surveyor.look(self.asked)
        return self.api.requests(), list(self.told)


def names(told: Iterable[ServiceEvent]) -> set[str]:
    return {one.queue for one in told if isinstance(one, QueueSeen)}


def alike(told: Iterable[ServiceEvent]) -> set[str]:
    return {queue.queue for one in told if isinstance(one, QueuesAlike) for queue in one.queues}


# -- lists ------------------------------------------------------------------------------------------------
async def test_a_short_list_is_one_page() -> None:
    looking = Looking("a", "b")
    listing = await looking.asked.every("queues", "name")
    assert [item["name"] for item in listing.items] == ["a", "b"]
    assert looking.api.requests() == ["queues 500"]


@pytest.mark.usefixtures("pages")
async def test_a_long_list_comes_whole_after_its_first_page() -> None:
    """The page before it is what makes a broker compute the list anew."""
    looking = Looking("a", "b", "c", "d")
    listing = await looking.asked.every("queues", "name")
    assert [item["name"] for item in listing.items] == ["a", "b", "c", "d"]
    assert looking.api.requests() == ["queues 3", "queues"]
    assert await looking.asked.every("queues", "name", before=listing) is listing
    assert looking.api.requests() == ["queues 1", "queues"], "a page is asked for each time, a small one"


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c", "d")])
async def test_a_list_that_did_not_change_is_the_one_before(names: tuple[str, ...]) -> None:
    looking = Looking(*names)
    before = await looking.asked.every("queues", "name,messages")
    assert await looking.asked.every("queues", "name,messages", before=before) is before
    looking.api.queues["b"]["messages"] = 1
    after = await looking.asked.every("queues", "name,messages", before=before)
    assert [item["messages"] for item in after.items][1] == 1


@pytest.mark.usefixtures("pages")
async def test_a_long_list_that_became_short_and_long_again() -> None:
    looking = Looking("a", "b", "c", "d")
    listing = await looking.asked.every("queues", "name")
    for name in "bcd":
        del looking.api.queues[name]
    listing = await looking.asked.every("queues", "name", before=listing)
    assert [item["name"] for item in listing.items] == ["a"]
    for name in "xyz":
        looking.api.declare(name)
    listing = await looking.asked.every("queues", "name", before=listing)
    assert [item["name"] for item in listing.items] == ["a", "x", "y", "z"]


@pytest.mark.usefixtures("pages")
async def test_a_whole_list_that_is_none_is_refused() -> None:
    looking = Looking("a", "b", "c", "d")
    looking.api.odd = {"error": "no list"}
    with pytest.raises(ManagementRefused, match="expected a list, got dict"):
        await looking.asked.every("queues", "name")


# -- looks ------------------------------------------------------------------------------------------------
async def test_the_first_look_lists_queues_once_and_reads_the_shape() -> None:
    looking = Looking("a.dlq", "b.dlq", "orders")
    asked, told = await looking.look()
    assert asked[:3] == ["queues 500", "operator-policies", "policies"]
    assert sorted(asked[3:]) == SHAPE
    assert names(told) == {"a.dlq", "b.dlq"}


async def test_of_queues_that_look_as_they_did_one_fact_is_told() -> None:
    looking = Looking("a.dlq", "b.dlq", "orders")
    await looking.look()
    first = looking.surveyor.sight
    asked, told = await looking.look()
    assert asked == ["queues 500", "operator-policies", "policies"]
    assert [type(one) for one in told] == [QueuesAlike]
    assert alike(told) == {"a.dlq", "b.dlq"}
    assert first is not None
    assert looking.surveyor.sight is not None
    assert looking.surveyor.sight.shape is first.shape


async def test_a_queue_that_changed_is_told_alone_and_seen_as_it_is() -> None:
    looking = Looking("a.dlq", "b.dlq", "orders")
    await looking.look()
    looking.api.queues["a.dlq"]["messages"] = 7
    asked, told = await looking.look()
    assert asked == ["queues 500", "operator-policies", "policies"]
    assert (names(told), alike(told)) == ({"a.dlq"}, {"b.dlq"})
    assert looking.surveyor.sight is not None
    states = {name: queue.state for name, queue in looking.surveyor.sight.shape.queues.items()}
    assert {name: state.messages for name, state in states.items() if state is not None} == {
        "a.dlq": 7,
        "b.dlq": 0,
        "orders": 0,
    }


async def test_the_age_of_an_oldest_letter_is_told_each_time() -> None:
    looking = Looking("a.dlq")
    looking.api.queues["a.dlq"] |= {"messages": 1, "head_message_timestamp": 1_600_000_000}
    await looking.look()
    _, told = await looking.look()
    assert names(told) == {"a.dlq"}


async def test_a_queue_that_came_and_one_that_went_are_seen_at_once() -> None:
    looking = Looking("a.dlq", "b.dlq")
    await looking.look()
    looking.api.declare("c.dlq")
    del looking.api.queues["b.dlq"]
    asked, told = await looking.look()
    assert sorted(asked[3:]) == SHAPE
    assert (names(told), alike(told)) == ({"c.dlq"}, {"a.dlq"})
    assert [one.queue for one in told if isinstance(one, QueueGone)] == ["b.dlq"]
    assert looking.surveyor.sight is not None
    assert [one.queue for one in looking.surveyor.sight.watched] == ["a.dlq", "c.dlq"]


async def test_a_queue_declared_otherwise_is_another_queue() -> None:
    looking = Looking("a.dlq")
    await looking.look()
    looking.api.declare("a.dlq", **{"x-max-length": 3})
    asked, _ = await looking.look()
    assert sorted(asked[3:]) == SHAPE
    assert looking.surveyor.sight is not None
    assert looking.surveyor.sight.limits["a.dlq"].max_length == 3


async def test_another_policy_is_seen_at_once() -> None:
    looking = Looking("a.dlq")
    await looking.look()
    definition = {"max-length": 5}
    looking.api.policies = [
        {"name": "p", "pattern": ".*", "definition": definition, "priority": 0, "apply-to": "queues"}
    ]
    asked, _ = await looking.look()
    assert sorted(asked[3:]) == SHAPE
    assert looking.surveyor.sight is not None
    assert looking.surveyor.sight.limits["a.dlq"].max_length == 5


async def test_what_a_look_that_failed_would_have_seen_the_next_one_sees() -> None:
    looking = Looking("a.dlq")
    await looking.look()
    looking.api.declare("b.dlq")
    looking.api.broken = {"bindings"}
    with pytest.raises(ManagementRefused):
        await looking.look()
    looking.api.broken = set()
    looking.api.requests()
    _, told = await looking.look()
    assert (names(told), alike(told)) == ({"b.dlq"}, {"a.dlq"})


async def test_a_second_look_sees_what_was_declared_and_keeps_the_figures() -> None:
    looking = Looking("a.dlq")
    looking.api.queues["a.dlq"]["messages"] = 7
    await looking.look()
    looking.api.queues["a.dlq"]["messages"] = 8
    looking.api.declare("deadletter.due", **{"x-queue-type": "quorum"})
    sight = await looking.surveyor.look_again(looking.asked)
    assert sight.shape.queues["deadletter.due"].type == "quorum"
    state = sight.shape.queues["a.dlq"].state
    assert state is not None
    assert state.messages == 7
    looking.api.requests()
    asked, told = await looking.look()
    assert sorted(asked[3:]) == SHAPE, "everything anew"
    assert names(told) == {"a.dlq", "deadletter.due"}
