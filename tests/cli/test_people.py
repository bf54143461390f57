"""The operator's commands for workspaces, people and keys."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from app import tokens
from app.cli import command
from app.db import acting_as
from app.services.workspaces import logins


@pytest.fixture
def upshot(app_url, tmp_path, monkeypatch) -> Callable[..., Result]:
    """Run a command on this process's database."""
    monkeypatch.setenv("UPSHOT_DATABASE_URL", app_url)
    monkeypatch.setenv("UPSHOT_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("UPSHOT_BASE_URL", "https://upshot.example.com")
    runner = CliRunner()

    def run(*args: str, stdin: str | None = None) -> Result:
        return runner.invoke(command, args, input=stdin)

    return run


def test_from_nothing_to_a_key_and_a_link(app, upshot):
    slug, email = f"c-{secrets.token_hex(6)}", f"sam-{secrets.token_hex(6)}@example.test"

    made = json.loads(upshot("tenant", "create", "--slug", slug, "--name", "Acme", "--json").stdout)
    person = json.loads(
        upshot("user", "create", "--email", email, "--tenant", slug, "--role", "owner", "--password-stdin", "--json",
               stdin="correct horse battery\n").stdout
    )  # fmt: skip
    key = json.loads(
        upshot(
            "key", "create", "--tenant", slug, "--user", email, "--scope", "ingest", "--scope", "admin", "--json"
        ).stdout
    )
    link = json.loads(upshot("signin-link", "--email", email, "--json").stdout)

    assert (made["slug"], made["name"]) == (slug, "Acme")
    assert (person["email"], person["role"], person["tenant"]) == (email, "owner", slug)
    assert key["scopes"] == ["ingest", "admin"]
    assert key["key"].startswith(tokens.KEY_PREFIX)
    answer = app.test_client().get("/api/admin/settings", headers={"Authorization": f"Bearer {key['key']}"})
    assert answer.status_code == 200
    token = link["url"].removeprefix("https://upshot.example.com/sign-in/link/")
    with app.app_context(), acting_as(None):
        assert logins.link_works(token)
        actor, _ = logins.sign_in(email, "correct horse battery", user_agent=None)
        assert (str(actor.id), actor.role) == (person["id"], "owner")


def test_words_for_people_and_one_sentence_when_it_cannot_be_done(upshot):
    slug = f"c-{secrets.token_hex(6)}"
    made = upshot("tenant", "create", "--slug", slug, "--name", "Acme")
    assert made.stdout == f"Created the workspace Acme ({slug}).\n"
    failures = [
        (("tenant", "create", "--slug", slug, "--name", "Acme"), "already a workspace"),
        (("tenant", "create", "--slug", "No!", "--name", "Acme"), "lower-case"),
        (("user", "create", "--email", "a@b.c", "--tenant", "no-such"), "upshot tenant create"),
        (("user", "create", "--email", "nonsense", "--tenant", slug), "email address"),
        (("user", "create", "--email", "a@b.c", "--tenant", slug, "--password-stdin"), "at least 10"),
        (("key", "create", "--tenant", slug, "--user", "nobody@b.c", "--scope", "admin"), "upshot user create"),
        (("signin-link", "--email", "nobody@nowhere.test"), "No one"),
    ]
    for args, words in failures:
        result = upshot(*args, "--json", stdin="short\n")
        assert (result.exit_code, result.stdout) == (1, ""), args
        assert words in result.stderr
        assert result.stderr.count("\n") == 1
