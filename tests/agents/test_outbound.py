"""The way outside: where it leads, that nothing leads anywhere else, and how much comes back."""

from __future__ import annotations

import asyncio
import datetime
import gzip
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpcore2
import httpx2
import pytest

from app.agents.outside import client
from app.agents.outside.client import GuardedTransport, OutboundError, open_client, secret_headers
from app.errors import Refused
from tests.formats.test_outbound_rules import REFUSED
from tests.loopback import Asked, Loopback, Reply, as_json

PUBLIC = "93.184.215.14"


def get(url: str, allow: str = "", **more: Any) -> Any:
    """What comes back, read in full."""

    async def ask() -> Any:
        async with open_client(allow, **more) as client:
            return await client.get(url)

    return asyncio.run(ask())


@pytest.fixture
def quiet() -> Iterator[Loopback]:
    """A server that must not be reached."""
    with Loopback(lambda asked: as_json({"reached": True})) as server:
        yield server


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """What names resolve to, answer by answer; the last answer stays."""
    known: dict[str, list[list[str]]] = {}

    async def lookup(host: str, port: int) -> list[str]:
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        answers = known[host]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    monkeypatch.setattr(client, "resolve_host", lookup)
    return known


@pytest.mark.parametrize("url", REFUSED)
def test_no_form_of_an_address_leads_inside(url: str, quiet: Loopback, names: dict[str, list[list[str]]]) -> None:
    names |= {"example.com": [["127.0.0.1"]], "localhost": [["127.0.0.1"]]}
    dialled = []

    async def ask() -> None:
        async with open_client("") as client:
            transport = client._transport
            assert isinstance(transport, GuardedTransport)
            transport.backend.dial = Dialled(dialled)
            await client.get(url)

    # Some forms are refused by the client before the guard sees them.
    with pytest.raises((httpx2.HTTPError, httpx2.InvalidURL)):
        asyncio.run(ask())
    assert dialled == []


class Dialled(httpcore2.AsyncNetworkBackend):
    """Notes where a connection would have gone."""

    def __init__(self, found: list[tuple[str, int]]) -> None:
        self.found = found

    async def connect_tcp(self, host: str, port: int, *more: Any, **named: Any) -> httpcore2.AsyncNetworkStream:
        self.found.append((host, port))
        raise httpcore2.ConnectError("nowhere")


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["::1"],
        ["10.0.0.1"],
        ["169.254.169.254"],
        ["fd00::1"],
        ["::ffff:127.0.0.1"],
        [PUBLIC, "127.0.0.1"],
    ],
)
def test_a_name_that_leads_inside_is_not_followed(addresses: list[str], names: dict[str, list[list[str]]]) -> None:
    names["inside.example"] = [addresses]
    with pytest.raises(OutboundError, match=r"inside.example is not on the public internet.*UPSHOT_OUTBOUND_ALLOW"):
        get("http://inside.example/")


def test_a_name_that_changes_its_mind_is_asked_once(quiet: Loopback, names: dict[str, list[list[str]]]) -> None:
    names["rebind.example"] = [[PUBLIC], ["127.0.0.1"]]
    dialled: list[tuple[str, int]] = []

    async def ask() -> None:
        async with open_client("") as client:
            transport = client._transport
            assert isinstance(transport, GuardedTransport)
            transport.backend.dial = Dialled(dialled)
            await client.get("http://rebind.example/")

    with pytest.raises(OutboundError, match="could not be reached"):
        asyncio.run(ask())
    assert dialled == [(PUBLIC, 80)]
    with pytest.raises(OutboundError, match="not on the public internet"):
        asyncio.run(ask())
    assert dialled == [(PUBLIC, 80)]
    assert quiet.connections == 0


def test_an_allowed_host_is_reached_and_its_neighbour_is_not(quiet: Loopback) -> None:
    assert get(f"{quiet.url}/x", quiet.host).json() == {"reached": True}
    with Loopback(lambda asked: as_json({})) as other:
        with pytest.raises(OutboundError, match="ports 80 and 443"):
            get(other.url, quiet.host)
        assert other.connections == 0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(status: int, quiet: Loopback) -> None:
    def away(asked: Asked) -> Reply:
        return Reply(b"", status, headers={"Location": quiet.url})

    with Loopback(away) as server, pytest.raises(OutboundError, match="redirect, which is not followed"):
        get(server.url, server.host)
    assert quiet.connections == 0


