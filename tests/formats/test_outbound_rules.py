"""Addresses that agents may reach, as far as the address tells: read in one way, public, on the web's ports."""

from __future__ import annotations

import pytest

from app.errors import Invalid
from app.formats.agent_config import AgentConfig
from app.formats.outbound_rules import (
    Unreachable,
    check_address,
    check_template,
    config_problems,
    is_allowed,
    is_public,
    read_allow,
)

REFUSED = (
    # This machine and its networks.
    "http://127.0.0.1/", "http://127.1.2.3/", "http://localhost/", "http://LOCALHOST/", "http://a.localhost/",
    "http://0.0.0.0/", "http://10.1.2.3/", "http://172.16.0.1/", "http://192.168.1.1/", "http://100.64.0.1/",
    "http://169.254.169.254/latest/meta-data/", "http://168.63.129.16/", "http://224.0.0.1/", "http://240.0.0.1/",
    "http://255.255.255.255/", "http://192.0.2.1/", "http://198.18.0.1/", "http://192.88.99.1/",
    # The same in IPv6, and IPv4 hidden in it.
    "http://[::1]/", "http://[::]/", "http://[fe80::1]/", "http://[fc00::1]/", "http://[fd12:3456::1]/",
    "http://[fec0::1]/", "http://[ff02::1]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/",
    "http://[::ffff:8.8.8.8]/", "http://[::127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[64:ff9b:1::7f00:1]/",
    "http://[2002:7f00:1::]/", "http://[2001:0:7f00:1::]/", "http://[2001:db8::1]/", "http://[fe80::1%25eth0]/",
    # Numbers that some resolvers read as 127.0.0.1.
    "http://2130706433/", "http://0x7f000001/", "http://0x7f.0.0.1/", "http://0177.0.0.1/", "http://127.1/",
    "http://127.0.0.1.0x0/", "http://017700000001/", "http://127.0.0.01/", "http://1.2.3.4.5/", "http://256.1.1.1/",
    # What two parsers read differently.
    "http://user@example.com/", "http://example.com@127.0.0.1/", "http://127.0.0.1\\@example.com/",
    "http://example.com\\.evil.test/", "http://example.com#@127.0.0.1/", "http://example.com?@127.0.0.1#/",
    "http://example.com./", "http://127.0.0.1./", "http://127.0.0.1%2f@example.com/", "http://%31%32%37.0.0.1/",
    "http://127。0。0。1/", "http://①②⑦.0.0.1/", "http://ⓔxample.com/", "http://exa\tmple.com/",
    "http://example.com\r\nHost: evil/", "http://example.com /", "http:///example.com/", "http:example.com/",
    "http://exam_ple..com/", "http://-example.com/", "http://[::1/", "http://::1/", "http://example.com:/",
    # Other schemes and ports.
    "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "javascript:alert(1)", "//example.com/",
    "data:text/plain,x", "unix:///run/docker.sock", "example.com", "", "http://example.com:22/",
    "http://example.com:0/", "http://example.com:65536/", "http://example.com:0x50/", "http://example.com:5432/",
    "https://example.com:8443/", "http://example.com/" + "a" * 2000,
)  # fmt: skip


@pytest.mark.parametrize("url", REFUSED)
def test_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(Unreachable) as refused:
        check_address(url)
    assert refused.value.detail.endswith(".")


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("https://example.com", "example.com", 443),
        ("HTTP://Example.COM/a%20b?c=d&e=f", "example.com", 80),
        ("https://xn--bcher-kva.example/x", "xn--bcher-kva.example", 443),
        ("http://8.8.8.8:443/", "8.8.8.8", 443),
        ("https://[2606:4700::1111]/", "2606:4700::1111", 443),
        ("https://[64:ff9b::808:808]/", "64:ff9b::808:808", 443),
    ],
)
def test_public_addresses_pass(url: str, host: str, port: int) -> None:
    found = check_address(url)
    assert (found.host, found.port) == (host, port)


def test_the_operator_names_private_hosts() -> None:
    allow = "wiki.internal, 10.0.0.5:8080, [::1]:9000, LOCALHOST"
    for url in ("http://10.0.0.5:8080/x", "http://[::1]:9000/", "http://localhost/", "https://wiki.internal/"):
        assert check_address(url, allow)
    for url in ("http://10.0.0.5/", "http://[::1]/", "http://localhost:8080/", "http://10.0.0.6:8080/"):
        with pytest.raises(Unreachable, match="UPSHOT_OUTBOUND_ALLOW"):
            check_address(url, allow)
    assert is_allowed("wiki.internal", 80, allow)
    assert not is_allowed("wiki.internal", 8080, allow)
    for wrong in ("http://wiki.internal", "wiki.internal:0", "a b", "127.1", "*"):
        with pytest.raises(Invalid):
            read_allow(wrong)


def test_only_public_numbers_are_public() -> None:
    assert all(map(is_public, ("8.8.8.8", "2606:4700::1111", "64:ff9b::808:808")))
    assert not any(map(is_public, ("127.0.0.1", "::", "2002:808:808::1", "fe80::1%eth0", "no number")))


def test_placeholders_stand_in_the_path_alone() -> None:
    assert check_template("https://api.example.com/items/{id}?full={full}").rest == "/items/{id}?full={full}"
    for url in ("https://{host}/x", "https://api.{host}.com/", "{scheme}://a.com/", "https://a.com:{port}/"):
        with pytest.raises(Unreachable):
            check_template(url)
    with pytest.raises(Unreachable):
        check_template("https://api.example.com/{id")


def test_each_field_of_an_agent_says_what_is_wrong() -> None:
    config = AgentConfig.model_validate(
        {
            "http_tools": [
                {"name": "good", "url": "https://api.example.com/{id}"},
                {"name": "bad", "url": "http://127.0.0.1/"},
            ],
            "mcp_servers": [{"name": "own", "url": "http://10.0.0.5:8080/mcp"}],
            "endpoint_url": "http://localhost:9000/run",
        }
    )
    assert set(config_problems(config, "10.0.0.5:8080")) == {"http_tools.1.url", "endpoint_url"}
