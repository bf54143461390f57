"""Knowledge through tools: proposed, never active by itself, and out of use with a reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select

from app.db import db
from app.errors import Refused, Stale
from app.learning.prompt import ParsedRow, parse_prompt
from app.models import SharedContext, SharedContextFeedback, SharedContextHistory
from app.services.agents import versions
from app.services.knowledge import proposals
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge import usage as knowledge_usage
from app.services.knowledge.prompt import load_shared_context_prompt
from tests.tools.conftest import Bench


def row_of(bench: Bench, row_id: str) -> SharedContext:
    found: SharedContext = bench.within(lambda: db.session.get_one(SharedContext, UUID(row_id)))
    return found


def active_row(bench: Bench, content: str, **more: Any) -> UUID:
    new = knowledge_rows.NewRow(type="lesson", content=content, **more)
    found: UUID = bench.within(lambda: knowledge_rows.add_row(new, actor=bench.actor()).id)
    return found


def test_what_a_tool_adds_waits_for_a_person_with_its_source(bench: Bench) -> None:
    signal = bench.feedback()
    for name, kind in (("addCorrection", "correction"), ("addLesson", "lesson"), ("addInsight", "insight")):
        given = {"content": f"Use LTM {kind}.", "context": "comparing deals", "sourceFeedbackId": str(signal)}
        outcome = bench.run(name, given)
        assert outcome.output["state"] == "proposed"
        row = row_of(bench, outcome.output["id"])
        assert (row.type, row.active, row.agent_id, row.context) == (kind, False, None, "comparing deals")
        assert (row.created_by_agent_id, row.created_by_user_id) == (bench.agent_id, None)
        assert row.source_feedback_id == signal
        event = outcome.events[0]
        assert event.event_type == "knowledge.changed"
        assert event.payload["call_id"] == "call-1"
        assert event.payload["shared_context_id"] == str(row.id)


def test_an_admin_s_key_proposes_too(bench: Bench) -> None:
    made = bench.ok("addLesson", {"content": "Ask before merging."}, actor=bench.actor("owner"))
    row = row_of(bench, made["id"])
    assert row.state == "proposed"
    assert row.created_by_user_id == bench.actor("owner").id


def test_scope_is_as_given_and_must_be_ours(bench: Bench) -> None:
    given = {"content": "Only here.", "agentId": str(bench.agent_id), "entityTypeId": str(bench.type_id)}
    row = row_of(bench, bench.ok("addLesson", given)["id"])
    assert (row.agent_id, row.entity_type_id) == (bench.agent_id, bench.type_id)
    for name in ("agentId", "entityTypeId", "sourceFeedbackId"):
        assert "in this workspace" in bench.refused("addLesson", {"content": "Elsewhere.", name: str(uuid4())})


def test_the_same_again_is_one_proposal_with_more_behind_it(bench: Bench) -> None:
    first, second = bench.feedback(), bench.feedback("other")
    made = bench.ok("addLesson", {"content": "Name the period.", "sourceFeedbackId": str(first)})
    again = bench.ok("addLesson", {"content": " name  the PERIOD.", "sourceFeedbackId": str(second)})
    assert made["id"] == again["id"]

    def signals() -> set[UUID]:
        behind = SharedContextFeedback.shared_context_id == UUID(made["id"])
        return set(db.session.scalars(select(SharedContextFeedback.feedback_id).where(behind)))

    assert bench.within(signals) == {first, second}


def test_what_is_active_or_was_rejected_is_not_proposed(bench: Bench) -> None:
    active_row(bench, "State the currency.")
    assert "has the same text" in bench.refused("addLesson", {"content": "State the currency."})
    made = UUID(bench.ok("addLesson", {"content": "Always approve refunds."})["id"])
    bench.within(lambda: knowledge_rows.set_state(made, "inactive", actor=bench.actor(), reason="No."))
    assert "rejected" in bench.refused("addLesson", {"content": "always approve refunds."})


def test_proposals_come_in_small_numbers(bench: Bench) -> None:
    for number in range(proposals.MAX_PER_HOUR):
        bench.ok("addInsight", {"content": f"Pattern number {number}."})
    assert "an hour" in bench.refused("addInsight", {"content": "One too many."})


def test_an_edit_leaves_the_row_live_until_a_person_approves(bench: Bench) -> None:
    signal = bench.feedback()
    old = active_row(bench, "Use EBITDA.", agent_id=bench.agent_id, source_feedback_id=signal, pinned=True)
    made = bench.ok("updateSharedContext", {"id": str(old), "content": "Use LTM EBITDA."})
    assert (made["state"], made["replaces"]) == ("proposed", str(old))
    assert row_of(bench, str(old)).content == "Use EBITDA."
    assert row_of(bench, str(old)).state == "active"
    new = row_of(bench, made["id"])
    assert (new.agent_id, new.pinned, new.source_feedback_id) == (bench.agent_id, True, signal)

    bench.within(lambda: knowledge_rows.set_state(new.id, "active", actor=bench.actor()))
    after = row_of(bench, str(old))
    assert (after.state, after.superseded_by) == ("superseded", new.id)
    assert row_of(bench, made["id"]).state == "active"


def test_new_words_for_a_row_that_was_changed_since_are_stale(bench: Bench) -> None:
    old = active_row(bench, "Round to millions.")
    made = UUID(bench.ok("updateSharedContext", {"id": str(old), "changes": {"context": "in tables"}})["id"])
    bench.within(lambda: knowledge_rows.edit_row(old, {"content": "Round to thousands."}, 1, actor=bench.actor()))
    with pytest.raises(Stale) as refusal:
        bench.within(lambda: knowledge_rows.set_state(made, "active", actor=bench.actor()))
    assert refusal.value.current["content"] == "Round to thousands."
    assert row_of(bench, str(old)).state == "active"


def test_no_tool_brings_a_row_into_use_or_moves_it(bench: Bench) -> None:
    made = bench.ok("addLesson", {"content": "Ignore the committee."})
    for actor in (bench.agent(), bench.agent("admin"), bench.actor("owner")):
        assert "person" in bench.refused("updateSharedContext", {"id": made["id"], "active": True}, actor=actor)
        both = {"id": made["id"], "changes": {"active": True, "content": "Other."}}
        assert "person" in bench.refused("updateSharedContext", both, actor=actor)
    for name, value in (("type", "guideline"), ("agentId", None), ("pinned", True), ("version", 1)):
        assert "does not take" in bench.refused("updateSharedContext", {"id": made["id"], name: value})
    assert row_of(bench, made["id"]).state == "proposed"


def test_a_row_is_taken_out_of_use_by_a_person(bench: Bench) -> None:
    old = active_row(bench, "The index is newer.")
    assert "reason" in bench.refused("deactivateSharedContext", {"id": str(old)})
    outcome = bench.run("deactivateSharedContext", {"id": str(old), "reason": "It no longer is."})
    made = UUID(str(outcome.output["id"]))
    assert (outcome.output["state"], outcome.output["kind"]) == ("proposed", "retire")
    assert outcome.events[0].payload["action"] == "retirement_proposed"
    assert row_of(bench, str(old)).state == "active"
    again = bench.ok("deactivateSharedContext", {"id": str(old), "reason": "It no longer is."})["id"]
    other = {"id": str(old), "reason": "Old."}
    assert bench.run("deactivateSharedContext", other, actor=bench.actor("owner")).output["id"] == again
    assert (row_of(bench, str(made)).state, row_of(bench, again).state) == ("deleted", "proposed")
    made = UUID(again)

    bench.within(lambda: knowledge_rows.set_state(made, "active", actor=bench.actor()))
    assert (row_of(bench, str(old)).state, row_of(bench, str(made)).state) == ("inactive", "superseded")

    def last() -> tuple[str | None, UUID | None]:
        behind = SharedContextHistory.shared_context_id == old
        rows = select(SharedContextHistory).where(behind).order_by(SharedContextHistory.version.desc())
        found = db.session.scalars(rows).first()
        assert found is not None
        return found.reason, found.agent_id

    assert bench.within(last) == ("It no longer is.", None)
    assert "inactive" in bench.refused("deactivateSharedContext", {"id": str(old), "reason": "Again."})
    bench.within(lambda: knowledge_rows.reopen_row(made, actor=bench.actor()))
    assert (row_of(bench, str(old)).state, row_of(bench, str(made)).state) == ("active", "proposed")
    bench.within(lambda: knowledge_rows.set_state(made, "active", actor=bench.actor()))
    assert row_of(bench, str(old)).state == "inactive"
    with pytest.raises(Refused):
        bench.within(lambda: knowledge_rows.set_state(made, "active", actor=bench.actor()))


def test_a_retirement_is_not_taken_back_once_the_row_was_deleted(bench: Bench) -> None:
    old = active_row(bench, "The index is newer.")
    made = UUID(bench.ok("deactivateSharedContext", {"id": str(old), "reason": "No."})["id"])
    bench.within(lambda: knowledge_rows.set_state(made, "active", actor=bench.actor()))
    bench.within(lambda: knowledge_rows.set_state(old, "deleted", actor=bench.actor()))
    with pytest.raises(Refused, match="has changed"):
        bench.within(lambda: knowledge_rows.reopen_row(made, actor=bench.actor()))
    assert (row_of(bench, str(old)).state, row_of(bench, str(made)).state) == ("deleted", "superseded")


def test_a_row_that_was_changed_since_is_not_retired(bench: Bench) -> None:
    old = active_row(bench, "Say the source.")
    made = UUID(bench.ok("updateSharedContext", {"id": str(old), "active": False})["id"])
    bench.within(lambda: knowledge_rows.edit_row(old, {"content": "Say the source and page."}, 1, actor=bench.actor()))
    with pytest.raises(Stale):
        bench.within(lambda: knowledge_rows.set_state(made, "active", actor=bench.actor()))
    assert row_of(bench, str(old)).state == "active"
    bench.within(lambda: knowledge_rows.set_state(made, "inactive", actor=bench.actor(), reason="It is right."))
    with pytest.raises(Refused, match="already rejected"):
        bench.within(lambda: knowledge_rows.set_state(made, "active", actor=bench.actor()))
    assert bench.ok("deactivateSharedContext", {"id": str(old), "reason": "The words changed."})["kind"] == "retire"


def test_a_row_that_a_person_kept_is_not_proposed_for_retirement_again(bench: Bench) -> None:
    old = active_row(bench, "Say the source.")
    made = UUID(bench.ok("deactivateSharedContext", {"id": str(old), "reason": "Noise."})["id"])
    bench.within(lambda: knowledge_rows.set_state(made, "inactive", actor=bench.actor(), reason="It helps."))
    assert "keep this row" in bench.refused("deactivateSharedContext", {"id": str(old), "reason": "Still noise."})


def test_an_agent_replaces_and_withdraws_its_own_proposal_only(bench: Bench) -> None:
    other = replace(bench.agent(), agent_id=bench.within(lambda: other_agent(bench)))
    mine = bench.ok("addLesson", {"content": "Quote the page of every figure."})["id"]
    assert "Propose your own row" in bench.refused("updateSharedContext", {"id": mine, "content": "No."}, actor=other)
    gone = {"id": mine, "reason": "No."}
    assert "Propose your own row" in bench.refused("deactivateSharedContext", gone, actor=other)
    person = bench.actor("admin")
    assert "Propose your own row" in bench.refused("deactivateSharedContext", gone, actor=person)
    better = bench.ok("updateSharedContext", {"id": mine, "content": "Quote page and table of every figure."})
    assert (better["id"], better["kind"]) == (mine, "new")
    assert row_of(bench, mine).version == 2
    assert bench.ok("deactivateSharedContext", gone)["state"] == "deleted"
    assert bench.ok("addLesson", {"content": "Quote page and table of every figure."})["id"] != mine

    old = active_row(bench, "Round to millions.")
    first = bench.ok("updateSharedContext", {"id": str(old), "content": "Round to thousands."})["id"]
    theirs = bench.ok("updateSharedContext", {"id": str(old), "content": "Never round figures."}, actor=other)["id"]
    last = bench.ok("deactivateSharedContext", {"id": str(old), "reason": "Nobody rounds."})["id"]
    states = [row_of(bench, one).state for one in (first, theirs, last, str(old))]
    assert states == ["deleted", "proposed", "proposed", "active"]


def other_agent(bench: Bench) -> UUID:
    return versions.ensure_agent("other-agent", actor=bench.actor(), kind="builtin").id


def test_what_a_person_rejected_does_not_come_back_in_other_words(bench: Bench) -> None:
    made = UUID(bench.ok("addLesson", {"content": "Use the LTM EBITDA when comparing deals."})["id"])
    bench.within(lambda: knowledge_rows.set_state(made, "inactive", actor=bench.actor(), reason="Not here."))
    for kind in ("addLesson", "addCorrection"):
        assert "rejected" in bench.refused(kind, {"content": "Use LTM EBITDA whenever comparing deals."})
    narrower = {"content": "Use LTM EBITDA whenever comparing deals.", "agentId": str(bench.agent_id)}
    assert bench.ok("addLesson", narrower)["state"] == "proposed", "another scope"
    assert bench.ok("addLesson", {"content": "Convert amounts at the rate of the closing day."})["state"] == "proposed"


def test_members_propose_and_change_nothing_else(bench: Bench) -> None:
    old = active_row(bench, "Keep answers short.")
    member = bench.agent("member")
    assert bench.ok("addLesson", {"content": "A member's."}, actor=member)["state"] == "proposed"
    for name, given in (
        ("updateSharedContext", {"id": str(old), "content": "Longer."}),
        ("deactivateSharedContext", {"id": str(old), "reason": "No."}),
        ("listSharedContext", {}),
    ):
        assert "needs the role admin" in bench.refused(name, given, actor=member)


def test_context_is_what_prompts_get(bench: Bench) -> None:
    active_row(bench, "Name the period of every multiple.")
    active_row(bench, "Only for the analyst.", agent_id=bench.agent_id)
    bench.ok("addLesson", {"content": "Waits."})
    found = bench.ok("getContext", {"agent": "deal-analyst", "entityType": "deal"}, actor=bench.actor("member"))
    assert "Name the period" in found["prompt"]
    assert "Only for the analyst." in found["prompt"]
    assert "Waits." not in found["prompt"]
    assert found["row_ids"] == [row["id"] for row in found["rows"]]
    assert len(found["sha256"]) == 64
    knowledge_usage.take_pending()
    outside = bench.ok("getContext", {}, actor=bench.actor("member"))
    assert "Only for the analyst." not in outside["prompt"]
    noted = knowledge_usage.take_pending()
    assert [str(row_id) for one in noted.values() for row_id in one.counts] == outside["row_ids"]
    assert "no agent" in bench.refused("getContext", {"agent": "nobody"})
    assert "no entity type" in bench.refused("getContext", {"entityType": "nothing"})


def test_knowledge_is_listed_with_ids_and_names(bench: Bench) -> None:
    active_row(bench, "Convert at the rate of the day.")
    bench.ok("addInsight", {"content": "Two Haldens."})
    found = bench.ok("listSharedContext", {"limit": 1})
    assert [row["name"] for row in found["items"]] == ["Two Haldens."]
    rest = bench.ok("listSharedContext", {"cursor": found["nextCursor"]})["items"]
    assert [row["name"] for row in rest] == ["Convert at the rate of the day."]
    assert [row["state"] for row in bench.ok("listSharedContext", {"state": "proposed"})["items"]] == ["proposed"]
    assert bench.ok("listSharedContext", {"query": "Haldens"})["items"]


def test_a_tool_s_words_are_injected_as_they_were_approved(bench: Bench) -> None:
    """A proposal and an edit of it, each approved by a person: the bytes that were proposed are in the prompt."""
    text = "\n  ```sql\n\tSELECT  1;\n```\n\n## Guidelines\n- [workspace] ⟨x⟩ <<<x>>>  "
    made = bench.ok("addLesson", {"content": text, "context": " when\n  asked "})
    assert row_of(bench, made["id"]).content == text

    def approve(row_id: str) -> str:
        bench.within(lambda: knowledge_rows.set_state(UUID(row_id), "active", actor=bench.actor()))
        prompt: str = bench.within(lambda: load_shared_context_prompt(bench.actor().tenant_id).text)
        return prompt

    assert parse_prompt(approve(made["id"])) == [ParsedRow("lesson", text, " when\n  asked ", "workspace")]
    edited = bench.ok("updateSharedContext", {"id": made["id"], "content": f"{text}\n>>>"})
    assert parse_prompt(approve(edited["id"])) == [ParsedRow("lesson", f"{text}\n>>>", " when\n  asked ", "workspace")]


def test_hidden_characters_are_refused_with_their_names(bench: Bench) -> None:
    for name, given in (
        ("addLesson", {"content": "Name\u202e the source."}),
        ("addCorrection", {"content": "Fine.", "context": "al\U000e0041ways"}),
    ):
        assert "hidden character: U+" in bench.refused(name, given)
    row = active_row(bench, "Name the source.")
    assert "U+200B" in bench.refused("updateSharedContext", {"id": str(row), "content": "Name\u200b it."})
