"""Signing in with an account, at an OpenID Connect provider that runs here; and answers that are not its own.

About `desk.door.accounts`, `desk.door.door_routes`, `desk.door.keyring`, `desk.door.doorman`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from joserfc import jwk, jwt
from tests.ports import free_port
from tests.web.conftest import Desk, Opened

from deadletter.config.settings import DeskToken, OidcRole, OidcSettings
from deadletter.core.access.rights import Role
from deadletter.core.access.token_hash import hashed
from deadletter.desk.door import accounts
from deadletter.desk.door.accounts import Accounts
from deadletter.desk.door.sessions import Sessions
from deadletter.errors import NotAllowed

ROLES = (
    OidcRole(value="operators", role=Role.OPERATOR, queues=("orders*",)),
    OidcRole(value="viewers", role=Role.VIEWER),
)
BACK = "http://127.0.0.1:1/sign-in/end"


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """A process of its own, from a package."""
    port = free_port()
    address = f"http://localhost:{port}"
    program = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "oidc_provider_mock",
        "--port",
        str(port),
        "--require-nonce",
    ]
    running = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while True:
            try:
                httpx.get(f"{address}/.well-known/openid-configuration", trust_env=False)
                break
            except httpx.TransportError:
                assert running.poll() is None
                assert time.monotonic() < until
                time.sleep(0.1)
        for name, groups in (("olga", ["staff", "operators"]), ("eve", ["viewers"]), ("mallory", ["staff"])):
            told = {"groups": groups, "email": f"{name}@example.com"}
            httpx.put(f"{address}/users/{name}", json=told, trust_env=False).raise_for_status()
        yield address
    finally:
        running.kill()
        running.wait()


def settings(issuer: str, **change: Any) -> OidcSettings:
    told = OidcSettings(
        issuer=issuer, client_id="desk", name="Shop Login", scopes=("openid", "profile", "email"), roles=ROLES
    )
    return replace(told, **change)


async def said_yes(address: str, who: str) -> str:
    """What the provider sends the browser back to, when this person said yes."""
    async with httpx.AsyncClient(trust_env=False) as browser:
        answer = await browser.post(address, data={"sub": who, "action": "authorize"})
    assert answer.status_code == 302, answer.text
    return answer.headers["location"]


async def signed_in(desk: Desk, who: str) -> httpx.Response:
    begun = await desk.client.get("/sign-in/begin", params={"next": "/groups?a=b"})
    assert begun.status_code == 303
    cookie = begun.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    return await desk.client.get(await said_yes(begun.headers["location"], who))


async def test_a_person_signs_in_with_their_account(opened: Opened, provider: str) -> None:
    async with opened(oidc=lambda: settings(provider), oidc_secret="secret") as desk:
        page = (await desk.client.get("/sign-in", params={"next": "/groups?a=b"})).text
        assert 'href="/sign-in/begin?next=%2Fgroups%3Fa%3Db">Sign in with Shop Login' in page
        answer = await signed_in(desk, "olga")
        assert (answer.status_code, answer.headers["location"]) == (303, "/groups?a=b"), answer.text
        ours = {"sec-fetch-site": "same-origin"}
        asked = await desk.client.post("/api/sweeps", json={"dlqs": ["orders.dlq"]}, headers=ours)
        assert asked.status_code == 200, asked.text
        asked = await desk.client.post("/api/sweeps", json={}, headers=ours)  # all: also those of others
        assert asked.status_code == 403
    async with opened(oidc=lambda: settings(provider), oidc_secret="secret") as desk:
        assert (await signed_in(desk, "eve")).status_code == 303
        answer = await desk.client.post("/api/sweeps", json={}, headers=ours)
        assert answer.status_code == 403
        assert "eve@example.com may not" in answer.text


async def test_an_account_without_a_role_does_not_come_in(opened: Opened, provider: str) -> None:
    async with opened(oidc=lambda: settings(provider), oidc_secret="secret") as desk:
        answer = await signed_in(desk, "mallory")
        assert answer.status_code == 403
        assert "no role is meant for it" in answer.text
        assert not list(desk.client.cookies.jar)
        assert (await desk.client.get("/api/v1/groups")).status_code == 401


async def test_a_role_that_goes_ends_the_session(opened: Opened, provider: str) -> None:
    told = [settings(provider)]
    async with opened(oidc=lambda: told[0], oidc_secret="secret") as desk:
        assert (await signed_in(desk, "olga")).status_code == 303
        assert (await desk.client.get("/")).status_code == 200
        told[0] = settings(provider, roles=ROLES[1:])
        assert (await desk.client.get("/")).status_code == 401
        told[0] = settings(provider, roles=(OidcRole(value="*", role=Role.VIEWER),))
        assert (await desk.client.get("/")).status_code == 200


async def test_an_account_is_not_called_like_a_token(opened: Opened, provider: str) -> None:
    """They would be one person: in the audit, with their views, with what they discarded."""
    tokens: list[DeskToken] = []
    async with opened(
        oidc=lambda: settings(provider), oidc_secret="secret", tokens=lambda: list(tokens)
    ) as desk:
        assert (await signed_in(desk, "olga")).status_code == 303
        assert (await desk.client.get("/")).status_code == 200
        tokens.append(DeskToken(name="Olga@example.com", role=Role.VIEWER, hash=hashed("dlq_olga")))
        assert (await desk.client.get("/")).status_code == 401, "it came later: the session is over"
        answer = await signed_in(desk, "olga")
        assert answer.status_code == 403
        assert "and so is a token of this service" in answer.text
        assert (await signed_in(desk, "eve")).status_code == 303


async def test_an_answer_that_was_not_asked_for_here_is_refused(opened: Opened, provider: str) -> None:
    async with opened(oidc=lambda: settings(provider), oidc_secret="secret") as desk:
        begun = await desk.client.get("/sign-in/begin")
        back = await said_yes(begun.headers["location"], "olga")
        asked = dict(parse_qsl(urlsplit(back).query))
        cookie = desk.client.cookies.jar
        (kept,) = [one.value for one in cookie]
        name = next(one.name for one in cookie)
        desk.client.cookies.clear()
        for query, jar in (
            (asked, {}),
            (asked, {name: f"x{kept}"}),
            ({**asked, "state": "another"}, {name: kept}),
            ({"code": asked["code"]}, {name: kept}),
            ({**asked, "iss": "https://evil.example"}, {name: kept}),
            ({"state": asked["state"], "error": "access_denied"}, {name: kept}),
            ({**asked, "code": "made-up"}, {name: kept}),
        ):
            told = "; ".join(f"{one}={value}" for one, value in jar.items())
            answer = await desk.client.get(
                "/sign-in/end", params=query, headers={"cookie": told} if told else {}
            )
            assert answer.status_code == 403, (query, answer.text)
            assert "deadletter-" not in answer.headers["set-cookie"].replace(f"{name}=", "")
        desk.client.cookies.clear()
        answer = await desk.client.get("/sign-in/end", params=asked, headers={"cookie": f"{name}={kept}"})
        assert answer.status_code == 303
        again = await desk.client.get("/sign-in/end", params=asked, headers={"cookie": f"{name}={kept}"})
        assert again.status_code == 403, "a code is good once"


async def test_a_provider_that_is_away_is_told(opened: Opened) -> None:
    async with opened(oidc=lambda: settings("http://127.0.0.1:9"), oidc_secret="secret") as desk:
        answer = await desk.client.get("/sign-in/begin")
        assert answer.status_code == 403
        assert "does not answer" in answer.text


async def test_what_is_begun_has_its_challenge_and_ends_in_time(provider: str) -> None:
    now = [time.time()]
    sessions = Sessions(bytes(32), idle_s=1, end_s=1, now_s=lambda: now[0])
    house = Accounts(lambda: settings(provider), sessions, None, lambda: now[0])
    begun = await house.begin(BACK, "/")
    asked = dict(parse_qsl(urlsplit(begun.address).query))
    verifier = sessions.unsealed("account", begun.cookie)[2]
    digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    assert (asked["code_challenge"], asked["code_challenge_method"]) == (digest, "S256")
    assert (asked["response_type"], asked["redirect_uri"]) == ("code", BACK)
    back = dict(parse_qsl(urlsplit(await said_yes(begun.address, "olga")).query))
    now[0] += accounts.BEGUN_S
    with pytest.raises(NotAllowed, match="too long"):
        await house.end(back, begun.cookie, BACK)


# -- answers that are not the provider's -----------------------------------------------------------------
KEY = jwk.RSAKey.generate_key(2048, {"kid": "1"})
OTHER = jwk.RSAKey.generate_key(2048, {"kid": "1"})


def _text(some: bytes) -> str:
    return base64.urlsafe_b64encode(some).decode().rstrip("=")


class Answers:
    """A provider whose every word is made up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.issuer = "https://login.example"
        self.claims: dict[str, Any] = {}
        self.change: dict[str, Any] = {}
        self.key, self.header = KEY, {"alg": "RS256", "kid": "1"}
        self.nonce = ""
        monkeypatch.setattr(accounts, "_asked", self.asked)

    async def asked(self, _method: str, url: str, **_more: Any) -> dict[str, Any]:
        match urlsplit(url).path:
            case "/.well-known/openid-configuration":
                ends = {"authorization_endpoint": "a", "token_endpoint": "token", "jwks_uri": "keys"}
                return {
                    "issuer": self.issuer,
                    **{one: f"https://login.example/{way}" for one, way in ends.items()},
                }
            case "/keys":
                return {"keys": [KEY.as_dict(private=False)]}
            case _:
                now = int(time.time())
                claims = {
                    "iss": "https://login.example", "sub": "1", "aud": "desk", "exp": now + 60, "iat": now,
                    "nonce": self.nonce, "groups": ["viewers"], "email": "e@x",
                }  # fmt: skip
                told = {name: value for name, value in {**claims, **self.change}.items() if value is not None}
                if self.header["alg"] != "RS256":
                    head, body = (_text(json.dumps(one).encode()) for one in (self.header, told))
                    public = KEY.as_pem(private=False)
                    mac = hmac.digest(public, f"{head}.{body}".encode(), "sha256")
                    signature = "" if self.header["alg"] == "none" else _text(mac)
                    return {"id_token": f"{head}.{body}.{signature}"}
                return {"id_token": jwt.encode(self.header, told, self.key)}

    async def sign_in(self) -> str:
        sessions = Sessions(bytes(32), idle_s=1, end_s=1, now_s=time.time)
        house = Accounts(lambda: settings("https://login.example"), sessions, "secret")
        begun = await house.begin(BACK, "/")
        asked = dict(parse_qsl(urlsplit(begun.address).query))
        self.nonce = asked["nonce"]
        return (await house.end({"state": asked["state"], "code": "c"}, begun.cookie, BACK)).name


