"""Pictures: what is in them, that they are safe to open, and the same every time.

About `drawing.graph`, `drawing.layering`, `drawing.mermaid`, `drawing.svg`,
`core.topology.definitions_export`, `core.topology.definitions`.
"""

from __future__ import annotations

import json
import re
from itertools import combinations
from xml.etree import ElementTree as ET

import pytest

from deadletter.core.topology.definitions import read_definitions
from deadletter.core.topology.definitions_export import definitions
from deadletter.core.topology.drift import compare
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.vhost import Binding, DestinationKind, Exchange, Queue, Topology, topology
from deadletter.drawing.graph import NODES_MAX, DrawnLine, DrawnShape, graph
from deadletter.drawing.layering import layered
from deadletter.drawing.mermaid import mermaid
from deadletter.drawing.svg import _places, svg
from deadletter.errors import UsageError

LEVELS = (1000, 5000, 600_000)
RETRY = topology(
    exchanges=[
        Exchange(name="shop", type="topic", arguments={"alternate-exchange": "lost"}),
        Exchange(name="dlx"),
        Exchange(name="spare"),
    ],
    queues=[
        Queue(name="orders", type="quorum", arguments={"x-dead-letter-exchange": "dlx"}),
        Queue(name="retry", arguments={"x-message-ttl": 5000, "x-dead-letter-exchange": "shop"}),
        Queue(name="due", arguments={"x-max-length": 1000, "x-overflow": "reject-publish"}),
        *(
            Queue(
                name=f"delay.{level}",
                arguments={
                    "x-message-ttl": level,
                    "x-dead-letter-exchange": "",
                    "x-dead-letter-routing-key": "due",
                },
            )
            for level in LEVELS
        ),
        Queue(name="alone"),
    ],
    bindings=[
        Binding(source="shop", destination="orders", routing_key="order.#"),
        Binding(source="dlx", destination="retry", routing_key="a"),
        Binding(source="dlx", destination="retry", routing_key="b"),
        Binding(source="shop", destination="dlx", to=DestinationKind.EXCHANGE, routing_key="x"),
    ],
)


def arrows(shape: Topology) -> set[tuple[str, str, DrawnLine, str]]:
    return {(arrow.source, arrow.target, arrow.line, arrow.label) for arrow in graph(shape).arrows}


def test_what_a_picture_shows() -> None:
    assert arrows(RETRY) == {
        ("exchange shop", "queue orders", DrawnLine.BINDING, "order.#"),
        ("exchange dlx", "queue retry", DrawnLine.BINDING, "a, b"),
        ("exchange shop", "exchange dlx", DrawnLine.BINDING, "x"),
        ("queue orders", "exchange dlx", DrawnLine.DEATH, ""),
        ("queue retry", "exchange shop", DrawnLine.DEATH, "after 5 s"),
        ("queue delay.1000", "queue due", DrawnLine.DEATH, "after 1 s"),
        ("queue delay.5000", "queue due", DrawnLine.DEATH, "after 5 s"),
        ("queue delay.600000", "queue due", DrawnLine.DEATH, "after 10 min"),
        ("exchange shop", "exchange lost", DrawnLine.ALTERNATE, "unroutable"),
    }
    nodes = {node.id: node for node in graph(RETRY).nodes}
    assert nodes["exchange lost"].shape is DrawnShape.HOLE
    assert nodes["queue due"].lines == ("classic", "max 1,000, reject-publish")
    assert "exchange amq.topic" not in nodes
    assert "exchange spare" in nodes


def test_what_a_policy_sets_is_drawn_like_an_argument() -> None:
    shape = topology(
        exchanges=[Exchange(name="dlx")],
        queues=[Queue(name="q")],
        policies=[
            BrokerPolicy(
                name="p", pattern="q", definition={"dead-letter-exchange": "dlx", "message-ttl": 60_000}
            )
        ],
    )
    assert arrows(shape) == {("queue q", "exchange dlx", DrawnLine.DEATH, "after 1 min")}


def test_many_keys_are_one_arrow() -> None:
    bindings = [Binding(source="e", destination="q", routing_key=f"k{number}") for number in range(9)]
    shape = topology(exchanges=[Exchange(name="e")], queues=[Queue(name="q")], bindings=bindings)
    assert arrows(shape) == {("exchange e", "queue q", DrawnLine.BINDING, "k0, k1, k2 and 6 more")}


def test_around_a_queue() -> None:
    near = {node.id for node in graph(RETRY, around=["due"]).nodes}
    assert near == {"queue due", *(f"queue delay.{level}" for level in LEVELS)}
    assert "queue due" not in {node.id for node in graph(RETRY, around=["orders"]).nodes}
    with pytest.raises(UsageError, match="'nobody'"):
        graph(RETRY, around=["nobody"])


def test_too_much_for_one_picture() -> None:
    with pytest.raises(UsageError, match="--queue"):
        graph(topology(queues=[Queue(name=f"q{number}") for number in range(NODES_MAX + 1)]))


