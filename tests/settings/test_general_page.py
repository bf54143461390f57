"""Settings, General and Audit trail."""

from __future__ import annotations

from app.db import acting_as, transaction
from app.formats.workspace_settings import NOT_YET
from app.services.feedback import intake as feedback_intake
from app.services.feedback import review as feedback_review
from app.services.feedback import teamwork
from app.services.workspaces import keys as workspace_keys
from app.services.workspaces import store as workspace_store
from tests.conftest import soup

URL = "/admin/settings"
FORM = {
    "name": "Acme",
    "timezone": "UTC",
    "context_top_n": "8",
    "knowledge_gate": "propose",
    "feedback_origins": "",
    "judge_model": "",
    "judge_concurrency": "16",
    "judge_seconds": "60",
    "judge_daily_tokens": "5000000",
}


def test_settings_are_saved_together(app, workspace, sign_in):
    client, admin = sign_in(workspace.actor("admin")), workspace.actor("admin")
    changed = {
        "name": "Acme Capital",
        "author_private": "1",
        "context_top_n": "12",
        "knowledge_gate": "proved",
        "judge_model": " openai:gpt-5 ",
        "judge_daily_tokens": "0",
        "feedback_origins": "https://a.example\r\n https://b.example:8443 ",
    }

    answer = client.post(URL, data={**FORM, **changed, "csrf_token": client.csrf})

    assert answer.status_code == 303
    page = soup(client.get(URL))
    assert page.select_one("input[name=name]")["value"] == "Acme Capital"
    assert page.select_one("input[name=author_private]").has_attr("checked")
    assert page.select_one("input[name=context_top_n]")["value"] == "12"
    with app.app_context(), acting_as(admin):
        saved = workspace_store.get_settings(admin)
    assert saved.feedback_origins == ["https://a.example", "https://b.example:8443"]
    assert (saved.review_enabled, saved.author_private, saved.knowledge_gate) == (False, True, "proved")
    assert (saved.judge_model, saved.judge_daily_tokens, saved.judge_concurrency) == ("openai:gpt-5", 0, 16)


def test_settings_without_effect_are_not_offered_and_survive_a_save(app, workspace, sign_in):
    client, admin = sign_in(workspace.actor("admin")), workspace.actor("admin")
    kept = {"review_enabled": True, "review_cron": "15 7 * * *", "retention_days": 90, "training_consent": True}
    with app.app_context(), acting_as(admin), transaction():
        workspace_store.change_settings(kept, actor=admin)

    names = {field["name"] for field in soup(client.get(URL)).select("main [name]")} - {"csrf_token"}
    assert names == {*FORM, "author_private", "machine_feedback"}
    assert set(NOT_YET) == {"retention_days", "training_consent"}
    other = {"review_enabled": "0", "retention_days": "1"}
    assert client.post(URL, data={**FORM, **other, "csrf_token": client.csrf}).status_code == 303
    with app.app_context(), acting_as(admin):
        saved = workspace_store.get_settings(admin).model_dump()
    assert {name: saved[name] for name in kept} == kept


def test_what_does_not_fit_changes_nothing_and_stays_in_the_form(app, workspace, sign_in):
    client, admin = sign_in(workspace.actor("admin")), workspace.actor("admin")
    wrong = {
        "name": " ",
        "timezone": "Mars",
        "context_top_n": "many",
        "feedback_origins": "evil.test/path",
        "author_private": "1",
    }

    answer = client.post(URL, data={**FORM, **wrong, "csrf_token": client.csrf})

    page = soup(answer)
    assert answer.status_code == 422
    assert {field["name"] for field in page.select("[aria-invalid]")} == set(wrong) - {"author_private"}
    assert [field["name"] for field in page.select("[autofocus]")] == ["name"]
    assert page.select_one("input[name=context_top_n]")["value"] == "many"
    assert page.select_one("input[name=author_private]").has_attr("checked")
    with app.app_context(), acting_as(admin):
        assert workspace_store.get_settings(admin) == workspace_store.WorkspaceSettings()
        assert workspace_store.get_workspace(actor=admin).name == "Acme"


def test_the_audit_trail_reads_who_did_what_and_has_pages(app, workspace, sign_in):
    client, admin = sign_in(workspace.actor("admin")), workspace.actor("admin")
    client.post(URL, data={**FORM, "name": "New <b>name</b>", "context_top_n": "9", "csrf_token": client.csrf})
    with app.app_context(), acting_as(admin):
        for number in range(60):
            workspace_store.rename_workspace(f"Name {number}", actor=admin)
        workspace_store.db.session.commit()

    page = client.get(f"{URL}/audit")
    older = soup(page).select_one("a[rel=next]")["href"]
    second = client.get(older)

    assert "Name 58 → Name 59" in soup(page).table.text
    assert "changed the settings" in second.text
    assert "context top n: 8 → 9" in soup(second).table.text
    assert "<b>name</b>" not in second.text
    assert soup(second).select_one("a[rel=prev]")
    assert client.get(f"{URL}/audit?after=garbage").status_code == 400


def test_the_audit_trail_names_people_and_keys(app, workspace, sign_in):
    admin, owner, member = (workspace.actor(role) for role in ("admin", "owner", "member"))
    with app.app_context():
        with acting_as(member), transaction():
            said = feedback_intake.record_feedback(
                feedback_intake.NewFeedback(kind="signal", signal="helpful", message_id="a-1"), actor=member
            )
        with acting_as(admin), transaction():
            system = workspace.actor("system")
            workspace_keys.create_key(name="Their site", scopes=["feedback"], actor=system, user_id=member.id)
            teamwork.assign([said.id], owner.id, actor=admin)
            teamwork.assign([said.id], None, actor=admin)
            teamwork.assess_feedback(said.id, {"quality_scores": {"accuracy": 80}}, actor=admin)
            feedback_review.review([said.id], "reviewed", actor=admin)

    rows = soup(sign_in(admin).get(f"{URL}/audit")).select("tbody tr")
    lines = {row.select("td")[1]["title"]: row.select("td")[2].text for row in rows}
    assert lines["feedback.assigned"] == f"nobody → {owner.name}"
    assert lines["feedback.unassigned"] == f"{owner.name} → nobody"
    assert lines["feedback.assessed"] == "after: quality scores accuracy 80"
    assert lines["feedback.reviewed"] == "pending → reviewed"
    assert f"person: {member.name}" in lines["key.created"]


def test_pages_of_settings_are_for_admins_and_cost_few_queries(app, workspace, sign_in, count_queries):
    member, admin = sign_in(workspace.actor("member")), sign_in(workspace.actor("admin"))
    for path in (URL, f"{URL}/audit", f"{URL}/members", f"{URL}/keys"):
        assert member.get(path).status_code == 403
        assert app.test_client().get(path).location.startswith("/sign-in?next=")
        with count_queries() as seen:
            assert admin.get(path).status_code == 200
        assert len(seen) <= 6, (path, seen)
    assert member.post(URL, data={**FORM, "csrf_token": member.csrf}).status_code == 403
