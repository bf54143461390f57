"""Under which names the app answers, and what it refuses to begin with."""

from __future__ import annotations

import pytest
from flask import Flask
from werkzeug.sansio.utils import host_is_trusted

from app.config import Settings
from app.errors import Unusable


def test_names_and_addresses_of_both_kinds_are_trusted() -> None:
    settings = Settings(host="::1", trusted_hosts_text="box.example, [fe80::0001], 2001:db8::2")
    for host in (
        "[::1]:8000", "[::1]", "127.0.0.1:8000", "localhost", "box.example:80", "[fe80::1]:9", "[2001:db8::2]"
    ):  # fmt: skip
        assert host_is_trusted(host, settings.trusted_hosts), host
    for host in ("[::2]:8000", "[", "evil.example", "[fe80::2]", "::1"):
        assert not host_is_trusted(host, settings.trusted_hosts), host
    behind = Settings(base_url="https://[2001:db8::7]:8443/upshot")
    assert host_is_trusted("[2001:db8::7]:8443", behind.trusted_hosts)


def test_the_app_answers_under_an_address_of_the_longer_kind(app: Flask) -> None:
    assert app.test_client().get("/sign-in", headers={"Host": "[::1]:8000"}).status_code == 200
    assert app.test_client().get("/sign-in", headers={"Host": "[::2]:8000"}).status_code == 400


def test_a_list_of_hosts_that_cannot_be_read_is_refused() -> None:
    Settings(outbound_allow="wiki.internal, 10.0.0.5:8080").check()
    with pytest.raises(Unusable, match="UPSHOT_OUTBOUND_ALLOW cannot be read: 'http://wiki' is neither"):
        Settings(outbound_allow="http://wiki").check()
