"""The demo workspace: whole, believable, made once, and new again on demand."""

from __future__ import annotations

import json
import re
import secrets
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner
from flask import Flask
from sqlalchemy import func, select

from app.actor import Actor
from app.agents.offline.wording import spell_name
from app.cli import command
from app.db import act_as, db, transaction
from app.db.paging import Page
from app.demo.record import record_live
from app.demo.seed import reset, seed
from app.demo.world import (
    World,
    fill_dates,
    load_data,
    load_talks,
    read_runs,
    read_talks,
    resolve_time,
    sort_key,
    to_ids,
    to_line,
    to_names,
)
from app.errors import Unusable
from app.models import (
    AgentSession,
    AgentVersion,
    Chat,
    Entity,
    EntityResponse,
    Feedback,
    FeedbackComment,
    Membership,
    Message,
    SessionEvent,
    SharedContext,
    SharedContextFeedback,
    SharedContextUsage,
    User,
)
from app.models.feedback import KINDS, ORIGINS, SIGNALS, SOURCES, STATUSES
from app.models.knowledge import KNOWLEDGE_STATES, KNOWLEDGE_TYPES
from app.models.sessions import SESSION_TYPES
from app.services.evals import compare as eval_compare
from app.services.feedback import lists as feedback_lists
from app.services.feedback.lists import FeedbackFilters
from app.services.knowledge import hygiene
from app.services.workspaces import store as workspace_store
from app.text.words import IDENTIFIER, QUOTED, lines_and_sentences
from app.tools import TOOLS

# One worker, so that the demo is made once.
pytestmark = pytest.mark.xdist_group("demo")


def values(column: Any) -> set[Any]:
    return set(db.session.scalars(select(column).distinct()))


def test_a_second_seed_says_it_is_there(demo_app: Flask) -> None:
    made = demo_app.config["MADE"]
    assert made["created"] is True
    with demo_app.app_context():
        again = seed()
    assert again == made | {"created": False}
    assert again["people"] == 9
    assert again["sessions"] >= 150
    assert again["feedback"] >= 200


def test_people_have_no_password_and_the_roles_they_are_promised(demo: Any) -> None:
    rows = db.session.execute(
        select(User.email, Membership.role, User.password_hash)
        .join(Membership, Membership.user_id == User.id)
        .where(Membership.role != "system")
    ).all()
    roles = {email: role for email, role, _ in rows}
    assert roles["admin@demo.test"] == "admin"
    assert roles["owner@demo.test"] == "owner"
    assert roles["member@demo.test"] == "member"
    assert all(password is None for _, _, password in rows)


def test_feedback_comes_in_every_form(demo: Any) -> None:
    assert values(Feedback.source_type) == set(SOURCES)
    assert values(Feedback.status) == set(STATUSES)
    assert values(Feedback.origin) == set(ORIGINS)
    assert values(Feedback.rating) == {"positive", "negative", "neutral"}
    assert values(Feedback.signal) == {None, *SIGNALS}
    assert values(Feedback.kind) == set(KINDS)
    by_status = Counter(db.session.scalars(select(Feedback.status)))
    assert min(by_status.values()) >= 20
    assert 30 <= by_status["pending"] <= 90
    page = feedback_lists.list_feedback(FeedbackFilters(), Page(25), actor=demo)
    assert page.next_cursor is not None
    assert page.count >= 30


def test_every_decision_has_its_reason(demo: Any) -> None:
    rows = db.session.scalars(select(Feedback)).all()
    for row in rows:
        assert row.status != "applied" or row.outcome["kind"] in ("knowledge", "retry", "manual"), row.comment
        assert row.status != "dismissed" or row.review_notes
    edits = [row for row in rows if row.signal == "edit"]
    assert len(edits) >= 2
    assert all(0 < row.details["output_review"]["edit_distance"] < 100 for row in edits)
    failed = select(func.count()).select_from(AgentSession).where(AgentSession.status == "failed")
    assert db.session.scalar(failed) == sum(row.kind == "session_failure" for row in rows) > 0
    assert sum(row.assignee_id is not None for row in rows) >= 5
    assert (db.session.scalar(select(func.count()).select_from(FeedbackComment)) or 0) >= 5


