"""Guards: what keeps retries from doing harm. Pure; the time is an argument.

`budget` so many letters a minute · `breaker` everything dies again · `refusals` the origin takes none ·
`health` nobody consumes, or it is too deep · `growth` letters become more · `gate` all in one answer.
"""
