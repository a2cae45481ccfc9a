"""A service inside the demo's own process, for as long as a scene takes."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from deadletter import config
from deadletter.config.settings import Settings
from deadletter.service.running import Service
from deadletter.service.telling.service_events import LifeChanged, ServiceEvent, Stage


@asynccontextmanager
async def serving(
    settings: str, *, store_url: str | None = None, listen: Callable[[ServiceEvent], None] = lambda _: None
) -> AsyncIterator[Settings]:
    """A service with these settings (TOML), ready. One that ends before raises why."""
    ready = asyncio.Event()

    def hear(event: ServiceEvent) -> None:
        if isinstance(event, LifeChanged) and event.stage is Stage.READY:
            ready.set()
        listen(event)

    with tempfile.TemporaryDirectory(prefix="dlq-demo-") as directory:
        file = Path(directory) / "deadletter.toml"
        file.write_text(settings)
        service = Service(
            lambda: config.load(config=file, environment={}),
            hear,
            store_url=lambda _: store_url,
            name="dlq demo",
        )
        running = asyncio.create_task(service.run())
        waiting = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            yield config.load(config=file, environment={})
        finally:
            waiting.cancel()
            service.stop("the demo is over")
            await running
