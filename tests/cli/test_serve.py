"""The server as the operator meets it."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
from pathlib import Path

import httpx
import pytest

from tests.cli.servers import Serving, copy_prepared_data, serving, upshot, wait_for

pytestmark = pytest.mark.process


def test_serve_prints_the_address_and_a_link_that_works_once(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--demo") as one:
        link = re.search(r"Sign in once with: (\S+)", wait_for(lambda: "Sign in once" in one.output() and one.output()))
        assert link is not None
        assert f"Upshot is up: {one.url}" in one.output()
        with httpx.Client(base_url=one.url, follow_redirects=True) as browser:
            page = browser.get(link[1])
            token = re.search(r'name="csrf_token" value="([^"]+)"', page.text)
            assert token is not None
            inside = browser.post(link[1], data={"csrf_token": token[1]})
            assert inside.status_code == 200
            assert inside.url.path == "/admin/agent-review/feedback"
        with httpx.Client(base_url=one.url, follow_redirects=True) as other:
            assert other.get(link[1]).status_code in {404, 410}
        assert one.stop() == 0
        assert one.postmaster() == 0


def test_killed_postgres_comes_back_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data) as one:
        upshot("tenant", "create", "--slug", "acme", "--name", "Acme", data=data)
        upshot("user", "create", "--email", "ada@example.test", "--tenant", "acme", "--role", "owner", data=data)
        link = upshot("signin-link", "--email", "ada@example.test", data=data).stdout
        assert link.startswith(f"{one.url}/sign-in/link/"), link
        made = upshot(
            "key", "create", "--tenant", "acme", "--user", "ada@example.test", "--scope", "admin", "--json", data=data
        )
        key = re.search(r'"key": "([^"]+)"', made.stdout)
        assert key is not None, made.stderr
        acknowledged: list[str] = []
        with httpx.Client(base_url=one.url, headers={"Authorization": f"Bearer {key[1]}"}, timeout=30) as client:

            def give(n: int) -> bool:
                body = {"source_type": "observation", "rating": "negative", "comment": f"number {n}"}
                try:
                    answer = client.post("/api/feedback", json=body)
                except httpx.HTTPError:
                    return False
                assert answer.status_code in {201, 503}, answer.text
                if answer.status_code == 201:
                    acknowledged.append(answer.json()["id"])
                return answer.status_code == 201

            assert all(give(n) for n in range(10))
            os.kill(one.postmaster(), signal.SIGKILL)
            wait_for(lambda: give(len(acknowledged)))
            for n in range(10):
                wait_for(lambda n=n: give(100 + n))
            kept: set[str] = set()
            cursor = ""
            while cursor is not None:
                page = client.get(
                    "/api/feedback", params={"limit": "100", **({"cursor": cursor} if cursor else {})}
                ).json()
                kept |= {item["id"] for item in page["items"]}
                cursor = page["next_cursor"]
            assert set(acknowledged) <= kept


def test_a_killed_server_leaves_nothing_in_the_way_of_the_next(tmp_path: Path) -> None:
    data = tmp_path / "data"
    copy_prepared_data(data)
    first = Serving(data).up()
    first.process.kill()
    first.process.wait()
    with serving(data) as second:
        assert second.get("/readyz") == 200
    assert second.postmaster() == 0


def test_what_cannot_work_is_one_sentence_and_exit_1(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        cases = [
            ({"UPSHOT_PORT": port}, "UPSHOT_PORT"),
            ({"UPSHOT_PORT": "eight"}, "UPSHOT_PORT is eight; give a port"),
            ({"UPSHOT_HOST": "999.1.1.1"}, "UPSHOT_HOST is 999.1.1.1; give an address"),
            ({"UPSHOT_PORT": "0", "UPSHOT_MODEL": "foo:bar"}, "UPSHOT_MODEL is foo:bar. There is no model foo:bar"),
            ({"UPSHOT_SECRET_KEY": "short"}, "UPSHOT_SECRET_KEY"),
            ({"UPSHOT_METRICS_TOKEN": "short"}, "UPSHOT_METRICS_TOKEN"),
            ({"UPSHOT_PORT": "0", "UPSHOT_DATABASE_URL": "postgresql://u:p@127.0.0.1:1/none"}, "UPSHOT_DATABASE_URL"),
            ({"UPSHOT_PORT": "0", "UPSHOT_DATABASE_URL": "nonsense"}, "UPSHOT_DATABASE_URL"),
        ]
        for number, (more, sentence) in enumerate(cases):
            data = tmp_path / f"data-{number}"
            done = upshot("serve", data=data, **more)
            assert done.returncode == 1, (more, done.stderr)
            lines = done.stderr.strip().splitlines()
            assert len(lines) == 1, (more, done.stderr)
            assert sentence in lines[0]
            assert not done.stdout
            assert not data.exists()


def test_a_privileged_role_is_refused(tmp_path: Path, superuser_url: str, owner_url: str) -> None:
    for url, why in ((superuser_url, "superuser"), (owner_url, "owns the tables")):
        done = upshot("serve", data=tmp_path / "data", UPSHOT_PORT="0", UPSHOT_DATABASE_URL=url)
        assert done.returncode == 1
        assert why in done.stderr
        assert "upshot db init" in done.stderr


def test_an_operators_postgresql_serves(tmp_path: Path, app_url: str) -> None:
    with serving(tmp_path / "data", "--json", UPSHOT_DATABASE_URL=app_url) as one:
        assert one.get("/readyz") == 200
        assert json.loads(one.output().splitlines()[0])["url"] == one.url
        assert one.postmaster() == 0


def test_db_init_does_not_take_roles_away_from_a_running_server(tmp_path: Path, superuser_url: str) -> None:
    done = upshot("db", "init", "--url", superuser_url, data=tmp_path / "data")
    assert done.returncode == 1
    assert "--new-passwords" in done.stderr


@pytest.mark.parametrize("proxy", ["", "127.0.0.1"])
def test_what_a_proxy_passes_on_is_not_from_this_machine(tmp_path: Path, app_url: str, proxy: str) -> None:
    token = secrets.token_urlsafe(32)
    more = {"UPSHOT_DATABASE_URL": app_url, "UPSHOT_TRUSTED_PROXY": proxy, "UPSHOT_METRICS_TOKEN": token}
    with serving(tmp_path / "data", **more) as server:
        server.up()
        address = f"{server.url}/metrics"
        assert httpx.get(address).status_code == 200
        for name, value in (
            ("X-Forwarded-For", "203.0.113.9"),
            ("X-Forwarded-For", "127.0.0.1"),
            ("X-Forwarded-Proto", "https"),
            ("Forwarded", "for=127.0.0.1"),
            ("Via", "1.1 proxy"),
        ):
            assert httpx.get(address, headers={name: value}).status_code == 401, (name, value)
        told = {"X-Forwarded-For": "203.0.113.9", "Authorization": f"Bearer {token}"}
        assert "upshot_tenants" in httpx.get(address, headers=told).text
