"""TLS on a real broker: verified unless told otherwise, and a clear word when it does not fit.

About `amqp.address`, `amqp.handshake`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from tests import postbox
from tests.broker.operations.test_checking import dlq

from deadletter.amqp.address import parse_addresses
from deadletter.amqp.handshake import connect
from deadletter.errors import CannotConnect, CertificateRefused, NotAmqp, UsageError
from deadletter.move.courier import Send, move
from deadletter.testing.node.private import PrivateBroker, TlsFiles, private_broker


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    folder = tmp_path_factory.mktemp("tls")
    folder.chmod(0o755)
    ca = trustme.CA()
    server = ca.issue_cert("localhost", "127.0.0.1")
    ca.cert_pem.write_to_path(str(folder / "ca.pem"))
    server.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    server.private_key_pem.write_to_path(str(folder / "key.pem"))
    return TlsFiles(ca=folder / "ca.pem", cert=folder / "cert.pem", key=folder / "key.pem")


@pytest.fixture(scope="module")
def secure(authority: TlsFiles, broker_version: str | None) -> Iterator[PrivateBroker]:
    with private_broker(broker_version, tls=authority) as running:
        yield running


async def _try(url: str) -> str:
    connection = await connect(parse_addresses(url)[0])
    await connection.close()
    return connection.server_version


def test_verified_by_its_authority(secure: PrivateBroker, authority: TlsFiles) -> None:
    assert postbox.run(_try(f"{secure.tls_url}?cacertfile={authority.ca}")) == secure.version


def test_an_unknown_authority_is_refused_with_what_to_do(secure: PrivateBroker) -> None:
    with pytest.raises(CertificateRefused, match=r"cacertfile=FILE.*verify_none"):
        postbox.run(_try(f"{secure.tls_url}"))


def test_unverified_only_when_told(secure: PrivateBroker) -> None:
    assert postbox.run(_try(f"{secure.tls_url}?verify=verify_none")) == secure.version


def test_a_name_that_is_not_in_the_certificate_is_refused(secure: PrivateBroker, authority: TlsFiles) -> None:
    with pytest.raises(CertificateRefused, match="Hostname mismatch"):
        postbox.run(_try(f"{secure.tls_url}?cacertfile={authority.ca}&server_name_indication=other.example"))


def test_plain_against_tls_and_tls_against_plain(secure: PrivateBroker, authority: TlsFiles) -> None:
    assert secure.tls_url is not None
    with pytest.raises(CannotConnect, match="amqps://"):
        postbox.run(_try(secure.tls_url.replace("amqps://", "amqp://")))
    with pytest.raises(NotAmqp, match="use amqp://"):
        postbox.run(_try(secure.url.replace("amqp://", "amqps://") + f"?cacertfile={authority.ca}"))


def test_files_that_are_not_there(secure: PrivateBroker) -> None:
    with pytest.raises(UsageError, match=r"cannot read the TLS files .*nope\.pem"):
        postbox.run(_try(f"{secure.tls_url}?cacertfile={Path('/nope.pem')}"))


def test_letters_move_over_tls(secure: PrivateBroker, authority: TlsFiles) -> None:
    postbox.declare(secure.url, "source", "target")
    postbox.fill(secure.url, "source", [b"x" * 3000] * 2000)
    verdict = Send(routing_key="target")
    addresses = parse_addresses(f"{secure.tls_url}?cacertfile={authority.ca}")
    tally = postbox.run(move(addresses, source="source", decide=lambda _letter: verdict))
    assert tally.moved == 2000
    assert len(postbox.drain(secure.url, "target")) == 2000


def test_the_checker_over_tls_with_and_without_the_opt_out(
    secure: PrivateBroker, authority: TlsFiles
) -> None:
    for parameters, code in (("", 3), (f"?cacertfile={authority.ca}", 0), ("?verify=verify_none", 0)):
        postbox.declare(secure.url, "tls.dlq")
        postbox.fill(secure.url, "tls.dlq", [b"x"], dead=False, headers={"x-retry-count": 9})
        done = dlq(
            "check", "--dlq", "tls.dlq", "--target", "tls.dead", "--count-by", "header:x-retry-count",
            DLQ_URL=f"{secure.tls_url}{parameters}",
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        if code:
            assert "verify_none" in done.stderr
            assert len(postbox.drain(secure.url, "tls.dlq", expect=1)) == 1
        else:
            assert len(postbox.drain(secure.url, "tls.dead", expect=1)) == 1