def test_knowledge_has_every_type_state_and_scope(demo: Any) -> None:
    assert values(SharedContext.type) == set(KNOWLEDGE_TYPES)
    assert values(SharedContext.state) == set(KNOWLEDGE_STATES)
    rows = db.session.execute(select(SharedContext.agent_id, SharedContext.entity_type_id).where(SharedContext.active))
    scopes = {(agent is not None, entity_type is not None) for agent, entity_type in rows}
    assert scopes == {(True, True), (True, False), (False, True), (False, False)}
    linked = db.session.scalar(select(func.count(SharedContextFeedback.shared_context_id.distinct()))) or 0
    assert linked >= 13
    applied = select(Feedback.id).where(Feedback.outcome["kind"].astext == "knowledge")
    behind = set(db.session.scalars(select(SharedContextFeedback.feedback_id)))
    assert set(db.session.scalars(applied)) <= behind
    used = db.session.scalar(select(func.sum(SharedContextUsage.injected))) or 0
    assert used > 100


def test_the_checks_find_little_in_good_knowledge(demo: Any) -> None:
    """At most one finding per twenty rows, or nobody would read them."""
    report = hygiene.check_all(actor=demo)
    said = [f"{kept.content}: {finding.check}, {finding.reason}" for kept, found in report.found for finding in found]
    assert report.looked_at >= 20
    assert len(said) <= report.looked_at / 20, said


def test_rules_that_claim_to_change_answers_are_followed(demo: Any) -> None:
    """What offline applied, it applied to sessions after the row was written, and each such row was applied."""
    written = {str(row.id): row.created_at for row in db.session.scalars(select(SharedContext))}
    said = db.session.execute(
        select(SessionEvent.payload, SessionEvent.occurred_at).where(SessionEvent.event_type == "agent.message")
    )
    applied: Counter[str] = Counter()
    for payload, at in said:
        for row_id in payload.get("applied_rules", ()):
            assert written[row_id] < at
            applied[row_id] += 1
    assert len(applied) >= 8
    lines = [row.content for row in db.session.scalars(select(SharedContext)) if applied[str(row.id)] >= 3]
    assert any("entityType=ltm" in content for content in lines)


def test_sessions_come_in_every_type_and_every_end(demo: Any) -> None:
    assert values(AgentSession.session_type) == set(SESSION_TYPES)
    assert values(AgentSession.status) == {"completed", "failed", "cancelled"}, "nothing pretends to be running"
    rows = db.session.execute(
        select(AgentSession.model, AgentSession.duration_ms, AgentSession.cost, AgentSession.input_tokens)
    ).all()
    assert all(row[0] == "offline" and row[1] > 0 and row[2:] == (0, 0) for row in rows)
    versions = Counter(db.session.scalars(select(AgentSession.agent_version_id)))
    assert len(versions) == db.session.scalar(select(func.count()).select_from(AgentVersion)) - 1, (
        "every version but the review agent's was at work"
    )


def test_each_persona_has_sessions_that_make_good_goldens(demo: Any) -> None:
    """Completed, not complained about: chat, response, extraction, tool and several turns, at least six in all."""
    blamed = select(Feedback.session_id).where(Feedback.rating == "negative", Feedback.session_id.is_not(None))
    rows = db.session.scalars(
        select(AgentSession).where(AgentSession.status == "completed", AgentSession.id.not_in(blamed))
    ).all()
    turns: Counter[Any] = Counter(
        db.session.scalars(select(SessionEvent.session_id).where(SessionEvent.event_type == "user.message"))
    )
    for persona in ("pe-analyst", "sales-ops", "first-time-admin"):
        mine = [row for row in rows if persona in row.tags]
        assert len(mine) >= 6
        assert {row.session_type for row in mine} >= {"chat", "response", "tool"}, persona
        assert any(row.output_type for row in mine), persona
        assert any(turns[row.id] > 1 for row in mine), persona


def test_calls_and_results_belong_together(demo: Any) -> None:
    loaded = 0
    for session_id in db.session.scalars(select(AgentSession.id)):
        events = db.session.execute(
            select(SessionEvent.event_type, SessionEvent.payload)
            .where(SessionEvent.session_id == session_id)
            .order_by(SessionEvent.occurred_at, SessionEvent.sequence)
        ).all()
        called: dict[str, str] = {}
        for event_type, payload in events:
            if event_type == "tool.call":
                called[payload["id"]] = payload["name"]
            if event_type == "tool.result":
                assert called.pop(payload["call_id"]) == payload["name"]
            if event_type == "context.loaded":
                loaded += 1
                assert len(payload["row_ids"]) == len(payload["versions"])
                assert len(payload["sha256"]) == 64
        assert {event_type for event_type, _ in events[:2]} == {"context.loaded", "user.message"}
    assert loaded == db.session.scalar(select(func.count()).select_from(AgentSession))


