"""Writing an agent without a script: rows added and removed, bad input kept, versions compared and brought back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.db import acting_as
from app.services.agents import versions
from tests.conftest import Workspace, soup

SignIn = Callable[..., FlaskClient]
BASE = "/admin/agents"


def fields_of(form: Any) -> dict[str, Any]:
    """What a browser would send of a form, buttons left out."""
    sent: dict[str, Any] = {}
    for one in form.select("input[name]"):
        if one.get("type") in {"checkbox", "radio"} and not one.has_attr("checked"):
            continue
        if one["name"] in sent:
            held = sent[one["name"]]
            sent[one["name"]] = [*(held if isinstance(held, list) else [held]), one.get("value", "")]
        else:
            sent[one["name"]] = one.get("value", "")
    sent |= {one["name"]: one.text.removeprefix("\n") for one in form.select("textarea")}
    for one in form.select("select"):
        chosen = one.select_one("option[selected]") or one.select_one("option")
        sent[one["name"]] = chosen["value"]
    return sent


def form_at(answer: Any) -> dict[str, Any]:
    return fields_of(soup(answer).select_one("#agent-form"))


def make(client: Any, **more: Any) -> str:
    sent = form_at(client.get(f"{BASE}/new"))
    sent |= {"name": "Deal triage", "slug": "triage", "instructions": "Look first.", "model": "offline"} | more
    answer = client.post(f"{BASE}/new", data=sent)
    assert answer.status_code == 303, soup(answer).select_one("[role=alert]")
    return str(answer.location)


def stored(app: Flask, workspace: Workspace, slug: str = "triage") -> dict[str, Any]:
    actor = workspace.actor()
    with app.app_context(), acting_as(actor):
        agent = versions.find_agent(slug, actor=actor)
        assert agent is not None
        return versions.read_contents(agent.id, [agent.current_version], actor=actor)[agent.current_version]


def test_a_short_name_is_made_from_the_name(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    client: Any = sign_in(workspace.actor())
    make(client, name="Déal Triage (EU)", slug="")
    assert stored(app, workspace, "deal-triage-eu")["name"] == "Déal Triage (EU)"
    sent = form_at(client.get(f"{BASE}/new")) | {"name": "???", "slug": "", "model": "offline"}
    assert client.post(f"{BASE}/new", data=sent).status_code == 422


def test_an_agent_with_tools_of_its_own_without_a_script(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    client: Any = sign_in(workspace.actor())
    sent = form_at(client.get(f"{BASE}/new"))
    assert sent["tool_groups"] == ["context", "entities-read"]
    sent |= {"name": "Deal triage", "slug": "triage", "model": "offline", "instructions": "Look first."}
    for button, values in (
        ("add:skills", {"skills.0.name": "Comparing", "skills.0.text": "One period."}),
        ("add:skills", {"skills.1.name": "Gone", "skills.1.text": "Soon."}),
        ("remove:skills.1", {}),
        ("add:skills", {}),
        (
            "add:http_tools",
            {
                "http_tools.0.name": "lookUp",
                "http_tools.0.url": "https://a.example/{id}",
                "http_tools.0.method": "POST",
            },
        ),
        ("add:http_tools.0.parameters", {"http_tools.0.parameters.0.name": "id"}),
        (
            "add:http_tools.0.headers",
            {"http_tools.0.headers.0.header": "X-Key", "http_tools.0.headers.0.variable": "UPSHOT_TOOL_CRM"},
        ),
        ("add:mcp_servers", {"mcp_servers.0.name": "crm", "mcp_servers.0.url": "https://mcp.example/mcp"}),
    ):
        answer = client.post(f"{BASE}/new", data=sent | {"do": button})
        assert answer.status_code == 200
        sent = form_at(answer) | values
    sent |= {"http_tools.0.parameters.0.type": "integer", "http_tools.0.parameters.0.required": "1", "note": "First"}
    answer = client.post(f"{BASE}/new", data=sent | {"do": "save"})
    assert answer.status_code == 303
    held = stored(app, workspace)
    assert held["skills"] == [{"name": "Comparing", "text": "One period."}]
    tool = held["http_tools"][0]
    assert (tool["name"], tool["method"], tool["writes"]) == ("lookUp", "POST", False)
    assert tool["parameters"] == {
        "type": "object",
        "properties": {"id": {"type": "integer"}},
        "required": ["id"],
        "additionalProperties": False,
    }
    assert tool["headers_env"] == {"X-Key": "UPSHOT_TOOL_CRM"}
    assert held["mcp_servers"] == [{"name": "crm", "url": "https://mcp.example/mcp", "headers_env": {}}]
    page = soup(client.get(answer.location))
    assert "First" in page.select_one(".u-history").text
    again = form_at(client.get(f"{answer.location}/edit"))
    assert client.post(f"{answer.location}/edit", data=again).status_code == 303
    assert stored(app, workspace) == held
    assert "Nothing changed" in soup(client.get(answer.location)).select_one("#toasts").text


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"slug": "Not A Slug"}, "f-slug"),
        ({"name": ""}, "f-name"),
        ({"kind": "endpoint", "endpoint_url": "http://127.0.0.1/"}, "f-endpoint_url"),
        ({"limits.seconds": "soon"}, "f-limits-seconds"),
        ({"skills.0.name": "", "skills.0.text": "x"}, "f-skills-0-name"),
        ({"http_tools.0.name": "x", "http_tools.0.url": "http://10.0.0.1/"}, "f-http_tools-0-url"),
        ({"http_tools.0.name": "getEntity", "http_tools.0.url": "https://a.example/"}, "f-http_tools-0-name"),
        (
            {
                "http_tools.0.name": "x",
                "http_tools.0.url": "https://a.example/",
                "http_tools.0.parameters.0.type": "number",
                "http_tools.0.parameters.0.name": "",
                "http_tools.0.parameters.0.description": "Which",
            },
            "f-http_tools-0-parameters-0-name",
        ),
        (
            {
                "mcp_servers.0.name": "x",
                "mcp_servers.0.url": "https://m.example/",
                "mcp_servers.0.headers.0.header": "Authorization",
                "mcp_servers.0.headers.0.variable": "Bearer s3cret",
            },
            "f-mcp_servers-0-headers-0-variable",
        ),
        (
            {
                "kind": "endpoint",
                "endpoint_url": "https://agents.example.com/run",
                "endpoint_headers.0.header": "Authorization",
                "endpoint_headers.0.variable": "OPENAI_API_KEY",
            },
            "f-endpoint_headers-0-variable",
        ),
    ],
)
def test_bad_input_is_reported_in_place_and_kept(
    workspace: Workspace, sign_in: SignIn, given: dict[str, str], place: str
) -> None:
    client: Any = sign_in(workspace.actor())
    sent = form_at(client.get(f"{BASE}/new")) | {"name": "Triage", "slug": "triage", "instructions": "Kept."} | given
    answer = client.post(f"{BASE}/new", data=sent)
    assert answer.status_code == 422
    page = soup(answer)
    field = page.select_one(f"#{place}")
    assert field["aria-invalid"] == "true"
    assert page.select_one(f"#{field['aria-describedby'].split()[0]}").text.strip()
    kept = form_at(answer)
    for name, value in ({"instructions": "Kept."} | given).items():
        assert kept[name] == value
    assert [row.text for row in soup(client.get(BASE)).select("tbody .u-main a")] == ["feedback-review-agent"]


def test_an_agent_behind_an_address_sends_headers(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    client: Any = sign_in(workspace.actor())
    sent = form_at(client.get(f"{BASE}/new?kind=endpoint")) | {
        "kind": "endpoint", "name": "Triage", "slug": "triage", "endpoint_url": "https://agents.example.com/run",
    }  # fmt: skip
    grown = form_at(client.post(f"{BASE}/new", data=sent | {"do": "add:endpoint_headers"}))
    assert grown["endpoint_headers.0.header"] == ""
    named = {"endpoint_headers.0.header": "Authorization", "endpoint_headers.0.variable": "UPSHOT_TOOL_RUN"}
    answer = client.post(f"{BASE}/new", data=grown | named | {"do": "save"})
    assert answer.status_code == 303, answer.text
    assert stored(app, workspace)["endpoint_headers_env"] == {"Authorization": "UPSHOT_TOOL_RUN"}
    kept = form_at(client.get(f"{answer.location}/edit"))
    assert kept["endpoint_headers.0.variable"] == "UPSHOT_TOOL_RUN"
    changed = kept | {"endpoint_headers.0.variable": "UPSHOT_TOOL_OTHER", "do": "save"}
    assert client.post(f"{answer.location}/edit", data=changed).status_code == 303
    assert stored(app, workspace)["endpoint_headers_env"] == {"Authorization": "UPSHOT_TOOL_OTHER"}


def test_a_model_without_its_key_is_saved_with_a_warning(
    workspace: Workspace, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    client: Any = sign_in(workspace.actor())
    where = make(client, model="openai:gpt-5")
    assert "needs OPENAI_API_KEY where Upshot runs" in soup(client.get(where)).select_one(".u-facts").text
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    page = client.get(where).get_data(as_text=True)
    assert "needs OPENAI_API_KEY" not in page
    assert "canary" not in page + client.get(f"{where}/edit").get_data(as_text=True)
    assert (
        "Not a language model"
        in soup(client.get(make(client, slug="two", model="offline"))).select_one(".u-facts").text
    )


def test_two_at_once_and_both_are_shown(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    client: Any = sign_in(workspace.actor())
    where = make(client)
    mine = form_at(client.get(f"{where}/edit")) | {"instructions": "Look twice.", "note": "Mine"}
    theirs = form_at(client.get(f"{where}/edit")) | {"instructions": "Look away.", "tool_groups": "context"}
    assert client.post(f"{where}/edit", data=theirs).status_code == 303
    answer = client.post(f"{where}/edit", data=mine)
    assert answer.status_code == 409
    page = soup(answer)
    shown = page.select_one(".u-theirs")
    assert "version 2" in shown.text
    assert "away." in shown.select_one("del").text
    assert "entities-read" in shown.text
    kept = form_at(answer)
    assert (kept["instructions"], kept["version"], kept["note"]) == ("Look twice.", "2", "Mine")
    assert stored(app, workspace)["instructions"] == "Look away."
    assert client.post(f"{where}/edit", data=kept).status_code == 303
    assert stored(app, workspace)["instructions"] == "Look twice."


def test_versions_are_compared_and_one_is_made_current(
    app: Flask, workspace: Workspace, sign_in: SignIn, count_queries: Callable[[], Any]
) -> None:
    client: Any = sign_in(workspace.actor())
    where = make(client)
    first = soup(client.get(f"{where}/versions"))
    assert "one version so far" in first.text
    changed = {
        "instructions": "Look twice.",
        "tool_groups": ["entities-read", "entities-write"],
        "limits.seconds": "60",
    }
    changed |= {"model": "", "note": "Twice is better"}
    edited = form_at(client.get(f"{where}/edit")) | changed
    assert client.post(f"{where}/edit", data=edited).status_code == 303
    with count_queries() as seen:
        page = soup(client.get(f"{where}/versions?from=1&to=2"))
    assert len(seen) <= 8
    told = {
        name.get_text(strip=True): value.get_text(" ", strip=True)
        for name, value in zip(page.select(".u-changes dt"), page.select(".u-changes dd"), strict=True)
    }
    assert told["Instructions"] == "Look first. twice."
    assert told["Model"] == "offline → the server’s default"
    assert told["Tool groups"] == "removed context added entities-write"
    assert told["Seconds"] == "120 → 60"
    assert "Twice is better" in page.text
    button = page.select_one("button[name=restore]")
    assert button["value"] == "1"
    sent = {"csrf_token": client.csrf, "restore": "1", "version": "1"}
    stale = client.post(f"{where}/versions", data=sent)
    assert stale.status_code == 409
    assert client.post(f"{where}/versions", data=sent | {"version": "2"}).status_code == 303
    assert stored(app, workspace)["instructions"] == "Look first."
    assert "Restored version 1" in soup(client.get(where)).select_one(".u-history").text
    for wrong in ("?from=9", "?to=9", "?from=1&to=77"):
        assert client.get(f"{where}/versions{wrong}").status_code == 404


def test_the_workspaces_own_agent_shows_only_what_may_change(app: Flask, workspace: Workspace, sign_in: SignIn) -> None:
    client: Any = sign_in(workspace.actor())
    row = soup(client.get(BASE)).select_one("tbody .u-main a")
    sent = form_at(client.get(f"{row['href']}/edit"))
    assert {name.partition(".")[0] for name in sent} == {
        "csrf_token", "version", "instructions", "model", "limits", "note",
    }  # fmt: skip
    assert "one group of feedback at a" in sent["instructions"]
    assert client.post(f"{row['href']}/edit", data=sent | {"model": "offline", "slug": "mine"}).status_code == 303
    held = stored(app, workspace, "feedback-review-agent")
    assert held["model"] == "offline"
    assert "feedback-review" in held["tool_groups"]
    assert not soup(client.get(f"{row['href']}/versions")).select("button[name=restore]")


def test_members_are_kept_out(workspace: Workspace, sign_in: SignIn) -> None:
    client: Any = sign_in(workspace.actor("member"))
    assert client.get(f"{BASE}/new").status_code == 403
    assert client.post(f"{BASE}/new", data={"csrf_token": client.csrf}).status_code == 403