async def test_a_good_answer_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(monkeypatch)
    assert await answers.sign_in() == "e@x"
    answers.change = {"aud": ["desk", "other"], "azp": "desk"}
    assert await answers.sign_in() == "e@x"


@pytest.mark.parametrize(
    "change",
    [
        {"iss": "https://evil.example"},
        {"aud": "other"},
        {"aud": ["desk", "other"]},
        {"azp": "other"},
        {"exp": int(time.time()) - 3_600},
        {"exp": None},
        {"iat": int(time.time()) + 3_600},
        {"nonce": "another"},
        {"nonce": None},
        {"sub": None},
        {"groups": ["nobody"]},
        {"groups": {"viewers": True}},
        {"groups": None},
    ],
)
async def test_an_answer_for_somebody_or_something_else_is_refused(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    answers = Answers(monkeypatch)
    answers.change = change
    with pytest.raises(NotAllowed):
        await answers.sign_in()


@pytest.mark.parametrize("how", ["another key", "no signature", "the public key as a secret"])
async def test_an_answer_that_somebody_else_signed_is_refused(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    answers = Answers(monkeypatch)
    match how:
        case "another key":
            answers.key = OTHER
        case "no signature":
            answers.header = {"alg": "none"}
        case _:
            answers.header = {"alg": "HS256", "kid": "1"}
    with pytest.raises(NotAllowed):
        await answers.sign_in()


async def test_a_provider_that_calls_itself_another_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(monkeypatch)
    answers.issuer = "https://login.example.evil.example"
    with pytest.raises(NotAllowed, match="calls itself another"):
        await answers.sign_in()