def test_what_sessions_had_in_their_prompts_is_what_was_recorded(demo: Any) -> None:
    """The order of rows in a prompt is worked out anew when the demo is seeded; it comes out as in the recording."""
    # A proposal to retire a row says what that row says.
    rows = db.session.scalars(select(SharedContext).where(~SharedContext.meta.has_key("retires")))
    by_content = {row.content: str(row.id) for row in rows}
    names = {f"ref:row.{entry['key']}": by_content.get(entry["content"]) for entry in load_data("knowledge")}
    for key, recorded in read_talks().items():
        events = db.session.execute(
            select(SessionEvent.payload)
            .join(AgentSession, AgentSession.id == SessionEvent.session_id)
            .where(AgentSession.external_id == f"demo:{key}", SessionEvent.event_type == "context.loaded")
        ).scalars()
        wanted = [payload for kind, payload in recorded["events"] if kind == "context.loaded"]
        for found, kept in zip(events, wanted, strict=True):
            known = [names.get(name) or row_id for name, row_id in zip(kept["row_ids"], found["row_ids"], strict=True)]
            assert found["row_ids"] == known, key
            assert found["versions"] == kept["versions"]


def test_records_agree_with_what_was_done_to_them(demo: Any) -> None:
    fields: dict[str, Any] = dict(list(db.session.execute(select(Entity.name, Entity.fields))))
    assert fields["Halden Logistics"]["valuation"] == 14.5
    assert fields["Halden Health"]["valuation"] == 9.1
    assert fields["Sofie Brandt"] | {"role": "COO", "city": "Stockholm"} == fields["Sofie Brandt"]
    assert fields["Heron"]["lead"] == "Sam Okafor"
    changed = db.session.execute(
        select(SessionEvent.payload)
        .join(AgentSession, AgentSession.id == SessionEvent.session_id)
        .where(SessionEvent.event_type == "entity.updated", AgentSession.eval_source.is_(None))
        .order_by(SessionEvent.occurred_at)
    ).scalars()
    last: dict[tuple[str, str], Any] = {}
    for payload in changed:
        for name, change in payload["changes"].items():
            last[payload["entity_id"], name] = change["to"]
    now = {str(row.id): row.fields for row in db.session.scalars(select(Entity))}
    assert all(now[entity_id].get(name) == value for (entity_id, name), value in last.items())
    statuses = Counter(db.session.scalars(select(EntityResponse.status)))
    assert statuses["rejected"] >= 8
    assert statuses["accepted"] >= 8
    assert statuses["submitted"] >= 3


def test_figures_that_people_name_stand_in_the_records() -> None:
    """Multiples and EBITDA are the accounts' own; whoever is named is a person, a company or a deal of the demo."""
    data = load_data("entities")
    deals = {deal["name"]: deal for deal in data["deal"]}
    for kind, name in (("ltm", "trailing"), ("fiscal-year", "annual")):
        for row in data[kind]:
            deal = deals[row["name"].removesuffix(f" {name} accounts")]
            assert row["ev"] == deal["valuation"]
            assert row["multiple"] == round(row["ev"] / row["ebitda"], 1)
            assert row.get("currency", "EUR") == deal["currency"]
    companies = {row["name"] for row in data["company"]}
    assert {row["company"] for row in data["contact"]} <= companies
    contacts = {row["name"] for row in data["contact"]}
    assert {row["via"] for row in data["company"] if "via" in row} <= contacts


def test_everything_lies_in_the_last_weeks_and_on_working_days(demo: Any) -> None:
    now = datetime.now(UTC)
    moments = [
        AgentSession.created_at, Chat.last_message_at, Message.created_at, Feedback.created_at, Feedback.reviewed_at,
        SessionEvent.occurred_at,
    ]  # fmt: skip
    for column in moments:
        first, last = db.session.execute(select(func.min(column), func.max(column))).one()
        assert first > now - timedelta(days=63), column
        assert last <= now, column
    days = {row.date() for row in db.session.scalars(select(Feedback.created_at))}
    assert len(days) > 30
    begun = [row for row in db.session.scalars(select(AgentSession.created_at)) if row < now - timedelta(days=3)]
    assert all(row.weekday() < 5 and 8 <= row.hour < 18 for row in begun)


