"""Which addresses an agent may reach, as far as an address itself tells; names are resolved where they are used.

This is the only reading of such an address: what it gives is what is connected to, so that no second parser can
understand another host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING

from app.errors import Invalid

if TYPE_CHECKING:
    from app.formats.agent_config import AgentConfig

MAX_LENGTH = 2000
PORTS = {"http": 80, "https": 443}
ADDRESS = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[1-9][0-9]{0,4}))?"
    r"(?P<rest>(?:/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?(?:\?[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*)?)",
    re.ASCII | re.IGNORECASE,
)
LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
# A last label of this form makes a whole name a number to some resolvers: 2130706433, 0x7f000001, 0177.0.0.1.
NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,63})\}", re.ASCII)
ONE_MACHINE = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
GLOBAL_V6 = IPv6Network("2000::/3")
NAT64 = IPv6Network("64:ff9b::/96")
# Public by their number, yet never someone's service: tunnels that hold another address, and the service address
# that every machine of one cloud reaches inside its own network.
NEVER = tuple(ip_network(text) for text in ("2001::/23", "2002::/16", "192.88.99.0/24", "168.63.129.16/32"))


ASK_OPERATOR = "your Upshot operator can add {} to UPSHOT_OUTBOUND_ALLOW."
NOT_READABLE = (
    f"Enter a URL that starts with http:// or https://, in plain ASCII, at most {MAX_LENGTH:,} characters, without"
    " a user name or a #."
)


class Unreachable(Invalid):
    """An address that agents may not reach. The sentence says what to change."""

    title = "Agents may not reach this address"


@dataclass(frozen=True)
class Target:
    """An address, read once. `rest` is its path and its query."""

    scheme: str
    host: str
    port: int
    rest: str = "/"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{format_host(self.host, self.port, self.scheme)}{self.rest}"


def format_host(host: str, port: int, scheme: str = "") -> str:
    """A host and its port as an address has them; the usual port of a scheme is left out."""
    shown = f"[{host}]" if ":" in host else host
    return shown if PORTS.get(scheme) == port else f"{shown}:{port}"


def read_allow(text: str) -> frozenset[tuple[str, int | None]]:
    """The operator's list: hosts, each for ports 80 and 443, or with the one port that is meant."""
    return frozenset(_allowed(entry.strip()) for entry in text.split(",") if entry.strip())


def _allowed(entry: str) -> tuple[str, int | None]:
    found = re.fullmatch(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([1-9][0-9]{0,4}))?", entry, re.ASCII | re.IGNORECASE)
    if found is None:
        raise Invalid(f"{entry[:100]!r} is neither a host nor host:port.")
    return _host(found[1].lower()), _port(found[2]) if found[2] else None


def is_allowed(host: str, port: int, allow: str) -> bool:
    """Whether the operator named this host, for this port or for the usual ones."""
    allowed = read_allow(allow)
    return (host, port) in allowed or ((host, None) in allowed and port in PORTS.values())


def check_address(url: str, allow: str = "") -> Target:
    """The address, or Unreachable with what to change. `allow` is the operator's list, as it was set.

    A name passes here whatever it resolves to; each connection is checked once more with the numbers it leads to.
    """
    target = _parse_address(url)
    check_port(target.host, target.port, allow)
    if _literal(target.host) is not None:
        check_ip(target.host, target.host, target.port, allow)
    elif target.host in ONE_MACHINE or target.host.endswith(".localhost"):
        _check_allowed(target.host, target.port, allow)
    return target


def check_template(url: str, allow: str = "") -> Target:
    """The same for an address with `{name}` in its path, which the arguments of a call replace."""
    head, slash, path = url.strip().partition("://")
    host, cut, rest = path.partition("/")
    check_address(head + slash + host + cut + PLACEHOLDER.sub("x", rest), allow)
    found = _parse_address(head + slash + host)
    return Target(found.scheme, found.host, found.port, cut + rest)


def check_port(host: str, port: int, allow: str) -> None:
    """Raise Unreachable for a port that is not the web's, unless the operator named it."""
    if port not in PORTS.values() and not is_allowed(host, port, allow):
        raise Unreachable(f"Only ports 80 and 443 can be reached; {ASK_OPERATOR.format(format_host(host, port))}")


def check_ip(address: str, host: str, port: int, allow: str) -> None:
    """Raise Unreachable for a number that is not public, unless the operator named the host that led to it."""
    if not is_public(address):
        _check_allowed(host, port, allow)


def _check_allowed(host: str, port: int, allow: str) -> None:
    if not is_allowed(host, port, allow):
        shown = format_host(host, port, "http" if port == PORTS["http"] else "https")
        raise Unreachable(f"{host} is not on the public internet; {ASK_OPERATOR.format(shown)}")


def is_public(address: str) -> bool:
    """Whether a number is someone's on the internet: not this machine, its networks, or one hidden in another."""
    found = _literal(address)
    if found is None or any(found in network for network in NEVER if network.version == found.version):
        return False
    if isinstance(found, IPv6Address):
        if found in NAT64:
            return is_public(str(IPv4Address(int(found) & 0xFFFFFFFF)))
        return found in GLOBAL_V6 and found.is_global
    return found.is_global and not (found.is_multicast or found.is_reserved)


def config_problems(config: AgentConfig, allow: str) -> dict[str, str]:
    """What is wrong with the addresses of an agent, each under the name of its field."""
    checks = [
        *((f"http_tools.{place}.url", tool.url, check_template) for place, tool in enumerate(config.http_tools)),
        *((f"mcp_servers.{place}.url", one.url, check_address) for place, one in enumerate(config.mcp_servers)),
        *([("endpoint_url", config.endpoint_url, check_address)] if config.endpoint_url else []),
    ]
    found: dict[str, str] = {}
    for name, url, check in checks:
        try:
            check(url, allow)
        except Invalid as refusal:
            found[name] = refusal.detail
    return found


def _parse_address(url: str) -> Target:
    text = url.strip(" ")
    found = ADDRESS.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if found is None:
        raise Unreachable(NOT_READABLE)
    scheme, rest = found["scheme"].lower(), found["rest"]
    host, port = _host(found["host"].lower()), _port(found["port"]) if found["port"] else PORTS[scheme]
    return Target(scheme, host, port, rest if rest.startswith("/") else f"/{rest}")


def _host(host: str) -> str:
    """A name, or a number in its usual form; whatever can be read as another host is refused."""
    if host.startswith("["):
        found = _literal(host[1:-1])
        if not isinstance(found, IPv6Address):
            raise Unreachable(f"{host[:100]} is no address of a host.")
        return found.compressed
    labels = host.split(".")
    if NUMBER.fullmatch(labels[-1]):
        literal = _literal(host)
        if literal is None:
            raise Unreachable("Write the number of a host as four numbers from 0 to 255, such as 192.0.2.10.")
        return str(literal)
    if len(host) > 253 or not all(LABEL.fullmatch(label) for label in labels):
        raise Unreachable(f"{host[:60]!r} is not a host name. Use letters, digits, hyphens and dots inside.")
    return host


def _port(text: str) -> int:
    if int(text) > 65535:
        raise Unreachable("A port is a number from 1 to 65535.")
    return int(text)


def _literal(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