def test_answers_are_bounded() -> None:
    sent = []

    def endless() -> Iterator[bytes]:
        for _ in range(10_000):
            sent.append(1)
            yield b"x" * 65_536

    with Loopback(lambda asked: Reply(endless())) as server, pytest.raises(OutboundError, match="more than 1 MiB"):
        get(server.url, server.host)
    assert len(sent) < 1000


def test_a_compressed_answer_is_not_inflated() -> None:
    bomb = gzip.compress(b"0" * 50_000_000)
    with Loopback(lambda asked: Reply(bomb, headers={"Content-Encoding": "gzip"})) as server:
        with pytest.raises(OutboundError, match="compressed"):
            get(server.url, server.host)
        assert server.asked[0].headers["accept-encoding"] == "identity"


def test_silence_ends() -> None:
    server = Loopback(lambda asked: Reply(str(server.left.wait(20)).encode()))
    with server, pytest.raises(OutboundError, match="did not answer in time"):
        get(server.url, server.host, seconds=0.3)


def test_a_refused_connection_is_reported_in_a_sentence(names: dict[str, list[list[str]]]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    names["127.0.0.1"] = [["127.0.0.1"]]
    with pytest.raises(OutboundError, match=r"127.0.0.1 could not be reached\."):
        get(f"http://127.0.0.1:{port}/", f"127.0.0.1:{port}")
    with pytest.raises(OutboundError, match=r"There is no host missing\.example"):
        get("http://missing.example/")


def test_tls_asks_for_the_name_and_not_for_the_number(
    names: dict[str, list[list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate for one name serves that name, wherever it resolves, and no other."""
    files = certificate(tmp_path, "good.example")
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(*files)
    trusting = ssl.create_default_context(cafile=files[0])
    monkeypatch.setattr(client, "_tls_context", lambda: trusting)
    with Loopback(lambda asked: as_json({"host": asked.headers["host"]})) as server:
        server._server.socket = served.wrap_socket(server._server.socket, server_side=True)
        names |= {"good.example": [["127.0.0.1"]], "bad.example": [["127.0.0.1"]]}
        allow = f"good.example:{server.port}, bad.example:{server.port}"
        assert get(f"https://good.example:{server.port}/", allow).json() == {"host": f"good.example:{server.port}"}
        with pytest.raises(OutboundError, match="certificate that can be trusted"):
            get(f"https://bad.example:{server.port}/", allow)
        monkeypatch.setattr(client, "_tls_context", httpcore2.default_ssl_context)
        with pytest.raises(OutboundError, match="certificate that can be trusted"):
            get(f"https://good.example:{server.port}/", allow)


def certificate(folder: Path, name: str) -> tuple[str, str]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(files[0]), str(files[1])


def test_proxies_of_the_environment_are_not_used(quiet: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", quiet.url)
    monkeypatch.setenv("ALL_PROXY", quiet.url)
    with Loopback(lambda asked: as_json({"direct": True})) as server:
        assert get(server.url, server.host).json() == {"direct": True}
    assert quiet.connections == 0


def test_a_secret_goes_only_where_the_operator_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused, match="UPSHOT_TOOL_CRM, which is not set"):
        secret_headers({"Authorization": "UPSHOT_TOOL_CRM"}, "crm.example")
    monkeypatch.setenv("UPSHOT_TOOL_CRM", "Bearer canary-1234")
    assert secret_headers({"Authorization": "UPSHOT_TOOL_CRM"}, "any.example") == {
        "Authorization": "Bearer canary-1234"
    }
    monkeypatch.setenv("UPSHOT_TOOL_CRM_HOSTS", "crm.example, crm2.example")
    assert secret_headers({"Authorization": "UPSHOT_TOOL_CRM"}, "crm2.example")
    with pytest.raises(Refused, match=r"may not be sent to evil\.example") as refused:
        secret_headers({"Authorization": "UPSHOT_TOOL_CRM"}, "evil.example")
    assert "canary" not in refused.value.detail
    monkeypatch.setenv("UPSHOT_TOOL_CRM", "Bearer \u00e9canary")
    with pytest.raises(Refused, match="cannot be sent"):
        secret_headers({"Authorization": "UPSHOT_TOOL_CRM"}, "crm.example")
