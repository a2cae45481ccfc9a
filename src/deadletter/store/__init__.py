"""The store: SQLite for one machine, PostgreSQL for several.

It keeps the table `dlq_event_config` and, for consumers, `deadletter_handled`. The way in is `opening`; with
it comes SQLAlchemy, and not before.
"""