def test_a_plan_s_own_queue_is_no_hole() -> None:
    shape = topology(exchanges=[Exchange(name="e")], bindings=[Binding(source="e", destination="theirs")])
    assert [node.shape for node in graph(shape, planned=True).nodes] == [
        DrawnShape.EXCHANGE,
        DrawnShape.GIVEN,
    ]


# -- svg --------------------------------------------------------------------------------------------------
def test_an_svg_is_the_same_every_time_and_xml() -> None:
    picture = graph(RETRY)
    drawn = svg(picture, title="retry")
    assert drawn == svg(graph(RETRY), title="retry")
    root = ET.fromstring(drawn)
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"orders", "after 10 min", "order.#", "no such exchange here"} <= texts


def test_names_cannot_break_out_of_an_svg() -> None:
    nasty = "</text><script>alert('x')</script>&\"\x07\ud800"
    shape = topology(
        exchanges=[Exchange(name=nasty)],
        queues=[Queue(name=nasty)],
        bindings=[Binding(source=nasty, destination=nasty, routing_key=nasty)],
    )
    drawn = svg(graph(shape), title=nasty)
    assert "<script" not in drawn
    ET.fromstring(drawn)
    drawn.encode("utf-8")


def test_an_svg_loads_nothing_and_knows_the_dark() -> None:
    drawn = svg(graph(RETRY), title="retry")
    assert re.findall(r"https?://[^\"' ]+", drawn) == ["http://www.w3.org/2000/svg"]
    assert "@import" not in drawn
    assert "prefers-color-scheme: dark" in drawn


def test_nothing_stands_on_anything_else() -> None:
    picture = graph(RETRY)
    layers = layered(picture)
    boxes, _ = _places(picture, layers)
    shown = [boxes[node.id] for node in picture.nodes]
    for one, other in combinations(shown, 2):
        apart = (
            one.right <= other.x
            or other.right <= one.x
            or one.y + one.height <= other.y
            or other.y + other.height <= one.y
        )
        assert apart, (one, other)


def test_a_retry_loop_goes_back_and_the_rest_forward() -> None:
    layers = layered(graph(RETRY))
    back = [(way.arrow.source, way.arrow.target) for way in layers.ways if way.backward]
    assert back == [("queue retry", "exchange shop")]
    place = {name: number for number, column in enumerate(layers.layers) for name in column}
    for way in layers.ways:
        if not way.backward:
            stops = [way.arrow.source, *way.through, way.arrow.target]
            assert [place[stop] for stop in stops] == list(
                range(place[stops[0]], place[stops[0]] + len(stops))
            )


def test_where_publishers_come_in_is_at_the_left_whatever_the_order() -> None:
    turned = topology(
        exchanges=list(RETRY.exchanges.values())[::-1],
        queues=RETRY.queues.values(),
        bindings=RETRY.bindings,
    )
    layers = layered(graph(turned, around=["orders"])).layers
    assert layers[0] == ("exchange shop",)


def test_a_queue_that_leads_to_itself_and_an_empty_vhost() -> None:
    own = Queue(name="q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    ET.fromstring(svg(graph(topology(queues=[own])), title="q"))
    ET.fromstring(svg(graph(topology()), title="nothing"))


# -- mermaid ----------------------------------------------------------------------------------------------
def test_mermaid() -> None:
    text = mermaid(graph(RETRY))
    assert text.startswith("flowchart LR\n")
    assert '(["shop<br/><small>topic</small>"]):::exchange' in text
    assert '-.->|"after 5 s"|' in text
    assert '-->|"order.#35;"|' in text
    assert text == mermaid(graph(RETRY))


def test_names_cannot_break_out_of_mermaid() -> None:
    text = mermaid(graph(topology(queues=[Queue(name='a"]; click n0 "x\n%%')])))
    (line,) = [line for line in text.splitlines() if line.startswith("    n0")]
    assert re.fullmatch(r'    n0\["[^"\[\]]*"\]:::queue', line)


# -- definitions ------------------------------------------------------------------------------------------
def test_definitions_read_back_are_the_same() -> None:
    shape = topology(
        vhost="a/b",
        exchanges=RETRY.exchanges.values(),
        queues=RETRY.queues.values(),
        bindings=RETRY.bindings,
        policies=[
            BrokerPolicy(name="p", pattern="^q", definition={"max-length": 5}, priority=3, apply_to="queues"),
            BrokerPolicy(name="o", pattern="^q", definition={"max-length": 4}, operator=True),
        ],
    )
    document = json.loads(json.dumps(definitions(shape)))
    back = read_definitions(document, "test")["a/b"]
    assert compare(shape, back) == ()
    assert compare(back, shape) == ()
    assert {policy.operator for policy in back.policies} == {True, False}
    assert "amq.topic" not in {item["name"] for item in document["exchanges"]}
