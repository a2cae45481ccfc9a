"""A stack that is known but for its message reads as one that is read anew.

About `core.grouping.fingerprint`.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from deadletter.core.deciding.failure import Failure, Framework
from deadletter.core.grouping import fingerprint
from deadletter.core.grouping.fingerprint import Symptom
from deadletter.core.grouping.stacks import read_stack

HEADS = st.sampled_from(
    (
        'Traceback (most recent call last):\n  File "/app/a.py", line 3, in f\n    g()\nshop.Oops: ',
        'Traceback (most recent call last):\n  File "/app/a.py", line 3, in f\nOops [x]: ',
        "java.lang.Error: x\n\tat com.shop.A.b(A.java:3)\nCaused by: x.Y: ",
        "\tat com.shop.A.b(A.java:3)\nmain.go: ",
        "x: \nat: ",
        "Oops: ",
        "\n",
        "",
    )
)
MESSAGES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ('File "/b.py", line 4, in g', "x ---> y", "\tat a.B.c(B.java:1)", "a: b: c", "x" * 1_200, " ")
    ),
)


@given(HEADS, MESSAGES, st.sampled_from(("", "\n")), st.sampled_from(("", "more\n")))
@example("Oops: ", "a ---> b", "\n", "")
def test_known_or_not(head: str, message: str, end: str, before: str) -> None:
    stack = before + head + message + end
    *others, last = read_stack(stack) or (None,)
    *known, known_last = fingerprint._read(stack, message) or (None,)
    assert known == others
    if last is None or known_last is None:
        assert last is known_last
    else:
        # what it says is told beside the stack wherever the stack is taken for known
        assert replace(known_last, message="") == replace(last, message="")
    failure = Failure(framework=Framework.DEADLETTER, error_type="E", message=message, stack=stack)
    found = fingerprint.fingerprint(Symptom(origin="q", failure=failure))
    fingerprint._read_known.cache_clear()
    assert fingerprint.fingerprint(Symptom(origin="q", failure=failure)) == found
