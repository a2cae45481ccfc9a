"""Adapters: retries for those who stay with their framework.

The framework keeps consuming. When a handler fails, the adapter does what our own consumer would do: one more
try after the layout's delay, or aside with the failure's details; published mandatory and confirmed, and only
then acked. What cannot be placed goes back to its queue. An adapter never acks what it did not see safe.

    deadletter.adapters.aio_pika     @retrying(…) around an on_message coroutine
    deadletter.adapters.faststream   with_retries(…), a middleware of a broker or router
    deadletter.adapters.pika         @retrying(…) around a basic_consume callback

Each wants its library installed, and nothing else here does. Celery and Dramatiq need no code of ours: their
failures die into a queue that `dlq serve` watches (docs/adapters.md).
"""
