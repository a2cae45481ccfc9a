"""pika's `SelectConnection`: consume and publish on one channel, ack what is confirmed.

Everything delivered is published in that order on the same channel, so the number of a publish is the tag of
its delivery, and a confirm of several becomes an ack of several.
"""

from __future__ import annotations

from typing import Any

import pika

from bench.job import Job


def move(job: Job) -> None:
    mover = _Mover(job)
    connection = pika.SelectConnection(
        pika.URLParameters(job.url),
        on_open_callback=lambda c: c.channel(on_open_callback=mover.on_channel),
        on_close_callback=lambda c, _reason: c.ioloop.stop(),
    )
    connection.ioloop.start()
    if mover.error is not None or mover.moved != job.count:
        raise RuntimeError(f"expected {job.count} letters to move, got {mover.moved}: {mover.error}")


class _Mover:
    def __init__(self, job: Job) -> None:
        self.moved = 0
        self.error: str | None = None
        self._job = job
        self._channel: Any = None
        self._floor = 0
        self._beyond: set[int] = set()
        """Confirmed one by one, above the floor up to which all are."""

    def on_channel(self, channel: Any) -> None:
        self._channel = channel
        channel.basic_qos(prefetch_count=self._job.prefetch)
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirm)
        channel.basic_consume(self._job.source, self._on_message)

    def _on_message(self, channel: Any, _method: Any, properties: Any, body: bytes) -> None:
        channel.basic_publish("", self._job.target, body, properties, mandatory=True)

    def _on_confirm(self, frame: Any) -> None:
        tag, multiple = frame.method.delivery_tag, frame.method.multiple
        if isinstance(frame.method, pika.spec.Basic.Nack):
            self._fail(f"the broker refused {tag}")
            return
        self._channel.basic_ack(tag, multiple=multiple)
        if multiple:
            self._beyond = {beyond for beyond in self._beyond if beyond > tag}
            self._floor = max(self._floor, tag)
        else:
            self._beyond.add(tag)
        while self._floor + 1 in self._beyond:
            self._floor += 1
            self._beyond.discard(self._floor)
        self.moved = self._floor
        if self.moved == self._job.count:
            self._channel.connection.close()

    def _on_return(self, _channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        self._fail(f"the broker returned a letter: {method.reply_text}")

    def _fail(self, why: str) -> None:
        self.error = why
        self._channel.connection.close()
