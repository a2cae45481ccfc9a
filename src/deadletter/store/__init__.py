"""The store: SQLite for one machine, PostgreSQL for several.

It keeps the table `dlq_event_config` and, for consumers, `deadletter_handled`.

* `store_address.py` which store a URL means, and what may be shown of it; `default_url` without any set-up
* `opening.py` the way in: `async with open_store(url) as store`
* `tables.py` our tables as SQLAlchemy knows them; `migrations/` how they came about, run by `preparing.py`
* `event_table.py` reads and writes `dlq_event_config`; `changes.py` notices when anybody else does
* `handled_table.py` reads and writes `deadletter_handled`
* `engine.py` connections, with a limit on every wait; `database_errors.py` a database's errors in our words

Importing this package is cheap; SQLAlchemy comes with `opening`.
"""

from __future__ import annotations

from deadletter.store.store_address import default_url

__all__ = ["default_url"]
