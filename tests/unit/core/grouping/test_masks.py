"""What is taken out of a message, and what stays. About `core.grouping.masks`."""

from __future__ import annotations

import pytest

from deadletter.core.grouping.masks import MAX_CHARS, mask


@pytest.mark.parametrize(
    ("message", "masked"),
    [
        ("order 17 not found", "order <number> not found"),
        ("order ord-17a not found", "order <id> not found"),
        ("user 3f2504e0-4f89-11d3-9a0c-0305e82c3301 gone", "user <uuid> gone"),
        ("mail to ann.b@shop.example bounced", "mail to <email> bounced"),
        ("GET http://10.0.0.7:8080/a/b?c=1 failed", "GET <url> failed"),
        ("connect to 10.0.0.7:5432: refused", "connect to <ip>: refused"),
        ("connect to db-3.internal:5432: refused", "connect to <host>: refused"),
        ("<Order object at 0x7f3a2b10>", "<Order object at <address>>"),
        ("took 12.5 ms, then 3s", "took <duration>, then <duration>"),
        ("at 2026-11-16T07:00:01.123Z it broke", "at <date> it broke"),
        ("commit 9fceb02d0ae598e95dc970b74767f19372d61af8", "commit <hex>"),
        ("trace 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "trace <traceparent>"),
        ("no file /srv/shop/data/17.json there", "no file <path> there"),
        ("key 'sku' missing", "key 'sku' missing"),
        ("currency key 'XAU' missing", "currency key <quoted> missing"),
        ("the sku 'brown-bread' is sold out", "the sku <quoted> is sold out"),
        (
            "Cannot read properties of undefined (reading 'tax')",
            "Cannot read properties of undefined (reading 'tax')",
        ),
        (
            "Request failed with status code 503 after 17 tries",
            "Request failed with status code 503 after <number> tries",
        ),
        (
            '[{"code": "too_small", "path": ["total"], "message": "got 17"}]',
            "code='too_small' path=['total']",
        ),
        ("several (3 sub-exceptions)", "several <subs>"),
        ("12 500,00 EUR", "<number> EUR"),
        ('bad "value" here', "bad <quoted> here"),
        ("can't read it, won't try", "can't read it, won't try"),
        ("amount=12.50, currency=EUR", "amount=<value>, currency=<value>"),
        ("99.5% of -3e10 and 1,234.56", "<number> of <number> and <number>"),
        ("\x1b[31mred 7\x1b[0m", "red <number>"),
        ("first 1\n\n  second 2\nthird 3\nfourth 4", "first <number> second <number> third <number>"),
        ("ValueError in v2 of Python3", "ValueError in v2 of Python3"),
        ("", ""),
    ],
)
def test_what_differs_is_masked(message: str, masked: str) -> None:
    assert mask(message).text == masked


def test_it_tells_which_masks_it_used() -> None:
    assert mask("order 17 of 'ann' at 10.0.0.1").masks == ("number", "quoted", "ip")


@pytest.mark.parametrize(
    "hostile",
    [
        "a" * 10**6,
        "'" * 10**6,
        "=" * 10**6,
        "1:" * 10**5,
        "0x" * 10**5,
        "a.b@" * 10**5,
        "-" * 10**6,
        "\n" * 10**6,
    ],
)
def test_a_hostile_text_is_cut_before_it_is_looked_at(hostile: str) -> None:
    assert mask(hostile).text == mask(hostile[:MAX_CHARS]).text


def test_one_text_in_two_spellings_is_one() -> None:
    assert mask("cafe\u0301 closed") == mask("caf\u00e9 closed")
