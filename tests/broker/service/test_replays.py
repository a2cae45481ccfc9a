"""`dlq serve` sends stored letters again: exact, at the pace asked for, and says what became of each.

About `service.replaying.replayer`, `service.replaying.replay_run`, `service.replaying.replay_consignment`,
`service.replaying.replay_packing`, `service.replaying.replay_ground`, `service.replaying.settling`,
`service.replaying.store_access`, `service.replaying.origin_counts`, `service.replaying.outcome_words`.
"""

from __future__ import annotations

from pathlib import Path

from tests.brokers import Vhost
from tests.consuming import consumer, serving
from tests.letters import headers_of
from tests.replaying import begun, letter_id, parked_letter, stock, until_replay
from tests.serving import Application, served
from tests.storekeeping import settings

from deadletter import Message
from deadletter.core.letter import names
from deadletter.core.replaying.replay_states import ReplayState


async def test_letters_go_home_as_a_release_sends_them(vhost: Vhost, tmp_path: Path, url: str) -> None:
    made = [parked_letter(number) for number in range(2_000)]
    await stock(url, vhost.name, made)
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.consume("orders", lambda _delivery, _times: True, keep=True)
        replay = await begun(url, vhost.name, outcome_ms=2_000)
        with served(vhost, tmp_path, settings(url)) as (one,):
            view = await until_replay(url, replay, lambda told: told.ended_ms is not None)
            metrics = one.metrics()
        await app.until(lambda: len(app.deliveries) == 2_000, 120, "each of them once")
    assert (view.state, view.counts.quiet, view.counts.doubtful) == (ReplayState.DONE, 2_000, 0)
    assert 'deadletter_replay_letters_total{what="sent"} 2000.0' in metrics
    for _, delivery, _ in app.deliveries:
        headers, number = headers_of(delivery), int(delivery.message.body)
        assert headers[names.ID] == letter_id(number)
        assert headers[names.REPLAY] == str(replay)
        assert headers[names.ATTEMPT] == 0
        assert (delivery.exchange, delivery.routing_key) == (
            b"deadletter.return.orders",
            f"order.{number % 3}".encode(),
        )
        assert (headers["tenant"], headers[names.ORIGIN_QUEUE], headers[names.SOURCE]) == (
            "a",
            "orders",
            names.PARKED,
        )
        gone = {names.CAUSE, names.WHY, names.PARKED_AT, names.DELIVERIES, names.X_DEATH, names.DEATHS}
        assert not gone & headers.keys()
    assert {headers_of(one)[names.ID] for _, one, _ in app.deliveries} == {letter_id(n) for n in range(2_000)}


async def test_what_its_consumer_says_is_the_outcome(vhost: Vhost, tmp_path: Path) -> None:
    """A consumer of the library is done with all of them: nobody has to wait whether they come back."""
    url, count = f"sqlite:///{tmp_path / 'letters.db'}", 30
    await stock(url, vhost.name, [parked_letter(number) for number in range(count)])
    app = consumer(vhost, "return")
    done: list[bytes] = []

    @app.queue("orders")
    async def handle(message: Message) -> None:
        done.append(message.body)

    with served(vhost, tmp_path, settings(url)) as (one,):
        async with serving(app):
            replay = await begun(url, vhost.name)
            view = await until_replay(url, replay, lambda told: told.ended_ms is not None)
            metrics = one.metrics()
    assert (view.state, view.counts.done) == (ReplayState.DONE, count)
    assert len(done) == count
    assert f'deadletter_replay_letters_total{{what="done"}} {count}.0' in metrics
