"""`sweep`, the retry service: one owner drains every dead-letter queue, each back to its own queue.

There is no delay on the broker. A letter waits in the dead-letter queue of its queue until the next drain, is
published to the fanout exchange that leads to its origin alone, confirmed and acked; after the last retry it
goes to `deadletter.parked`.
"""

from __future__ import annotations

from typing import Final

from deadletter.core.layouts.application import own_dlq
from deadletter.core.layouts.naming import dlq_name
from deadletter.core.layouts.pieces import parked, plan_of, way_back
from deadletter.core.layouts.request import Correction, Plan, Request

NAME = "sweep"
CORRECTIONS: Final = (
    Correction(
        document_says="all dead-letter queues are bound to one fanout exchange",
        we_declare="each <queue>.dlq is reached by its own key and by nothing else",
        why="a fanout gives every dead letter to every dead-letter queue; drained, one letter becomes "
        "2, 4, 8, 16, …",
    ),
    Correction(
        document_says="the service republishes to the exchange the letter first came by",
        we_declare="a fanout exchange deadletter.return.<queue>, bound to the queue that failed alone",
        why="the exchange feeds every other subscriber again; a queue nobody consumes expires them into the "
        "same dead-letter queue, which then grows by itself",
    ),
    Correction(
        document_says="a letter is drained back for ever",
        we_declare="deadletter.parked for letters without retries left",
        why="a letter that can never succeed would go round with every drain",
    ),
    Correction(
        document_says="dead-letter queues are classic",
        we_declare="quorum, without a delivery limit; one that is there already stays as it is",
        why="a letter may rest there for days and must survive a node; from RabbitMQ 4.0 on twenty crashes "
        "of the service would use up the default limit",
    ),
)


def design(request: Request) -> Plan:
    parts = own_dlq(request, dlq_name(request.queue)) + way_back(request) + parked(request)
    return plan_of(NAME, request, parts, CORRECTIONS)
