"""Guards: what keeps retries from doing harm. Pure; the time is an argument.

`budget` so many letters a minute · `breaker` everything dies again · `full_origin` the origin takes none ·
`health` nobody consumes, or it is too deep · `copies_alarm` letters become more · `gate` all in one answer.
"""
