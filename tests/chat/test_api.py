"""`/api/v1/chats`: begun once, filled in order, read in pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from app.formats import session_limits as limits
from tests.conftest import Api, Workspace

PATH = "/api/v1/chats"
ASKED = {"role": "user", "content": "What did we pay for Kestrel?"}
TOLD = {"role": "agent", "content": "18.4 m."}


@pytest.fixture
def ingest(workspace: Workspace, api: Callable[..., Api]) -> Api:
    return api(workspace.actor("member"), "ingest")


def make(key: Api, **more: Any) -> Any:
    answer = key.post(PATH, {"agent": "deal-analyst", **more})
    assert answer.status_code == 201, answer.text
    return answer.json


def test_a_chat_is_stored_once(ingest: Api) -> None:
    made = make(ingest, external_id="thread-1", project="deals", messages=[ASKED, TOLD])
    assert (made["title"], made["project"], made["message_count"], made["agent"]) == (
        "What did we pay for Kestrel?", "deals", 2, "deal-analyst",
    )  # fmt: skip
    again = ingest.post(PATH, {"agent": "other", "external_id": "thread-1", "messages": [ASKED]})
    assert (again.status_code, again.json) == (200, made)
    assert ingest.get(f"{PATH}/{made['id']}").json == made
    assert make(ingest)["title"] == "Untitled"
    assert [item["id"] for item in ingest.get(f"{PATH}?project=deals").json["items"]] == [made["id"]]
    assert [item["id"] for item in ingest.get(f"{PATH}?external_id=thread-1").json["items"]] == [made["id"]]


def test_messages_are_numbered_and_grouped_in_turns(ingest: Api) -> None:
    url = f"{PATH}/{make(ingest)['id']}/messages"
    first = ingest.post(url, {"messages": [ASKED, TOLD]})
    second = ingest.post(url, {"messages": [{**ASKED, "external_id": "m-3", "content": "Card 4242 4242 4242 4242"}]})
    assert (first.status_code, second.status_code) == (201, 201)
    turns = [item["turn_id"] for item in first.json["items"] + second.json["items"]]
    assert turns[0] == turns[1] != turns[2]
    page = ingest.get(f"{url}?limit=2").json
    rest = ingest.get(f"{url}?limit=2&cursor={page['next_cursor']}").json
    found = page["items"] + rest["items"]
    assert [item["message_index"] for item in found] == [0, 1, 2]
    assert (found[2]["content"], found[2]["external_id"], rest["next_cursor"]) == ("Card [masked:card]", "m-3", None)
    assert ingest.get(f"{url}?cursor=abc").status_code == 400


def test_a_key_sees_what_its_person_sees(
    workspace: Workspace, ingest: Api, sign_in: Callable[..., Any], api: Callable[..., Api],
    make_workspace: Callable[..., Workspace],
) -> None:  # fmt: skip
    made = make(ingest, external_id="own-1")
    url = f"{PATH}/{made['id']}"
    colleague = api(workspace.actor("other"), "ingest")
    assert [colleague.get(path).status_code for path in (url, f"{url}/messages")] == [404, 404]
    assert colleague.post(f"{url}/messages", {"messages": [ASKED]}).status_code == 404
    assert colleague.get(f"{PATH}?external_id=own-1").json["items"] == []
    namesake = colleague.post(PATH, {"agent": "deal-analyst", "external_id": "own-1", "title": "Theirs"})
    assert (namesake.status_code, namesake.json["title"]) == (201, "Theirs")
    assert colleague.post(PATH, {"agent": "deal-analyst", "external_id": "own-1"}).json["id"] == namesake.json["id"]
    assert api(workspace.actor("admin"), "ingest").get(url).status_code == 404
    whole = api(workspace.actor("admin"), "admin")
    assert (whole.get(url).status_code, len(whole.get(PATH).json["items"])) == (200, 2)
    assert sign_in(workspace.actor("member")).get(url).status_code == 200
    other = sign_in(workspace.actor("other"))
    assert [other.get(path).status_code for path in (url, f"{url}/messages")] == [404, 404]
    sent = other.post(f"{url}/messages", json={"messages": [ASKED]}, headers={"X-CSRFToken": other.csrf})
    assert sent.status_code == 404
    assert [chat["title"] for chat in other.get(PATH).json["items"]] == ["Theirs"]
    assert len(sign_in(workspace.actor("admin")).get(PATH).json["items"]) == 2
    stranger = api(make_workspace().actor("owner"), "admin")
    for unknown in (made["id"], uuid4()):
        assert stranger.get(f"{PATH}/{unknown}").status_code == 404
        assert stranger.post(f"{PATH}/{unknown}/messages", {"messages": [ASKED]}).status_code == 404


def test_limits_and_bad_input(ingest: Api) -> None:
    chat = make(ingest)
    url = f"{PATH}/{chat['id']}/messages"
    for step, status in ((-1, 201), (0, 201), (1, 400)):
        for name, most in (("title", limits.TITLE), ("external_id", limits.NAME), ("project", limits.NAME)):
            answer = ingest.post(PATH, {"agent": "a", name: f"{step + 1}" * (most + step)})
            assert answer.status_code == status, (name, step)
        many = {"messages": [ASKED] * (limits.MESSAGES_AT_ONCE + step)}
        assert ingest.post(url, many).status_code == status
        long = {"messages": [{"role": "user", "content": "x" * (limits.MESSAGE + step)}]}
        assert ingest.post(url, long).status_code == status
    before = ingest.get(f"{PATH}/{chat['id']}").json["message_count"]
    for wrong in (
        {},
        {"messages": []},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"messages": [{"role": "user"}]},
        {"messages": [{**ASKED, "session_id": str(uuid4())}]},
        {"messages": [{**ASKED, "message_index": 4}]},
        {"messages": [{**ASKED, "content": "\x00"}]},
        {"messages": [ASKED, {**ASKED, "created_at": "2999-01-01T00:00:00Z"}]},
    ):
        assert ingest.post(url, wrong).status_code == 400, wrong
    assert ingest.get(f"{PATH}/{chat['id']}").json["message_count"] == before
