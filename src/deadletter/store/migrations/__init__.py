"""How our tables came about, one step per file in `versions`. `store/preparing.py` runs them.

A step only adds: see `docs/design/store.md`. Its `upgrade` is given Alembic's operations as an argument,
because Alembic's own module-wide `op` is one per process, and two stores may be prepared at the same time.
"""
