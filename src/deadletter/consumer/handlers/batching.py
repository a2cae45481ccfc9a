"""Many messages in one call: `@app.batch("orders", size=100, wait=1.0)`.

A body that cannot be decoded is put aside alone and never reaches the function. Returning: all are done.
Raising: each is treated by the rules, as if it had failed by itself. `BatchFailed` names those that failed;
the others are done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deadletter.consumer.handlers.handler_end import ALREADY_DONE, Done, Failed, HandlerEnd
from deadletter.consumer.handlers.handling import Handling
from deadletter.consumer.handlers.once import is_done
from deadletter.consumer.handlers.signature import batch_signature_of
from deadletter.consumer.message import Message
from deadletter.consumer.outcomes import BatchFailed
from deadletter.errors import UsageError


class BatchHandler(Handling):
    """One function for many messages of one queue at once."""

    _read = staticmethod(batch_signature_of)

    async def __call__(self, messages: Sequence[Message]) -> list[HandlerEnd]:
        """Handle them, and say what became of each."""
        outcomes: dict[int, HandlerEnd] = {}
        first: dict[str, int] = {}
        twins: dict[int, int] = {}
        bodies: dict[int, Any] = {}
        for place, message in enumerate(messages):
            try:
                body = self._signature.decode(message.body) if self._wants_body else None
                key = None if self._once is None else self._once.key_of(message)
                if key is not None and first.setdefault(key, place) != place:
                    twins[place] = first[key]
                elif self._once is None or key is None or await self._once.begin(message, key):
                    bodies[place] = body
                else:
                    outcomes[place] = ALREADY_DONE
            except BaseException as error:  # noqa: BLE001 -- its body, its key, or the store: the others go on
                outcomes[place] = Failed(error=self._raised(error))
        places = list(bodies)
        if places:
            ends = await self._run([messages[place] for place in places], list(bodies.values()))
            outcomes.update(zip(places, ends, strict=True))
        for place, twin in twins.items():  # a copy in the same batch ends as its twin did
            outcomes[place] = ALREADY_DONE if isinstance(outcomes[twin], Done) else outcomes[twin]
        return [outcomes[place] for place in range(len(messages))]

    async def _run(self, messages: list[Message], bodies: list[Any]) -> list[HandlerEnd]:
        failed: dict[int, BaseException] = {}
        try:
            if self._call.abandoned:
                await self._call.see_out(messages)
            await self._call(messages, self._signature.arguments(bodies, messages, None))
        except BatchFailed as error:
            failed = self._named(error, len(messages))
        except BaseException as error:  # noqa: BLE001 -- the place where an application's errors are judged
            failed = dict.fromkeys(range(len(messages)), self._raised(error))
        return [await self._end(message, failed.get(place)) for place, message in enumerate(messages)]

    def _named(self, error: BatchFailed, size: int) -> dict[int, BaseException]:
        """Whoever names a place that is not there may have meant another: then nobody knows what is done."""
        if set(error.errors) <= set(range(size)):
            return dict(error.errors)
        got = sorted(error.errors, key=str)
        wrong = UsageError(f"BatchFailed in {self.name}: expected places from 0 to {size - 1}, got {got}")
        wrong.__cause__ = error
        return dict.fromkeys(range(size), wrong)

    async def _end(self, message: Message, error: BaseException | None) -> HandlerEnd:
        message.close()
        if self._once is not None and (key := self._once.key_of(message)) is not None:
            await self._once.end(message, key, done=is_done(message, raised=error is not None))
        return self.failed(message, error)