def test_people_and_agents_do_not_repeat_themselves(demo: Any) -> None:
    said = db.session.execute(
        select(SessionEvent.payload["text"].astext, SessionEvent.session_id, SessionEvent.event_type)
        .where(SessionEvent.event_type.in_(("user.message", "agent.message")))
        .order_by(SessionEvent.session_id, SessionEvent.occurred_at, SessionEvent.sequence)
    ).all()
    counted: Counter[str] = Counter()
    first: dict[Any, str] = {}
    for text, session_id, kind in said:
        counted.update(set(lines_and_sentences(text)))
        if kind == "user.message":
            first.setdefault(session_id, text)
    assert len(set(first.values())) >= 150
    often = {sentence: times for sentence, times in counted.items() if times > 0.03 * len(said)}
    assert often == {}
    told = ("session_failure", "replay_failure")
    people = select(Feedback.comment).where(Feedback.comment.is_not(None), Feedback.kind.not_in(told))
    comments = Counter(db.session.scalars(people))
    assert [text for text, times in comments.items() if times > 1] == []
    leftovers = [text for text in [*counted, *comments] if "{" in text or "ref:" in text]
    assert leftovers == []


def test_people_write_as_people_do() -> None:
    """No message of a person holds a name that programs use, or gives a field its value as a form would."""
    names = program_names()
    as_form = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\s*(?:=|:\s|\s(?:is|are)\s)", re.IGNORECASE)
    prompts = [prompt for talk in load_talks() for prompt in talk.prompts]
    asked = [text for kind, text in recorded_texts() if kind == "user.message"]
    assert set(prompts) <= set(asked), "what was recorded is what people ask today"
    for text in asked:
        plain = quoted_out(text)
        assert not IDENTIFIER.search(plain), text
        assert not as_form.search(plain.partition(" again, because ")[2] or plain), text
    for bad in ("listSharedContext: type=routing", "state is proposed", "Set entityId", "valuation: 12"):
        assert IDENTIFIER.search(bad) or as_form.search(bad), bad


def test_agents_answer_in_sentences() -> None:
    """An answer holds no program names and no pairs of key and value, and ends as a sentence does. Rules are quoted as
    they are, with the arguments that some of them name."""
    rules = [text for entry in load_data("knowledge") for text in texts_of(entry)]
    dump = re.compile(r"\w=|\w = |[{}\[\]]|\w: [^,;:.]+[,;] \w+: |\(\w+: ")
    for kind, text in recorded_texts():
        if kind != "agent.message":
            continue
        for rule in sorted(rules, key=len, reverse=True):
            text = text.replace(rule, "…").replace(rule.rstrip("."), "…")
        plain = quoted_out(text)
        assert not IDENTIFIER.search(plain), text
        assert not dump.search(plain), text
        assert all(line.rstrip("”")[-1] in ".?…" for line in text.splitlines()), text
    for bad in ("Halden (stage: won)", "Done: update deal: stage = won", "a: b, c: d"):
        assert dump.search(bad), bad


def program_names() -> set[str]:
    """The names of arguments and of fields, as programs and as people spell them."""
    found = {name for tool in TOOLS for name in tool.parameters["properties"]}
    for kind in load_data("entities")["types"]:
        found |= set(kind["fields"])
    return found | {spell_name(name) for name in found}


def recorded_texts() -> list[tuple[str, str]]:
    talks = [one for row in read_talks().values() for one in (row, row.get("again")) if one]
    events = [event for one in talks for event in one["events"]]
    events += [event for run in read_runs().values() for _, case, _ in run["cases"].values() for event in case]
    return [(kind, payload["text"]) for kind, payload in events if kind in ("user.message", "agent.message")]


def texts_of(entry: dict[str, Any]) -> list[str]:
    edits = [change["edit"]["content"] for change in entry.get("then", ()) if "edit" in change]
    return [entry["content"], *edits]


def quoted_out(text: str) -> str:
    """The text without quotations, dates and addresses."""
    return re.sub(r"\{iso -?\d+\}|\S+@\S+", "", QUOTED.sub("“…”", text))


