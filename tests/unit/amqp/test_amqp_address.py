"""AMQP URLs: what each part means, and that a password is never told to anybody.

About `amqp.address`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from deadletter.amqp.address import Address, Tls, parse_address, parse_addresses
from deadletter.errors import UsageError

SECRET = "s3cret"


def test_a_bare_host_has_the_defaults_of_rabbitmq() -> None:
    assert parse_address("amqp://broker") == Address(
        host="broker", port=5672, user="guest", password="guest", vhost="/", tls=None, mechanism="PLAIN"
    )
    assert parse_address("amqps://broker").port == 5671


def test_every_part_is_read() -> None:
    found = parse_address("amqp://me:pw@broker.example:1234/shop?heartbeat=5&connection_timeout=1500")
    assert found == Address(
        host="broker.example",
        port=1234,
        user="me",
        password="pw",
        vhost="shop",
        heartbeat_s=5,
        connect_timeout_s=1.5,
    )


@pytest.mark.parametrize(
    ("path", "vhost"),
    [
        ("", "/"),
        ("/", "/"),
        ("/%2F", "/"),
        ("/%2f", "/"),
        ("/shop", "shop"),
        ("/a%2Fb", "a/b"),
        ("/%2Fa%2F", "/a/"),
        ("/100%25", "100%"),
        ("/%252F", "%2F"),
        ("/gr%C3%B6%C3%9Fe", "größe"),
        ("/größe", "größe"),
        ("/a%20b", "a b"),
        ("/a+b", "a+b"),
        ("/%3Fx%3D1", "?x=1"),
        ("/.", "."),
    ],
)
def test_the_vhost_is_percent_encoded(path: str, vhost: str) -> None:
    found = parse_address(f"amqp://broker{path}")
    assert found.vhost == vhost
    assert parse_address(str(found)).vhost == vhost, "what is shown can be used again"


@pytest.mark.parametrize("path", ["/a/b", "//", "/shop/"])
def test_a_plain_slash_in_the_vhost_is_refused_and_the_right_way_shown(path: str) -> None:
    with pytest.raises(UsageError, match="%2F"):
        parse_address(f"amqp://broker{path}")


def test_user_and_password_are_percent_encoded() -> None:
    found = parse_address("amqp://a%40b%3A:%2F%3A%40%23%25@broker/")
    assert (found.user, found.password) == ("a@b:", "/:@#%")


def test_an_empty_user_or_password_is_an_empty_one() -> None:
    assert parse_address("amqp://:@broker").user == ""
    assert parse_address("amqp://:@broker").password == ""
    assert parse_address("amqp://me@broker").password == "guest"


def test_ipv6() -> None:
    found = parse_address("amqp://[::1]:5673/shop")
    assert (found.host, found.port) == ("::1", 5673)
    assert str(found) == "amqp://guest@[::1]:5673/shop"
    assert parse_address("amqps://[fe80::1]").host == "fe80::1"
    with pytest.raises(UsageError):
        parse_address("amqp://[::1/shop")


@pytest.mark.parametrize("port", ["65536", "-1", "abc", "1 2", "5672x", "99999999999"])
def test_a_bad_port_is_refused(port: str) -> None:
    with pytest.raises(UsageError, match="expected an AMQP URL"):
        parse_address(f"amqp://broker:{port}/")


def test_port_zero_is_refused_like_any_bad_port() -> None:
    with pytest.raises(UsageError):
        parse_address("amqp://broker:0/")


@pytest.mark.parametrize(
    "url",
    ["", "broker", "broker:5672", "http://broker/", "amqp://", "amqp:///shop", "amqp:broker", "AMQP//x"],
)
def test_what_is_no_amqp_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="expected an AMQP URL"):
        parse_address(url)


# -- TLS ----------------------------------------------------------------------------------------------------
def test_tls_verifies_unless_told_otherwise() -> None:
    assert parse_address("amqps://broker").tls == Tls(verify=True)
    assert parse_address("amqps://broker/?verify=verify_none").tls == Tls(verify=False)
    assert parse_address("amqps://broker/?verify=verify_peer").tls == Tls(verify=True)


def test_tls_files_and_name() -> None:
    found = parse_address(
        "amqps://broker/?cacertfile=/etc/ca%20x.pem&certfile=c.pem&keyfile=k.pem"
        "&server_name_indication=other.example&auth_mechanism=external"
    )
    assert found.mechanism == "EXTERNAL"
    assert found.tls == Tls(
        ca_file=Path("/etc/ca x.pem"),
        cert_file=Path("c.pem"),
        key_file=Path("k.pem"),
        server_name="other.example",
    )


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("verify=no", "verify_peer or verify=verify_none"),
        ("verify=", "verify_peer or verify=verify_none"),
        ("auth_mechanism=amqplain", "plain or external"),
        ("heartbeat=-1", "heartbeat"),
        ("heartbeat=1.5", "heartbeat"),
        ("heartbeat=", "heartbeat"),
        ("heartbeat=65536", "65535"),
        ("connection_timeout=soon", "connection_timeout"),
        ("cacert=x", "unknown parameter 'cacert'"),
        ("Verify=verify_none", "unknown parameter 'Verify'"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused(query: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_address(f"amqps://me:{SECRET}@broker/?{query}")


def test_an_unknown_parameter_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"known are .*cacertfile.*heartbeat"):
        parse_address("amqp://broker/?timeout=5")


def test_a_number_of_any_length_is_refused_in_our_words() -> None:
    with pytest.raises(UsageError):
        parse_address("amqp://broker/?heartbeat=" + "9" * 5000)


# -- several ------------------------------------------------------------------------------------------------
def test_several_hosts_of_one_vhost() -> None:
    found = parse_addresses("amqp://a/shop, amqps://b:1/shop ,amqp://[::1]/shop,")
    assert [(address.host, address.port) for address in found] == [("a", 5672), ("b", 1), ("::1", 5672)]


def test_several_vhosts_are_refused() -> None:
    with pytest.raises(UsageError, match="one vhost"):
        parse_addresses(f"amqp://me:{SECRET}@a/shop,amqp://me:{SECRET}@b/other")


@pytest.mark.parametrize("nothing", ["", " ", ",", " , ,"])
def test_no_url_at_all_is_refused(nothing: str) -> None:
    with pytest.raises(UsageError, match="got nothing"):
        parse_addresses(nothing)


# -- the password -------------------------------------------------------------------------------------------
def test_the_password_is_in_no_text_of_an_address() -> None:
    address = parse_address(f"amqps://me:{SECRET}@broker/shop?cacertfile=ca.pem")
    for text in (str(address), repr(address), f"{address}", f"{address!r}", str([address])):
        assert SECRET not in text
        assert "me" in text


def told(urls: str) -> str:
    """What a person is told about a URL that is wrong."""
    with pytest.raises(UsageError) as raised:
        parse_addresses(urls)
    chain, error = (
        [],
        raised.value.__cause__ or (None if raised.value.__suppress_context__ else raised.value.__context__),
    )
    while error is not None:
        chain.append(str(error))
        error = error.__cause__ or error.__context__
    return " ".join([str(raised.value), repr(raised.value), *chain])


@pytest.mark.parametrize(
    "url",
    [
        f"http://me:{SECRET}@broker/",
        f"amqp://me:{SECRET}@broker:abc/",
        f"amqp://me:{SECRET}@broker:99999/",
        f"amqp://me:{SECRET}@[::1/",
        f"amqp://me:{SECRET}@/shop",
        f"amqp://me:{SECRET}@broker/a/b",
        f"amqp://me:{SECRET}@broker/?nonsense=1",
        f"amqp://me:{SECRET}@broker/?heartbeat=x",
        f"amqp://me:{SECRET}@broker/a,amqp://me:{SECRET}@broker/b",
        f"amqp://me:x@y{SECRET}@broker:abc/",
        f"amqp://:{SECRET}@broker:abc/",
    ],
)
def test_the_password_is_in_no_error(url: str) -> None:
    assert SECRET not in told(url)


@pytest.mark.parametrize(
    "url",
    [
        pytest.param(f"amqp://me:{SECRET}/more@broker/", id="slash"),
        pytest.param(f"amqp://me:12/{SECRET}@broker/", id="slash-after-digits"),
        pytest.param(f"amqp://me:{SECRET}?more@broker/", id="question-mark"),
        pytest.param(f"amqp://me:12?{SECRET}@broker/", id="question-mark-after-digits"),
        pytest.param(f"amqp://me:{SECRET}#more@broker/", id="hash"),
        pytest.param(f"me:{SECRET}@broker:5672", id="no-scheme"),
        pytest.param(f"amqp:me:{SECRET}@broker:5672", id="no-slashes"),
        pytest.param(f"amqp:/me:{SECRET}@broker:5672", id="one-slash"),
    ],
)
def test_a_password_written_without_its_percent_signs_is_in_no_error(url: str) -> None:
    assert SECRET not in told(url)


def test_a_comma_in_a_password_is_not_between_two_hosts() -> None:
    first, second = parse_addresses("amqp://me:a,b@one/,amqp://me:c@two/")
    assert (first.password, first.host, second.host) == ("a,b", "one", "two")


def test_a_password_with_a_hash_is_not_silently_another_host() -> None:
    # Everything after the hash is a fragment to a URL parser: the host would be `me`, the port 123.
    with pytest.raises(UsageError):
        parse_address("amqp://me:123#45@broker/")


def test_tls_parameters_without_tls_are_refused() -> None:
    with pytest.raises(UsageError, match=r"cacertfile, verify .* means nothing without TLS; use amqps://"):
        parse_address("amqp://broker/?cacertfile=x&verify=verify_none")
