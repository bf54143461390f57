"""Webhooks: queued with the change, signed, sent to addresses that may be reached, tried again, and told to admins."""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from flask import Flask
from sqlalchemy import delete, select

from app.db import acting_as, db, transaction
from app.jobs.webhooks import deliver_due
from app.models import Feedback, WebhookDelivery
from app.services.evals.charts.dropped import list_dropped_sets, list_drops
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.proposals import propose_row
from app.services.knowledge.rows import NewRow
from app.services.review import drafts
from app.services.webhooks import delivery
from app.services.webhooks.delivery import Outcome
from app.services.webhooks.payload import slack_message
from app.services.workspaces import identity
from tests.agents.test_replays import Bench, bench
from tests.conftest import Api, Workspace, soup
from tests.evals.test_charts import UPDATE, WON
from tests.loopback import Asked, Loopback, Reply

__all__ = ["bench"]
HOOKS = "/api/admin/webhooks"
ALL = ["feedback.submitted", "proposal.created", "knowledge.activated", "eval.regressed"]
HIDDEN = "T0CANARY9731"


class Receiver:
    """A server that gets webhooks and answers with `statuses`, one after the other, then 200."""

    def __init__(self, server: Loopback, statuses: list[int]) -> None:
        self.server, self.statuses = server, statuses

    @property
    def url(self) -> str:
        return f"{self.server.url}/services/{HIDDEN}"

    def events(self) -> list[dict[str, Any]]:
        return [one.json for one in self.server.asked]