def test_conversations_and_replays_go_again_as_they_were_recorded(demo_app: Flask) -> None:
    """Every fifth conversation is held anew with the real runtime, and each set is replayed anew with its worse version
    and the one after it, in the middle of the recorded others."""
    recorded, replayed = read_talks(), read_runs()
    sample = [key for place, key in enumerate(sorted(recorded)) if place % 5 == 0]
    versions = [entry["key"] for entry in load_data("goldens")["runs"] if entry.get("trigger") == "post-deploy"]
    assert (len(sample) >= 30, len(versions)) == (True, 6)
    with demo_app.app_context():
        held, runs = record_live(demo_app.extensions["upshot.opened"].owner_url, sample, versions)
    assert sorted(held) == sample
    for key in sample:
        assert to_line(held[key]) == to_line(recorded[key])
    assert sorted(runs) == sorted(versions)
    for key in versions:
        assert to_line(runs[key]) == to_line(replayed[key])


def test_a_recording_is_complete(demo_app: Flask) -> None:
    assert sorted(read_talks()) == sorted(talk.key for talk in load_talks())
    assert {recorded["status"] for recorded in read_talks().values()} == {"completed", "failed", "cancelled"}


def test_reset_makes_it_new_and_leaves_the_others_alone(
    demo_app: Flask, server: Any, place: str, tmp_path: Path
) -> None:
    with demo_app.app_context():
        with transaction():
            before = workspace_store.find_workspace("demo")
        act_as(None)
        with transaction():
            other, _ = workspace_store.create_workspace(slug=f"other-{secrets.token_hex(4)}", name="Other")
            slug = other.slug
        act_as(None)
        with pytest.raises(Unusable, match="UPSHOT_OWNER_DATABASE_URL"):
            reset(None)
    environment = {
        "UPSHOT_DATABASE_URL": server.conninfo("app", place),
        "UPSHOT_OWNER_DATABASE_URL": server.conninfo("owner", place),
        "UPSHOT_SECRET_KEY": secrets.token_urlsafe(48),
        "UPSHOT_DATA_DIR": str(tmp_path),
    }
    answer = CliRunner().invoke(command, ["demo", "reset", "--json"], env=environment)
    assert answer.exit_code == 0, answer.output
    made = json.loads(answer.output)
    assert made == demo_app.config["MADE"] | {"removed": True}
    with demo_app.app_context(), transaction():
        assert workspace_store.find_workspace("demo") != before
        assert workspace_store.find_workspace(slug)


def test_names_lead_to_ids_and_back() -> None:
    system = Actor(uuid4(), uuid4(), "system", "Upshot")
    now = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
    known, fresh = uuid4(), uuid4()
    world = World(now, system, refs={"record.kestrel": known})
    payload = {"id": str(known), "text": f"{fresh} closes on 2026-03-05, said at 2026-03-01T12:00:00Z", "sha256": "ab"}
    [(_, kept)] = to_names(world, "one", [["tool.result", payload]])
    assert kept == {
        "id": "ref:record.kestrel",
        "text": "ref:new.one.1 closes on {iso -3}, said at {at -86400.000000}",
        "sha256": None,
    }
    assert to_ids(world, kept) == payload | {"sha256": None}


def test_moments_are_working_days_before_now() -> None:
    monday = datetime(2026, 3, 2, 23, 0, tzinfo=UTC)
    assert resolve_time("2d 09:40", monday) == datetime(2026, 2, 26, 9, 40, 7, tzinfo=UTC), "two working days ago"
    assert sort_key("2d 09:40") < sort_key("1d 08:00") < sort_key("3h")
    assert fill_dates("until {iso 1}", monday) == "until 2026-03-01"


def test_every_session_equals_itself(demo: Any) -> None:
    """All but the goldens of runs that were wrong, which are held to what should have happened."""
    expected = AgentSession.meta["golden"]["expected"]["calls"]
    sessions = db.session.execute(
        select(AgentSession.id, AgentSession.title, AgentSession.status).where(expected.is_(None))
    ).all()
    for session_id, title, status in sessions:
        found = eval_compare.compare_sessions(session_id, session_id, actor=demo)
        assert found.divergences == [], title
        if status == "completed":
            assert (found.verdict, found.overall_accuracy) == ("pass", 1.0), title
        else:
            assert found.passed is None, title
