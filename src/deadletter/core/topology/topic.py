"""Does a topic pattern match a routing key, exactly as RabbitMQ's topic exchange says?

Words are separated by dots. `*` stands for exactly one word, `#` for any number of words, also none; both
only as whole words, so `a*` is a literal. An empty word is a word: `*` matches the one between the dots
of `a..b`, and `a.` has two. Only the empty key has no words at all, so `#` and `""` match it and `*` does
not.

All of this is checked against real brokers in `tests/broker/core/topology/test_topic_on_broker.py`.
"""

from __future__ import annotations

from deadletter.core.text.glob import match_runs


def topic_matches(pattern: str, key: str) -> bool:
    """Whether a binding with this pattern would route this key."""
    return match_runs(words(pattern), words(key), "#", _same_word)


def topic_covers(wide: str, narrow: str) -> bool:
    """Whether every key that `narrow` matches is matched by `wide`, as far as one can see. `*` is one word,
    so it never stands for a `#`."""
    return match_runs(words(wide), words(narrow), "#", lambda want, word: word != "#" and want in ("*", word))


def words(key: str) -> list[str]:
    """What stands between the dots; nothing at all in the empty key."""
    return key.split(".") if key else []


def _same_word(wanted: str, word: str) -> bool:
    return wanted in ("*", word)
