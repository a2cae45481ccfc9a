"""The wire: AMQP 0-9-1 on asyncio, thin and ours. It knows AMQP, not letters.

Why not a ready client: a message that is decoded and encoded again is no longer the same message, the
asyncio clients report an unroutable message as delivered when two share a message id, and splicing bytes
moves two to ten times as much. See docs/design/the-wire.md.
"""
