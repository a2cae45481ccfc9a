"""Who may ask what.

About `desk.door.guarded_app`, `desk.problems`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.web.conftest import Desk, Opened
from tests.web.test_http_app import problem_of

from deadletter.desk.access.access import Access
from deadletter.desk.door import bodies


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
async def test_a_page_of_another_site_changes_nothing(desk: Desk, site: str) -> None:
    answer = await desk.client.post("/api/sweeps", json={}, headers={"sec-fetch-site": site})
    assert answer.status_code == 403
    assert "another site" in problem_of(answer)
    assert desk.office.asked == []
    assert (await desk.client.get("/", headers={"sec-fetch-site": site})).status_code == 200


@pytest.mark.parametrize("site", ["same-origin", "none"])
async def test_our_own_page_and_a_person_may(desk: Desk, site: str) -> None:
    headers = {"sec-fetch-site": site, "origin": desk.url}
    assert (await desk.client.post("/api/sweeps", json={}, headers=headers)).status_code == 200


async def test_an_old_browser_is_known_by_its_origin(desk: Desk) -> None:
    for origin, status in (("https://evil.example", 403), ("null", 403), (desk.url, 200)):
        answer = await desk.client.post("/api/sweeps", json={}, headers={"origin": origin})
        assert answer.status_code == status, origin


async def test_there_is_no_cors(desk: Desk) -> None:
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    for answer in (
        await desk.client.options("/api/sweeps", headers=asked),
        await desk.client.get("/api/status", headers=asked),
    ):
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8025", "127.0.0.1.evil.example", "", "[::2]"])
async def test_on_this_machine_only_its_own_names_are_a_host(desk: Desk, host: str) -> None:
    for path in ("/api/status", "/metrics", "/"):
        answer = await desk.client.get(path, headers={"host": host})
        assert answer.status_code == 421, "or a page whose name points here could read it"
        assert "127.0.0.1" in problem_of(answer)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "localhost.", "127.0.0.1:8025", "[::1]:8025"])
async def test_its_own_names_are(desk: Desk, host: str) -> None:
    assert (await desk.client.get("/api/status", headers={"host": host})).status_code == 200


async def test_a_form_sends_no_json(desk: Desk) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = await desk.client.post("/api/sweeps", content=b"{}", headers={"content-type": kind})
        assert answer.status_code == 415
        assert problem_of(answer).startswith("expected a body of application/json")
    assert desk.office.asked == []


async def test_a_body_has_a_bound_told_or_not(desk: Desk) -> None:
    json_type = {"content-type": "application/json"}

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 1000

    for content in (b" " * 65_537, parts()):
        answer = await desk.client.post("/api/sweeps", content=content, headers=json_type)
        assert answer.status_code == 413
        assert "65,536" in problem_of(answer)
    padded = b'{"dlqs": []}'.ljust(65_536)
    assert (await desk.client.post("/api/sweeps", content=padded, headers=json_type)).status_code == 200
    assert desk.office.asked == [[]]


async def test_a_body_that_does_not_come_is_not_waited_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "BODY_S", 0.05)
    host, port = desk.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /api/sweeps HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 10\r\n\r\n{"
    )
    assert b" 408 " in await reader.readline()
    writer.close()
    await writer.wait_closed()


async def test_a_token_is_needed_where_there_is_one(opened: Opened) -> None:
    async with opened(token="s3cret") as desk:
        wrong = (
            b"s3cret",
            b"Bearer wrong",
            b"Bearer",
            b"Basic s3cret",
            b"Bearer s3cretx",
            b"Bearer \xc3\xbc",
        )
        for given in (None, *wrong):
            headers = [] if given is None else [(b"authorization", given)]
            answer = await desk.client.post("/api/sweeps", json={}, headers=headers)
            assert answer.status_code == 401, given
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "DLQ_API_TOKEN" in problem_of(answer)
            assert "s3cret" not in answer.text
        assert desk.office.asked == []
        answer = await desk.client.post("/api/sweeps", json={}, headers={"authorization": "Bearer s3cret"})
        assert answer.status_code == 200
        assert (await desk.client.get("/api/status")).status_code == 200, "looking needs none"


async def test_from_other_machines_nothing_is_changed_without_a_token(opened: Opened) -> None:
    async with opened(listen="0.0.0.0:0") as desk:
        answer = await desk.client.post("/api/sweeps", json={})
        assert answer.status_code == 403
        assert "DLQ_API_TOKEN" in problem_of(answer)
        for path, status in (("/api/status", 421), ("/health/live", 200), ("/metrics", 200)):
            answer = await desk.client.get(path, headers={"host": "rabbit.example"})
            assert answer.status_code == status, "probes ask by any name"
        assert (await desk.client.get("/api/status", headers={"host": "10.1.2.3"})).status_code == 200
        assert desk.office.asked == []
    async with opened(listen="0.0.0.0:0", token="s3cret") as desk:
        answer = await desk.client.post("/api/sweeps", json={}, headers={"authorization": "Bearer s3cret"})
        assert answer.status_code == 200


@pytest.mark.parametrize(
    ("host", "home"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("LocalHost", True), ("0.0.0.0", False),
     ("::", False), ("10.0.0.1", False), ("localhost.example", False)],
)  # fmt: skip
def test_what_is_this_machine_alone(host: str, home: bool) -> None:
    assert Access(host=host).at_home is home


def test_a_token_is_not_shown() -> None:
    assert "s3cret" not in repr(Access(host="::1", token="s3cret"))
