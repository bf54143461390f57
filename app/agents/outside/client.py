"""The only way from an agent to other servers: checked addresses, pinned connections, bounded responses.

A name is resolved once per connection, and the connection goes to the IP that was checked; TLS still verifies the name.
Redirects are not followed, proxies of the environment are not used, and compressed responses are refused.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import httpcore2
import httpx2

from app.config import variable
from app.errors import Refused
from app.formats.outbound_rules import Unreachable, check_address, check_ip, check_port

MEBIBYTE = 1_048_576
MAX_BYTES = MEBIBYTE
SECONDS = 30.0
CONNECT_SECONDS = 10.0
MAX_ADDRESSES = 4
# A streamed response takes about two hundred bytes per word.
MODEL_BYTES = 4 * MEBIBYTE
MODEL_STREAM_BYTES = 32 * MEBIBYTE
MODEL_SECONDS = 600.0
MODEL_CONNECTIONS = 256
# An agent's author decides where a secret is sent, so the operator can limit the hosts with NAME_HOSTS.
HOSTS_SUFFIX = "_HOSTS"


class OutboundError(httpx2.TransportError):
    """A failed request, in one sentence without anything from the request's headers."""


@lru_cache(maxsize=1)
def _tls_context() -> ssl.SSLContext:
    """Reading the machine's certificate authorities is slow, so it is done once."""
    return httpcore2.default_ssl_context()


async def resolve_host(host: str, port: int) -> list[str]:
    """The IP addresses of a host name."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class PinnedBackend(httpcore2.AsyncNetworkBackend):
    """Connects only to IP addresses that were checked, and to no socket of this machine."""

    def __init__(self, allow: str) -> None:
        self.allow = allow
        self.dial: httpcore2.AsyncNetworkBackend = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        check_port(host, port, self.allow)
        trouble: Exception = OutboundError(f"There is no host {host}.")
        try:
            async with asyncio.timeout(timeout):
                addresses = await resolve_host(host, port)
        except OSError:
            raise trouble from None
        for address in addresses:
            check_ip(address, host, port, self.allow)
        for address in addresses[:MAX_ADDRESSES]:
            try:
                return await self.dial.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as failed:
                trouble = failed
        raise trouble

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass
class BoundedStream(httpx2.AsyncByteStream):
    """A response body that may not exceed its limit."""

    stream: Any
    host: str
    most: int

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        with _explain_errors(self.host):
            async for piece in self.stream:
                read += len(piece)
                if read > self.most:
                    raise OutboundError(f"{self.host} answered more than {format_size(self.most)}.")
                yield piece

    async def aclose(self) -> None:
        await self.stream.aclose()


class GuardedTransport(httpx2.AsyncBaseTransport):
    """The transport of every request of agents. `allow` is the operator's list of allowed targets."""

    def __init__(self, allow: str, most: int = MAX_BYTES) -> None:
        self.allow = allow
        self.most = most
        self.backend = PinnedBackend(allow)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=_tls_context(), network_backend=self.backend, max_connections=8, keepalive_expiry=30
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        with _explain_errors(request.url.host):
            target = check_address(str(request.url), self.allow)
        if request.url.host.strip("[]") != target.host:
            raise OutboundError("This is no address that can be read in only one way.")
        sent = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(
                scheme=target.scheme.encode(), host=target.host.encode(), port=target.port, target=target.rest.encode()
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _explain_errors(target.host):
            answer = await self._pool.handle_async_request(sent)
        response = httpx2.Response(
            answer.status,
            headers=answer.headers,
            stream=BoundedStream(answer.stream, target.host, self.most),
            extensions=answer.extensions,
        )
        unread = ""
        if 300 <= response.status_code < 400:
            unread = "with a redirect, which is not followed. Give the address it leads to"
        elif response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            unread = "compressed, though it was asked not to"
        if unread:
            await response.aclose()
            raise OutboundError(f"{target.host} answered {unread}.")
        return response

    async def aclose(self) -> None:
        await self._pool.aclose()


@contextmanager
def _explain_errors(host: str) -> Iterator[None]:
    """Turn network errors into OutboundError with one sentence."""
    try:
        yield
    except Unreachable as refusal:
        raise OutboundError(refusal.detail) from None
    except (httpcore2.TimeoutException, TimeoutError):
        raise OutboundError(f"{host} did not answer in time.") from None
    except httpcore2.ConnectError as trouble:
        about = " with a certificate that can be trusted" if "certificate" in str(trouble).lower() else ""
        raise OutboundError(f"{host} could not be reached{about}.") from None
    except (httpcore2.NetworkError, httpcore2.ProtocolError):
        raise OutboundError(f"{host} broke off or does not speak HTTP.") from None


def open_client(
    allow: str, headers: Mapping[str, str] | None = None, *, most: int = MAX_BYTES, seconds: float = SECONDS
) -> httpx2.AsyncClient:
    """A client that reaches only what agents may reach."""
    return httpx2.AsyncClient(
        transport=GuardedTransport(allow, most),
        headers={"User-Agent": "Upshot", "Accept-Encoding": "identity", **(headers or {})},
        timeout=httpx2.Timeout(seconds, connect=CONNECT_SECONDS),
        follow_redirects=False,
        trust_env=False,
    )


def model_client() -> httpx2.AsyncClient:
    """A client for the operator's own model server. Only the size of responses is limited."""
    return httpx2.AsyncClient(
        verify=_tls_context(),
        # Every slot of the executor may have its own request open.
        limits=httpx2.Limits(max_keepalive_connections=MODEL_CONNECTIONS),
        headers={"Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(MODEL_SECONDS, connect=CONNECT_SECONDS),
        trust_env=False,
        event_hooks={"response": [_bound_response]},
    )


async def _bound_response(response: httpx2.Response) -> None:
    if response.status_code == 429 or (response.status_code == 503 and "retry-after" in response.headers):
        # The libraries would ask again by themselves. The turn does so, when the server has had its time.
        response.headers["x-should-retry"] = "false"
    streamed = response.headers.get("content-type", "").startswith("text/event-stream")
    response.stream = BoundedStream(response.stream, "It", MODEL_STREAM_BYTES if streamed else MODEL_BYTES)


def secret_headers(headers_env: Mapping[str, str], host: str) -> dict[str, str]:
    """Headers with the values of the variables they name, or Refused with what to set."""
    found = {}
    for header, name in headers_env.items():
        value = variable(name)
        if not value:
            raise Refused(f"{header} is the value of {name}, which is not set where Upshot runs.")
        if not (value.isascii() and value.isprintable()):
            raise Refused(f"The value of {name} cannot be sent as a header.")
        hosts = [part.strip().lower() for part in variable(name + HOSTS_SUFFIX).split(",") if part.strip()]
        if hosts and host not in hosts:
            raise Refused(f"{name} may not be sent to {host}; {name}{HOSTS_SUFFIX} says where it may be sent.")
        found[header] = value
    return found


def format_size(count: int) -> str:
    return f"{count // MEBIBYTE} MiB" if count >= MEBIBYTE else f"{count:,} bytes"
