"""Guards: what keeps retries from doing harm. Pure; the time is an argument.

`budget` so many letters a minute · `breaker` everything dies again · `health` nobody consumes, or too deep ·
`copies_alarm` letters become more · `gate` the origin takes none, and all of them in one answer.
"""
