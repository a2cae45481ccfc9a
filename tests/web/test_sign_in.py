"""Coming in: the door, sessions and their end, forms, names, and whoever tries what they should not.

About `desk.access.access`, `desk.door.attempts`, `desk.door.bodies`, `desk.door.door_routes`,
`desk.door.doorman`, `desk.door.guarded_app`, `desk.door.hosts`, `desk.door.keyring`,
`desk.access.present`, `desk.door.safety`, `desk.door.sessions`, `desk.door.sign_in_page`,
`core.access.token_hash`.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import Response
from tests.web.conftest import Desk, Opened

from deadletter.config.settings import DeskToken
from deadletter.core.access.rights import Role
from deadletter.core.access.token_hash import hashed
from deadletter.desk.access.access import Access
from deadletter.desk.access.person import Person
from deadletter.desk.door import attempts
from deadletter.desk.door.attempts import Attempts
from deadletter.desk.door.doorman import Doorman
from deadletter.desk.door.keyring import Key
from deadletter.desk.door.sessions import RENEWED_S, Session, Sessions
from deadletter.desk.door.sign_in_page import inside

SECRET = "dlq_0123456789"
HOME = "dlq_home_0123456789"
LONG = "dlq_of_all_0123456789"
KEY = bytes(32)
OLGA = DeskToken(name="olga", role=Role.OPERATOR, hash=hashed(SECRET))
HTML = {"accept": "text/html"}
OURS = {"sec-fetch-site": "same-origin"}


def terms(**more: Any) -> dict[str, Any]:
    return {"tokens": lambda: [OLGA], "home_token": lambda: HOME, "session_key": KEY, **more}


async def signed_in(desk: Desk, token: str = SECRET) -> httpx.Response:
    answer = await desk.client.post("/sign-in", data={"token": token, "next": "/x?y=1"}, headers=OURS)
    assert answer.status_code == 303, answer.text
    return answer


def cookie_of(desk: Desk) -> str:
    (cookie,) = desk.client.cookies.jar
    return str(cookie.value)


def written(**change: Any) -> str:
    """A cookie as the desk would write it."""
    sessions = Sessions(KEY, idle_s=1, end_s=1, now_s=time.time)
    key = Key(OLGA.hash, Person(name="", role=Role.VIEWER)).print
    return sessions.written(replace(sessions.begun(key=key), **change))


async def asked_with(desk: Desk, cookie: str) -> int:
    port = desk.url.rpartition(":")[2]
    headers = {"cookie": f"deadletter-{port}={cookie}"}
    async with httpx.AsyncClient(base_url=desk.url, trust_env=False) as client:
        return (await client.get("/", headers=headers)).status_code


# -- the door --------------------------------------------------------------------------------------------
async def test_the_address_that_is_printed_lets_in_and_the_token_is_gone(opened: Opened) -> None:
    async with opened(**terms()) as desk:
        answer = await desk.client.get("/", params={"token": HOME}, headers=HTML)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        told = answer.headers["set-cookie"]
        assert "HttpOnly" in told
        assert "SameSite=strict" in told
        assert "Secure" not in told, "there is no https here"
        assert HOME not in told
        answer = await desk.client.get("/", headers=HTML)
        assert answer.status_code == 200
        assert (await desk.client.post("/api/sweeps", json={}, headers=OURS)).status_code == 200


async def test_before_the_token_is_known_nobody_is_its_owner(opened: Opened) -> None:
    async with opened(home_token=lambda: None) as desk:
        assert (await desk.client.get("/")).status_code == 401
        answer = await desk.client.post("/api/sweeps", json={}, headers={"authorization": "Bearer None"})
        assert answer.status_code == 401


async def test_a_wrong_token_does_not(opened: Opened) -> None:
    async with opened(**terms()) as desk:
        for token in ("", "x", HOME + "x", HOME[:-1], "ü", "\x00"):
            answer = await desk.client.get("/", params={"token": token})
            assert answer.status_code == 401
            assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", ["/api/v1/groups", "/api/sweeps", "/sign-in", "/groups"])
async def test_a_token_is_a_query_of_the_door_alone(opened: Opened, path: str) -> None:
    async with opened(**terms()) as desk:
        answer = await desk.client.get(path, params={"token": HOME})
        assert answer.status_code in (303, 401)
        assert HOME not in answer.headers.get("location", "")
        assert "set-cookie" not in answer.headers
        assert HOME not in answer.text
        answer = await desk.client.post("/api/sweeps", params={"token": HOME}, json={})
        assert answer.status_code == 401


async def test_over_https_the_cookie_is_for_https_alone(opened: Opened) -> None:
    async with opened(**terms(addresses=("https://desk.example", "plain.example"))) as desk:
        for host, secure in (("desk.example", True), ("plain.example", False)):
            answer = await desk.client.get("/", params={"token": HOME}, headers={"host": host})
            told = answer.headers["set-cookie"]
            assert ("Secure" in told) is secure
            assert told.startswith("__Host-") is secure


# -- the form --------------------------------------------------------------------------------------------
async def test_a_person_signs_in_and_goes_where_they_wanted_to(opened: Opened) -> None:
    async with opened(**terms()) as desk:
        answer = await desk.client.get("/groups?state=open", headers=HTML)
        assert answer.headers["location"] == "/sign-in?next=%2Fgroups%3Fstate%3Dopen"
        page = (await desk.client.get(answer.headers["location"], headers=HTML)).text
        assert 'name="next" value="/groups?state=open"' in page
        assert re.search(r'<style nonce="[\w-]{20,}">', page)
        assert (await signed_in(desk)).headers["location"] == "/x?y=1"
        assert (await desk.client.get("/", headers=HTML)).status_code == 200


async def test_a_wrong_token_is_told_on_the_page_without_it(opened: Opened) -> None:
    async with opened(**terms()) as desk:
        answer = await desk.client.post(
            "/sign-in", data={"token": "<wr0ng>", "next": '/"><script>'}, headers=OURS
        )
        assert answer.status_code == 401
        assert "no token of this service" in answer.text
        assert "wr0ng" not in answer.text
        assert "<script>" not in answer.text


@pytest.mark.parametrize(
    "where",
    ["//evil.example", "/\\evil.example", "https://evil.example", "", "x", "/a\r\nb: c", "/" + "x" * 5_000],
)
def test_nobody_is_sent_elsewhere(where: str) -> None:
    assert inside(where) == "/"


async def test_a_link_on_another_site_leads_to_where_it_says(opened: Opened) -> None:
    async with opened(**terms()) as desk:
        headers = {**HTML, "sec-fetch-site": "cross-site"}
        answer = await desk.client.get("/groups/7?a=%22%3E<b>", headers=headers)
        assert answer.status_code == 200, "the browser kept the cookie: our own page asks again"
        assert 'content="0;url=/groups/7?a=%22%3E' in answer.text
        assert "<b>" not in answer.text
        answer = await desk.client.get(f"{desk.url}//evil.example/x", headers=headers)
        assert 'content="0;url=/"' in answer.text


async def test_programs_are_told_what_they_need(opened: Opened) -> None:
    async with opened(**terms()) as desk:
        answer = await desk.client.get("/api/v1/groups", headers=HTML)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "[[desk.tokens]]" in answer.text
        good = {"authorization": f"Bearer {SECRET}"}
        assert (await desk.client.post("/api/sweeps", json={}, headers=good)).status_code == 200


# -- sessions --------------------------------------------------------------------------------------------
async def test_a_session_ends(opened: Opened) -> None:
    now = int(time.time())
    async with opened(**terms(idle_s=600, end_s=6_000)) as desk:
        for began, seen, status in (
            (now, now, 200),
            (now - 5_900, now - 500, 200),
            (now - 700, now - 601, 401),
            (now - 6_001, now, 401),
        ):
            assert await asked_with(desk, written(began_s=began, seen_s=seen)) == status


async def test_a_session_in_use_goes_on(opened: Opened) -> None:
    now = int(time.time())
    async with opened(**terms()) as desk:
        port = desk.url.rpartition(":")[2]
        old = written(seen_s=now - RENEWED_S - 5)
        answer = await desk.client.get("/", headers={"cookie": f"deadletter-{port}={old}"})
        assert answer.headers["set-cookie"].startswith(f"deadletter-{port}=")
        assert "HttpOnly" in answer.headers["set-cookie"]
        answer = await desk.client.get("/", headers={"cookie": f"deadletter-{port}={written()}"})
        assert "set-cookie" not in answer.headers


async def test_a_forged_cookie_is_none(opened: Opened) -> None:
    good = written()
    told, _, signature = good.partition(".")
    other = Sessions(b"x" * 32, idle_s=1, end_s=1, now_s=time.time)
    session = Sessions(KEY, idle_s=9, end_s=9, now_s=time.time).read(good)
    assert session is not None
    async with opened(**terms()) as desk:
        assert await asked_with(desk, good) == 200
        for forged in (
            other.written(session),
            f"{told}.",
            told,
            f"{told}.{signature[:-2]}AA",
            f".{signature}",
            f"{told}x.{signature}",
            "." * 100,
            "A" * 5_000,
            f"{written(key='0' * 32)}",
        ):
            assert await asked_with(desk, forged) == 401, forged


async def test_a_session_of_a_token_that_was_taken_away_is_over(opened: Opened) -> None:
    people = [OLGA]
    async with opened(**terms(tokens=lambda: people)) as desk:
        await signed_in(desk)
        sweep: dict[str, Any] = {"url": "/api/sweeps", "json": {}, "headers": OURS}
        assert (await desk.client.post(**sweep)).status_code == 200
        people[:] = [replace(OLGA, role=Role.VIEWER)]
        assert (await desk.client.post(**sweep)).status_code == 403, "what they may is asked anew each time"
        people[:] = [replace(OLGA, hash=hashed("another"))]
        assert (await desk.client.post(**sweep)).status_code == 401
        people[:] = []
        assert (await desk.client.get("/")).status_code == 401


async def test_who_signs_out_is_out_with_every_copy_of_the_cookie(opened: Opened) -> None:
    async with opened(**terms()) as desk:
        await signed_in(desk)
        cookie = cookie_of(desk)
        assert await asked_with(desk, cookie) == 200
        answer = await desk.client.post("/sign-out", data={"csrf": form_token(cookie)}, headers=OURS)
        assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
        assert not list(desk.client.cookies.jar)
        assert await asked_with(desk, cookie) == 401


async def test_a_session_survives_a_restart(opened: Opened) -> None:
    async with opened(**terms()) as desk:
        await signed_in(desk)
        cookie = cookie_of(desk)
    async with opened(**terms()) as desk:
        assert await asked_with(desk, cookie) == 200


def form_token(cookie: str) -> str:
    sessions = Sessions(KEY, idle_s=9_999, end_s=9_999, now_s=time.time)
    session = sessions.read(cookie)
    assert session is not None
    return sessions.form_token(session)


async def test_a_form_of_a_session_brings_its_token(opened: Opened) -> None:
    async with opened(**terms()) as desk:
        await signed_in(desk)
        good = form_token(cookie_of(desk))
        for data in ({}, {"csrf": ""}, {"csrf": good[:-1]}, {"csrf": form_token(written())}):
            answer = await desk.client.post("/sign-out", data={"x": "1", **data}, headers=OURS)
            assert answer.status_code == 403, data
            assert "load the page again" in answer.text
        assert (await desk.client.get("/")).status_code == 200


async def test_json_of_a_session_comes_from_our_pages(opened: Opened) -> None:
    async with opened(**terms()) as desk:
        await signed_in(desk)
        token = {"x-csrf-token": form_token(cookie_of(desk))}
        origin = {"origin": desk.url}
        for headers, status in (
            (OURS, 200),
            (token, 200),
            (origin, 200),
            ({}, 403),
            ({"sec-fetch-site": "none"}, 403),
        ):
            answer = await desk.client.post("/api/sweeps", json={}, headers=headers)
            assert answer.status_code == status, headers
        for headers in (
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
            {"origin": "null"},
        ):
            assert (
                await desk.client.post("/api/sweeps", json={}, headers={**token, **headers})
            ).status_code == 403


async def test_another_site_signs_nobody_in(opened: Opened) -> None:
    async with opened(**terms()) as desk:
        for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}):
            answer = await desk.client.post("/sign-in", data={"token": SECRET}, headers=headers)
            assert answer.status_code == 403
            assert "set-cookie" not in answer.headers


# -- who tries too often ---------------------------------------------------------------------------------
async def test_who_tries_too_often_waits(opened: Opened) -> None:
    async with opened(**terms(token="s3cret")) as desk:
        for _ in range(attempts.OF_ONE):
            assert (await desk.client.post("/sign-in", data={"token": "x"})).status_code == 401
        for token in ("x" * 50, "x", "s3cret"):
            answer = await desk.client.post("/sign-in", data={"token": token})
            assert answer.status_code == 429, "a right one that trying finds, too: else trying would go on"
            assert 0 < int(answer.headers["retry-after"]) <= attempts.WINDOW_S
            given = {"authorization": f"Bearer {token}"}
            assert (await desk.client.post("/api/sweeps", json={}, headers=given)).status_code == 429
            assert (await desk.client.get("/health/live", headers=given)).status_code == 200
        assert await asked_with(desk, written()) == 200, "who is in stays in"


async def test_programs_count_among_all_where_trying_could_find_their_token() -> None:
    doorman = Doorman(Access(host="127.0.0.1", token="s3cret", home_token=lambda: HOME))
    for number in range(attempts.OF_ALL):
        await doorman.bearer("Bearer", "wrong", f"10.1.{number // 250}.{number % 250}")
    for token, status in (("s3cret", 429), ("x", 429), ("x" * 50, 401)):
        answer = await doorman.bearer("Bearer", token, "10.0.0.1")
        assert isinstance(answer, Response)
        assert answer.status_code == status
    assert not isinstance(await doorman.bearer("Bearer", HOME, "10.0.0.1"), Response)


async def test_who_has_a_right_token_comes_in_whatever_others_try_from_there(opened: Opened) -> None:
    async with opened(**terms(token=LONG)) as desk:
        for _ in range(attempts.OF_ALL):
            assert (await desk.client.post("/sign-in", data={"token": "x"})).status_code in (401, 429)
        assert (await desk.client.post("/sign-in", data={"token": LONG[:-1]})).status_code == 429
        for token in (LONG, HOME):
            assert (await desk.client.get("/", params={"token": token})).status_code == 303
            good = {"authorization": f"Bearer {token}"}
            assert (await desk.client.post("/api/sweeps", json={}, headers=good)).status_code == 200
        desk.client.cookies.clear()
        await signed_in(desk, LONG)


def test_attempts_are_counted_by_address_and_in_all_and_remembered_in_bounds() -> None:
    now = [0.0]
    tried = Attempts(lambda: now[0])
    for number in range(attempts.OF_ONE):
        assert tried.wait_s("2001:db8::1") == 0
        tried.failed(f"2001:db8::{number}")
    assert tried.wait_s("2001:db8::ffff") > 0, "a network of IPv6 is one"
    assert tried.wait_s("10.0.0.1") == 0
    for number in range(attempts.OF_ALL):
        tried.failed(f"10.1.{number // 250}.{number % 250}")
    assert tried.wait_s("10.0.0.1") > 0
    assert tried.wait_s("10.0.0.1", alone=True) == 0
    told = [tried.failed(f"10.2.{number // 256 % 256}.{number % 256}") for number in range(10_000)]
    assert len(tried._failed) <= attempts._KEPT
    assert sum(one is not None for one in told) <= attempts.TOLD, "a flood does not fill the audit"
    now[0] = attempts.WINDOW_S
    assert tried.wait_s("10.0.0.1") == tried.wait_s("2001:db8::1") == 0


def test_sessions_that_were_ended_are_remembered_in_bounds() -> None:
    sessions = Sessions(KEY, idle_s=9, end_s=9, now_s=lambda: 0.0)
    for number in range(20_000):
        sessions.end(Session(id=str(number), key="", began_s=0, seen_s=0))
    assert len(sessions._ended) == 10_000


# -- names and addresses ---------------------------------------------------------------------------------
async def test_elsewhere_a_name_must_be_one_of_ours(opened: Opened) -> None:
    async with opened(listen="0.0.0.0:0", **terms(addresses=("https://desk.example:8443/",))) as desk:
        for host, status in (
            ("desk.example", 401),
            ("DESK.example:8443", 401),
            ("desk.example.", 401),
            ("127.0.0.1", 401),
            ("10.2.3.4:8025", 401),
            ("[2001:db8::1]", 401),
            ("evil.example", 421),
            ("desk.example.evil.example", 421),
            ("", 421),
        ):
            answer = await desk.client.get("/api/v1/groups", headers={"host": host})
            assert answer.status_code == status, host


async def test_where_nobody_can_sign_in_there_are_only_probes(opened: Opened) -> None:
    async with opened(listen="0.0.0.0:0", page=False, home_token=lambda: HOME) as desk:
        for path in ("/health/live", "/metrics", "/api/status"):
            assert (await desk.client.get(path)).status_code == 200, path
        assert (await desk.client.get("/", headers=HTML)).status_code == 404
        answer = await desk.client.get("/api/v1/groups")
        assert answer.status_code == 403
        assert "[[desk.tokens]]" in answer.text
        own = {"authorization": f"Bearer {HOME}"}
        assert (await desk.client.post("/api/sweeps", json={}, headers=own)).status_code == 200, (
            "its owner may"
        )


async def test_no_answer_and_no_log_has_a_token(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with opened(**terms(token="s3cret-of-all")) as desk:
        for request in (
            desk.client.get("/", params={"token": SECRET}),
            desk.client.get("/nothing", params={"token": SECRET}, headers=HTML),
            desk.client.get("/api/v1/groups", params={"token": SECRET}),
            desk.client.post("/sign-in", data={"token": SECRET}),
            desk.client.post("/sign-in", data={"token": SECRET + "x"}),
            desk.client.get("/api/status", headers={"authorization": f"Bearer {SECRET}"}),
        ):
            answer = await request
            said = answer.text + repr(answer.headers)
            assert not any(secret in said for secret in (HOME, "s3cret-of-all"))
            assert SECRET not in answer.text
    ours = [one for one in caplog.records if not one.name.startswith(("httpx", "httpcore"))]
    assert not any(SECRET in one.getMessage() or HOME in one.getMessage() for one in ours)


async def test_every_answer_has_its_policy(opened: Opened) -> None:
    async with opened(**terms()) as desk:
        nonces = set()
        for path in ("/sign-in", "/api/v1/groups", "/metrics", "/"):
            answer = await desk.client.get(path, headers=HTML)
            policy = answer.headers["content-security-policy"]
            nonces |= set(re.findall(r"script-src 'nonce-([\w-]+)'", policy))
            for part in (
                "default-src 'none'",
                "frame-ancestors 'none'",
                "base-uri 'none'",
                "trusted-types deadletter",
            ):
                assert part in policy
            assert "unsafe" not in policy
            assert answer.headers["cache-control"] == "no-store"
        assert len(nonces) == 4, "each its own"
