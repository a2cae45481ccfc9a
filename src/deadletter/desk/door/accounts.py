"""Accounts of the house: people sign in where they always do, by OpenID Connect.

The code flow with PKCE, state and nonce. What was begun is kept in a cookie of ours, signed and short-lived,
so any instance can end what another began. Of the provider's answer the signature, issuer, audience, time and
nonce are checked; only asymmetric signatures count, by keys that the provider publishes.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import httpx

from deadletter.config.settings import OidcSettings
from deadletter.desk.door.sessions import Sessions
from deadletter.errors import NotAllowed

BEGUN_S: Final = 600
"""So long somebody may take to sign in there."""
_KEPT_S: Final = 3_600
_LEEWAY_S: Final = 60
_ANSWER_S: Final = 10.0
_ANSWER_BYTES: Final = 1_000_000
_ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
_CLAIMS_MOST: Final = 20
_NAME_CHARS: Final = 200
_SEAL: Final = "account"


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """Where the browser goes now, and what it has to bring back."""

    address: str
    cookie: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Who it is, and what of their claims may mean a role."""

    name: str
    claims: tuple[str, ...]
    goes_to: str


class Accounts:
    """`settings`: those in force. `secret`: of the client; None: it has none."""

    def __init__(
        self,
        settings: Callable[[], OidcSettings | None],
        sessions: Sessions,
        secret: str | None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._secret = secret
        self._now_s = now_s
        self._known: tuple[str, float, dict[str, Any]] | None = None

    async def begin(self, back: str, goes_to: str) -> Began:
        """`back`: our own address to which the provider sends them. NotAllowed: it cannot be."""
        settings = self._in_force()
        told = await self._provider(settings)
        verifier, state, nonce = (secrets.token_urlsafe(32) for _ in range(3))
        asked = {
            "response_type": "code",
            "client_id": settings.client_id,
            "redirect_uri": back,
            "scope": " ".join(settings.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": _challenge(verifier),
            "code_challenge_method": "S256",
        }
        where = str(told["authorization_endpoint"])
        kept = [state, nonce, verifier, goes_to, int(self._now_s()) + BEGUN_S]
        return Began(
            address=f"{where}{'&' if '?' in where else '?'}{urlencode(asked)}",
            cookie=self._sessions.sealed(_SEAL, kept),
        )

    async def end(self, asked: Mapping[str, str], cookie: str, back: str) -> Account:
        """NotAllowed: it was not begun here, or the provider does not vouch for them."""
        settings = self._in_force()
        kept = self._sessions.unsealed(_SEAL, cookie)
        if not isinstance(kept, list) or len(kept) != 5 or kept[4] <= self._now_s():
            raise NotAllowed("it took too long, or was not begun in this browser; begin again")
        state, nonce, verifier, goes_to, _ = kept
        if not hmac.compare_digest(str(state).encode(), asked.get("state", "").encode(errors="replace")):
            raise NotAllowed("the answer belongs to another sign-in; begin again")
        told = await self._provider(settings)
        if asked.get("iss", settings.issuer) != settings.issuer:
            raise NotAllowed("another provider answered")
        if "code" not in asked:
            raise NotAllowed(f"the provider says {asked.get('error', 'nothing')[:100]!r}")
        tokens = await self._exchanged(settings, told, asked["code"], back, str(verifier))
        claims = await self._claims(settings, told, str(tokens.get("id_token", "")), str(nonce))
        values = _values(claims, settings.role_claim)
        if values is None:
            more = await self._more(told, str(tokens.get("access_token", "")), str(claims["sub"]))
            values = _values(more, settings.role_claim)
            claims = {**more, **claims}
        known = {role.value for role in settings.roles}
        mine = tuple(dict.fromkeys(one for one in values or () if one in known))[:_CLAIMS_MOST]
        if not mine and "*" not in known:
            raise NotAllowed("the account is known, but no role is meant for it here")
        named = (claims.get(one) for one in ("preferred_username", "email", "name", "sub"))
        name = next(one for one in named if isinstance(one, str) and one.strip() and one.isprintable())
        return Account(name=name[:_NAME_CHARS], claims=mine, goes_to=str(goes_to))

    # -- the provider ------------------------------------------------------------------------------------
    def _in_force(self) -> OidcSettings:
        found = self._settings()
        if found is None:
            raise NotAllowed("nobody signs in with an account here")
        return found

    async def _provider(self, settings: OidcSettings) -> dict[str, Any]:
        if (
            self._known is not None
            and self._known[:1] == (settings.issuer,)
            and self._known[1] > self._now_s()
        ):
            return self._known[2]
        told = await _got(f"{settings.issuer.rstrip('/')}/.well-known/openid-configuration")
        if told.get("issuer") != settings.issuer:
            raise NotAllowed(f"expected the provider {settings.issuer}, got one that calls itself another")
        self._known = (settings.issuer, self._now_s() + _KEPT_S, told)
        return told

    async def _exchanged(
        self, settings: OidcSettings, told: Mapping[str, Any], code: str, back: str, verifier: str
    ) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": back,
            "code_verifier": verifier,
            "client_id": settings.client_id,
        }
        login: httpx.BasicAuth | None = None
        if self._secret is not None:
            ways = told.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
            if "client_secret_basic" in ways:
                login = httpx.BasicAuth(settings.client_id, self._secret)
                del form["client_id"]
            else:
                form["client_secret"] = self._secret
        return await _asked("POST", str(told["token_endpoint"]), data=form, auth=login)

    async def _claims(
        self, settings: OidcSettings, told: Mapping[str, Any], token: str, nonce: str
    ) -> dict[str, Any]:
        from joserfc import jwk, jwt  # an extra; who has none has no settings for it
        from joserfc.errors import JoseError

        keys = await _got(str(told["jwks_uri"]))
        try:
            read = jwt.decode(token, jwk.KeySet.import_key_set(keys), algorithms=list(_ALGORITHMS))  # type: ignore[arg-type]  # as JSON has it
            wanted = jwt.JWTClaimsRegistry(
                now=int(self._now_s()),
                leeway=_LEEWAY_S,
                iss={"essential": True, "value": settings.issuer},
                sub={"essential": True},
                aud={"essential": True, "value": settings.client_id},
                exp={"essential": True},
                iat={"essential": True},
                nonce={"essential": True, "value": nonce},
            )
            wanted.validate(read.claims)
        except (JoseError, ValueError) as error:
            raise NotAllowed(f"the provider's answer does not hold: {type(error).__name__}") from error
        claims = dict(read.claims)
        several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if (several or "azp" in claims) and claims.get("azp") != settings.client_id:
            raise NotAllowed("the provider's answer is for somebody else")
        return claims

    async def _more(self, told: Mapping[str, Any], token: str, subject: str) -> dict[str, Any]:
        """What the provider tells only when it is asked."""
        where = told.get("userinfo_endpoint")
        if not where or not token:
            return {}
        claims = await _asked("GET", str(where), headers={"authorization": f"Bearer {token}"})
        if claims.get("sub") != subject:
            raise NotAllowed("the provider tells of somebody else")
        return claims


def _values(claims: Mapping[str, Any], path: str) -> Sequence[str] | None:
    """Of a claim, which may lie in others: `realm_access.roles`. None: there is none."""
    found: Any = claims
    for name in [path] if path in claims else path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return [one for one in (found if isinstance(found, list) else [found]) if isinstance(one, str)]


def _challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


async def _got(url: str) -> dict[str, Any]:
    return await _asked("GET", url)


async def _asked(method: str, url: str, **more: Any) -> dict[str, Any]:
    """NotAllowed: the provider does not answer, or says something else. No redirect takes a secret along."""
    try:
        async with (
            httpx.AsyncClient(timeout=_ANSWER_S, follow_redirects=False) as client,
            client.stream(method, url, **more) as answer,
        ):
            body = b""
            async for part in answer.aiter_bytes():
                body += part
                if len(body) > _ANSWER_BYTES:
                    raise NotAllowed("the provider says too much")
        told = httpx.Response(answer.status_code, content=body)
        found = told.json() if told.status_code == 200 else None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise NotAllowed(f"the provider does not answer ({type(error).__name__}); try again later") from error
    if not isinstance(found, dict):
        raise NotAllowed(f"the provider refuses (HTTP {answer.status_code})")
    return found