@pytest.fixture
def receiver(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    statuses: list[int] = []

    def answer(asked: Asked) -> Reply:
        return Reply(b"{}", statuses.pop(0) if statuses else 200)

    with Loopback(answer) as server:
        allowed = replace(app.config["SETTINGS"], outbound_allow=server.host)
        monkeypatch.setitem(app.config, "SETTINGS", allowed)
        yield Receiver(server, statuses)


@pytest.fixture
def admin(workspace: Workspace, api: Callable[..., Api]) -> Api:
    return api(workspace.actor("admin"), "admin")


def add(admin: Api, url: str, *events: str, **more: Any) -> dict[str, Any]:
    made = admin.post(HOOKS, {"url": url, **({"events": list(events)} if events else {}), **more})
    assert made.status_code == 201, made.text
    found: dict[str, Any] = made.json
    return found


def complain(workspace: Workspace, api: Callable[..., Api], who: str = "member") -> str:
    body = {"message_id": uuid4().hex, "signal": "inaccurate", "reason": "Sam said the EBITDA is wrong"}
    sent = api(workspace.actor(who), "feedback").post("/api/v1/feedback", {**body, "trace_id": uuid4().hex})
    assert sent.status_code == 201, sent.text
    return str(sent.json["id"])


def deliver(app: Flask) -> int:
    with app.app_context():
        return deliver_due()


def deliveries(app: Flask, workspace: Workspace) -> list[Any]:
    columns = WebhookDelivery.__table__.c
    with app.app_context(), acting_as(workspace.actor("admin")):
        return list(db.session.execute(select(*columns).order_by(columns.created_at)).all())


def make_due(superuser_url: str, workspace: Workspace) -> None:
    with psycopg.connect(superuser_url, autocommit=True) as connection:
        connection.execute(
            "UPDATE webhook_deliveries SET next_at = now() WHERE tenant_id = %s", (workspace.actor("admin").tenant_id,)
        )


def test_feedback_is_told_signed_and_without_words_or_names(
    app: Flask, workspace: Workspace, api: Callable[..., Api], admin: Api, receiver: Receiver, sign_in: Any
) -> None:
    made = add(admin, receiver.url, "feedback.submitted")
    feedback_id = complain(workspace, api)
    assert deliver(app) == 1
    assert deliver(app) == 0
    [sent] = receiver.server.asked
    assert (sent.method, sent.path) == ("POST", f"/services/{HIDDEN}")
    body = sent.json
    assert (body["event"], body["workspace"], body["data"]["id"]) == ("feedback.submitted", workspace.slug, feedback_id)
    assert body["data"]["rating"] == "negative"
    for hidden in ("EBITDA", "Sam", workspace.actor("member").name):
        assert hidden not in sent.body.decode()
    at, _, mark = sent.headers["x-upshot-signature"].partition(",")
    wanted = hmac.new(made["secret"].encode(), f"{at.removeprefix('t=')}.".encode() + sent.body, sha256).hexdigest()
    assert mark == f"v1={wanted}"
    path = body["url"].removeprefix(app.config["SETTINGS"].url)
    assert sign_in(workspace.actor("admin")).get(path).status_code == 200


def test_a_changed_or_repeated_thumb_is_no_new_event(
    app: Flask, workspace: Workspace, api: Callable[..., Api], admin: Api, receiver: Receiver
) -> None:
    add(admin, receiver.url, "feedback.submitted")
    key, body = api(workspace.actor("member"), "feedback"), {"trace_id": uuid4().hex, "signal": "inaccurate"}
    assert [key.post("/api/v1/feedback", body).status_code for _ in range(2)] == [201, 200]
    assert len(deliveries(app, workspace)) == 1


def test_proposals_and_active_rules_are_told(app: Flask, workspace: Workspace, admin: Api, receiver: Receiver) -> None:
    add(admin, receiver.url)
    actor = workspace.actor("admin")
    with app.app_context(), acting_as(actor), transaction():
        proposed = propose_row(NewRow(type="lesson", content="Quote Sam's EBITDA figure."), actor=actor).id
    deliver(app)
    with app.app_context(), acting_as(actor), transaction():
        knowledge_rows.set_state(proposed, "active", actor=actor)
    deliver(app)
    with app.app_context(), acting_as(actor), transaction():
        knowledge_rows.edit_row(proposed, {"context": "on Mondays"}, None, actor=actor)
    assert deliver(app) == 0, "an edit activates nothing"
    first, second = receiver.events()
    assert (first["event"], second["event"]) == ("proposal.created", "knowledge.activated")
    assert first["data"]["id"] == second["data"]["id"] == str(proposed)
    assert "content" not in first["data"]
    assert second["data"]["content"] == "Quote Sam's EBITDA figure."


def test_a_draft_is_a_proposal_too(app: Flask, bench: Bench, admin: Api, receiver: Receiver) -> None:
    add(admin, receiver.url, "proposal.created")
    add(admin, receiver.url, "proposal.created", format="slack")
    with bench.acting():
        reads = {"tool_groups": ["entities-read"]}
        made = drafts.draft_agent(bench.agent_id, reads, actor=bench.admin, reason="It wrote a record.").id
    assert deliver(app) == 2
    told, slack = sorted(receiver.events(), key=lambda event: "text" in event)
    assert told["url"].endswith(f"/admin/agent-review/drafts/{made}")
    assert told["data"] == {
        "id": str(made), "type": "draft", "state": "open", "agent": "assistant", "entity_type": None, "signals": 0,
    }  # fmt: skip
    assert slack["text"].startswith("A draft for assistant is waiting for approval, from 0 signals.")


def test_a_set_that_drops_is_told_once(app: Flask, bench: Bench, admin: Api, receiver: Receiver) -> None:
    add(admin, receiver.url, "eval.regressed", format="slack")
    bench.golden(WON)
    bench.golden(UPDATE)
    first = bench.run(set_name="default", triggered_by="scheduled")
    assert deliver(app) == 0
    bench.run(set_name="default")
    bench.worse()
    with bench.acting():
        knowledge_rows.add_row(NewRow(type="routing", content="Never use updateEntity."), actor=bench.admin)
    last = bench.run(set_name="default")
    assert last.passed_count < first.passed_count
    assert deliver(app) == 1
    [message] = receiver.events()
    assert message["text"].startswith("default dropped: ")
    assert str(last.id) in message["text"]
    with bench.acting():
        [alert] = list_dropped_sets(actor=bench.admin)
        [told] = list_drops(first.created_at, datetime.now(UTC), 10, actor=bench.admin)
    assert (alert.run_id, alert.before_run_id) == (told.run_id, told.before_run_id) == (last.id, first.id), "one rule"
    bench.run(set_name="default", triggered_by="scheduled")
    assert deliver(app) == 0, "it stays where it was"
    bench.run(set_name="default")
    assert deliver(app) == 0, "no worse than the last scheduled run"
    with bench.acting():
        assert list_dropped_sets(actor=bench.admin) == []


def test_what_fails_is_tried_again_and_then_given_up(
    app: Flask, workspace: Workspace, api: Callable[..., Api], admin: Api, receiver: Receiver, superuser_url: str
) -> None:
    made = add(admin, receiver.url, "feedback.submitted")
    receiver.statuses += [500, 302]
    complain(workspace, api)
    assert deliver(app) == 0
    assert deliver(app) == 0, "it waits for its time"
    [row] = deliveries(app, workspace)
    assert (row.status, row.attempt, row.error) == ("pending", 1, "It answered 500.")
    make_due(superuser_url, workspace)
    deliver(app)
    [row] = deliveries(app, workspace)
    assert "redirect" in str(row.error)
    make_due(superuser_url, workspace)
    assert deliver(app) == 1
    [row] = deliveries(app, workspace)
    assert (row.status, row.attempt, row.response_status, row.error) == ("delivered", 3, 200, None)
    assert len({one.headers["x-upshot-delivery"] for one in receiver.server.asked}) == 1

    receiver.statuses += [500] * 20
    complain(workspace, api)
    for _ in range(8):
        deliver(app)
        make_due(superuser_url, workspace)
    row = deliveries(app, workspace)[-1]
    assert (row.status, row.attempt) == ("failed", 7)
    [item] = admin.get(HOOKS).json["items"]
    assert (item["id"], item["last_status"], item["last_error"]) == (made["id"], "failed", "It answered 500.")


def test_two_processes_send_a_delivery_once(
    app: Flask, workspace: Workspace, api: Callable[..., Api], admin: Api, receiver: Receiver
) -> None:
    add(admin, receiver.url, "feedback.submitted")
    for _ in range(5):
        complain(workspace, api)
    threads = [threading.Thread(target=deliver, args=[app]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    names = [one.headers["x-upshot-delivery"] for one in receiver.server.asked]
    assert (len(names), len(set(names))) == (5, 5)


def test_a_delivery_of_a_lost_process_is_taken_over(
    app: Flask, workspace: Workspace, api: Callable[..., Api], admin: Api, receiver: Receiver, superuser_url: str
) -> None:
    add(admin, receiver.url, "feedback.submitted")
    complain(workspace, api)
    product = identity.product_in(workspace.actor("admin").tenant_id)
    with app.app_context(), acting_as(product), transaction():
        [lost] = delivery.claim_due("https://u.test", actor=product, most=20)
    assert deliver(app) == 0, "it is leased"
    make_due(superuser_url, workspace)
    assert deliver(app) == 1
    with app.app_context(), acting_as(product), transaction():
        assert not delivery.finish(lost, Outcome(500, "It answered 500."), actor=product)
    [row] = deliveries(app, workspace)
    assert (row.status, row.attempt, row.response_status) == ("delivered", 2, 200)


def test_nothing_is_sent_of_a_change_that_was_rolled_back_or_deleted(
    app: Flask, workspace: Workspace, api: Callable[..., Api], admin: Api, receiver: Receiver
) -> None:
    add(admin, receiver.url)
    actor = workspace.actor("admin")
    with app.app_context(), acting_as(actor):
        knowledge_rows.add_row(NewRow(type="lesson", content="Never mind this one."), actor=actor)
        db.session.rollback()
    assert deliveries(app, workspace) == []
    key, body = api(workspace.actor("member"), "feedback"), {"trace_id": uuid4().hex, "signal": "inaccurate"}
    found = key.post("/api/v1/feedback", body).json["id"]
    with app.app_context(), acting_as(actor), transaction():
        db.session.execute(delete(Feedback).where(Feedback.id == UUID(found)))
    assert deliver(app) == 0
    [row] = deliveries(app, workspace)
    assert row.status == "dropped"


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/x", "http://169.254.169.254/latest", "http://[::1]/", "http://2130706433/", "ftp://a.test/",
     "https://user:pw@a.test/", "http://example.com:22/", "", "https://a.test/#x"],
)  # fmt: skip
def test_addresses_that_may_not_be_reached_are_refused(admin: Api, url: str) -> None:
    answer = admin.post(HOOKS, {"url": url, "events": ["feedback.submitted"]})
    assert answer.status_code == 400
    assert answer.json["errors"][0]["field"] == "url"
    assert admin.get(HOOKS).json["items"] == []


def test_a_host_that_is_no_longer_allowed_is_not_reached(
    app: Flask, workspace: Workspace, api: Callable[..., Api], admin: Api, receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    add(admin, receiver.url, "feedback.submitted")
    complain(workspace, api)
    monkeypatch.setitem(app.config, "SETTINGS", replace(app.config["SETTINGS"], outbound_allow=""))
    assert deliver(app) == 0
    assert receiver.server.connections == 0
    [row] = deliveries(app, workspace)
    assert "UPSHOT_OUTBOUND_ALLOW" in str(row.error)
    assert HIDDEN not in str(row.error)


def test_secrets_are_shown_once_and_never_written(
    app: Flask, workspace: Workspace, admin: Api, receiver: Receiver, sign_in: Callable[..., Any],
    superuser_url: str, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level("DEBUG", "upshot")
    made = add(admin, receiver.url, "feedback.submitted", format="slack")
    receiver.statuses += [500]
    assert admin.post(f"{HOOKS}/{made['id']}/test").status_code == 202
    deliver(app)
    assert receiver.events() == [
        {"text": f"This is a test event. <{app.config['SETTINGS'].url}/admin/settings/webhooks|Open in Upshot>"}
    ]
    client = sign_in(workspace.actor("admin"))
    seen = [admin.get(HOOKS).text, caplog.text, json.dumps(made | {"secret": ""})]
    seen += [client.get(f"/admin/settings/{page}").text for page in ("webhooks", "audit")]
    assert "It answered 500." in seen[3]
    for text in seen:
        assert HIDDEN not in text
        assert made["secret"] not in text
    with psycopg.connect(superuser_url) as connection:
        for table in ("webhooks", "webhook_deliveries", "audit_log"):
            stored = connection.execute(f"SELECT string_agg(t::text, ' ') FROM {table} AS t").fetchone()  # type: ignore[call-overload]
            assert made["secret"] not in str(stored)


def test_members_and_other_workspaces_see_and_change_none(
    app: Flask, workspace: Workspace, make_workspace: Callable[..., Workspace], api: Callable[..., Api],
    sign_in: Callable[..., Any], admin: Api, receiver: Receiver,
) -> None:  # fmt: skip
    made = add(admin, receiver.url)
    assert made["events"] == ALL
    complain(workspace, api)
    member, foreign = workspace.actor("member"), make_workspace().actor("admin")
    assert sign_in(member).get("/admin/settings/webhooks").status_code == 403
    other = api(foreign, "admin")
    assert other.get(HOOKS).json["items"] == []
    assert other.request("DELETE", f"{HOOKS}/{made['id']}").status_code == 404
    assert other.post(f"{HOOKS}/{made['id']}/test").status_code == 404
    with app.app_context():
        for actor in (member, foreign):
            with acting_as(actor):
                assert db.session.scalars(select(WebhookDelivery)).all() == []
    assert admin.request("DELETE", f"{HOOKS}/{made['id']}").status_code == 204
    assert deliver(app) == 0


def test_webhooks_are_kept_on_their_page(workspace: Workspace, sign_in: Callable[..., Any], receiver: Receiver) -> None:
    client = sign_in(workspace.actor("admin"))
    page = "/admin/settings/webhooks"
    refused = client.post(page, data={"csrf_token": client.csrf, "url": "http://10.0.0.1/", "format": "json"})
    assert refused.status_code == 422
    assert [one["id"] for one in soup(refused).select(".invalid-feedback")] == ["f-url-error", "events-error"]
    form = {"csrf_token": client.csrf, "url": receiver.url, "format": "slack", "events": ["eval.regressed"]}
    made = soup(client.post(page, data=form))
    assert made.select_one("#secret").text.startswith("whsec_")
    shown = soup(client.get(page))
    assert shown.select_one("#secret") is None
    row = shown.select_one("tr[id^=webhook-]")
    assert f"{receiver.server.url}/…" in row.text
    hook = row["id"].removeprefix("webhook-")
    assert client.post(f"{page}/{hook}/test", data={"csrf_token": client.csrf}).status_code == 303
    assert "Test event" in soup(client.get(page)).select_one("tr[id^=delivery-]").text
    assert client.post(f"{page}/{hook}/delete", data={"csrf_token": client.csrf}).status_code == 303
    assert soup(client.get(page)).select("tr[id^=webhook-]") == []


def test_slack_reads_no_mentions_in_a_rule() -> None:
    data = {"type": "lesson", "agent": None, "content": "Tell <!channel> & <https://a.test|all>"}
    text = slack_message({"event": "knowledge.activated", "url": "https://u.test/x", "data": data})["text"]
    assert "&lt;!channel&gt; &amp; &lt;https://a.test|all&gt;" in text
