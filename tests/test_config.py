"""Under which names the app answers, and what it refuses to begin with."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest
from flask import Flask
from werkzeug.sansio.utils import host_is_trusted

from app.agents.models import check_default_model
from app.config import Settings
from app.errors import Unusable
from app.server.address import find_address, publish_address


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


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"UPSHOT_LEASE_SECONDS": "-1"}, "UPSHOT_LEASE_SECONDS is -1; give a whole number of seconds from 2 to 3600."),
        (
            {"UPSHOT_LEASE_SECONDS": "3601"},
            "UPSHOT_LEASE_SECONDS is 3601; give a whole number of seconds from 2 to 3600.",
        ),
        ({"UPSHOT_THREADS": "1"}, "UPSHOT_THREADS is 1; give a whole number from 2 to 1000."),
        ({"UPSHOT_SLOTS": "²"}, "UPSHOT_SLOTS is ²; give a whole number from 1 to 500."),
        ({"UPSHOT_PORT": "65536"}, "UPSHOT_PORT is 65536; give a port from 1 to 65535."),
        ({"UPSHOT_HOST": "999.1.1.1"}, "UPSHOT_HOST is 999.1.1.1; give an address of this machine, such as 127.0.0.1."),
        ({"UPSHOT_HOST": "a b"}, "UPSHOT_HOST is a b; give an address of this machine, such as 127.0.0.1."),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_give(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(Unusable) as refused:
        Settings.from_env(given)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("host", ["0.0.0.0", "::1", "localhost", "box", "10.0.0.7", "upshot-1.internal"])
def test_addresses_and_names_to_listen_on(host: str) -> None:
    Settings(host=host).check()


def test_a_model_that_there_is_not_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("foo:bar", "gpt"):
        with pytest.raises(Unusable, match=f"^UPSHOT_MODEL is {name}. There is no model {name}; use offline"):
            check_default_model(Settings(model=name))
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    monkeypatch.delenv("TOGETHER_API_KEY", raising=False)
    for name in ("offline", "deepseek:some", "together:needs-a-key-only"):
        check_default_model(Settings(model=name))
    check_default_model(Settings(model="mine", openai_base_url="http://127.0.0.1:9/v1"))


def test_the_link_that_is_printed_leads_to_the_server_that_runs(tmp_path: Path) -> None:
    here = Settings(data_dir_text=str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        runs = Settings(data_dir_text=str(tmp_path), port=listener.getsockname()[1])
        with publish_address(runs):
            assert find_address(here) == runs.url != here.url
            assert find_address(replace(here, base_url="https://upshot.example.com")) == "https://upshot.example.com"
        assert find_address(here) == here.url
        (tmp_path / "address").write_text(runs.url)
        assert find_address(here) == runs.url
    # The note of a server that was killed counts no more.
    assert find_address(here) == here.url


def test_a_list_of_hosts_that_cannot_be_read_is_refused() -> None:
    Settings(outbound_allow="wiki.internal, 10.0.0.5:8080").check()
    with pytest.raises(Unusable, match="UPSHOT_OUTBOUND_ALLOW cannot be read: 'http://wiki' is neither"):
        Settings(outbound_allow="http://wiki").check()
