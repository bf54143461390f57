"""Proofs of knowledge rows: goldens replayed with a row and without it, what that forbids, and the gate it opens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import func, select

from app.db import db
from app.errors import Refused
from app.jobs.executor import Executor
from app.models import AuditEntry, EvalRun, KnowledgeProof, SharedContext
from app.services.agents import versions
from app.services.evals import golden as eval_golden
from app.services.evals import results as eval_results
from app.services.evals.proof import start as proof_start
from app.services.evals.revisions import Revision, revise_expectations
from app.services.knowledge import proofs as knowledge_proofs
from app.services.knowledge import proposals
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.rows import NewRow
from app.services.workspaces import store as workspace_store
from tests.agents.test_replays import CONFIG, Bench, bench
from tests.conftest import Api, Workspace
from tests.evals.test_golden import complain, promote
from tests.threads import run_at_once

__all__ = ["bench"]
ROWS = "/api/admin/shared-context"
LIST = "Use listEntities instead of searchEntities."
NO_UPDATE = "Never use updateEntity."
ABOUT = {"context": "entities"}
UPDATE = "List entities. Update entity Kestrel: set stage to won"
LISTS = {"calls": [{"name": "listEntities"}]}


class Knowledge:
    """Goldens that a rule about lists fixes, and one that a rule against updates breaks."""

    def __init__(self, bench: Bench, api: Api) -> None:
        self.bench, self.api = bench, api

    def goldens(self) -> list[UUID]:
        searched = [self.bench.golden(f"Search entities {name}", expected=LISTS) for name in ("Halden", "Kestrel")]
        listed = [self.bench.golden(f"List entities {when}") for when in ("", "now", "again", "once more")]
        return [*searched, *listed, self.bench.golden(UPDATE)]

    def propose(self, content: str, **more: Any) -> UUID:
        more = ABOUT | more
        with self.bench.acting():
            return proposals.propose_row(NewRow(type="routing", content=content, **more), actor=self.bench.admin).id

    def add(self, content: str, **more: Any) -> UUID:
        more = ABOUT | more
        with self.bench.acting():
            return knowledge_rows.add_row(NewRow(type="routing", content=content, **more), actor=self.bench.admin).id

    def prove(self, row_id: UUID, **asked: Any) -> dict[str, Any]:
        started = self.api.post(f"{ROWS}/{row_id}/proof", asked)
        assert started.status_code == 202, started.json
        self.bench.drain()
        return self.read(row_id)

    def read(self, row_id: UUID) -> dict[str, Any]:
        answer: dict[str, Any] = self.api.get(f"{ROWS}/{row_id}/proof").json
        return answer

    def activate(self, row_id: UUID, **more: Any) -> Any:
        return self.api.patch(f"{ROWS}/{row_id}", {"active": True, **more})

    def state(self, row_id: UUID) -> str:
        return str(self.api.get(f"{ROWS}/{row_id}").json["state"])

    def audited(self, action: str, row_id: UUID) -> list[dict[str, Any]]:
        with self.bench.acting():
            wanted = select(AuditEntry.details).where(AuditEntry.action == action, AuditEntry.subject_id == row_id)
            return list(db.session.scalars(wanted))

    def gate(self, gate: str) -> None:
        with self.bench.acting():
            workspace_store.change_settings({"knowledge_gate": gate}, actor=self.bench.admin)


@pytest.fixture
def knowledge(bench: Bench, api: Callable[..., Api], workspace: Workspace) -> Knowledge:
    return Knowledge(bench, api(workspace.actor("admin"), "admin"))


def test_a_row_that_fixes_is_activated_and_one_that_breaks_needs_a_reason(knowledge: Knowledge) -> None:
    """The acceptance of the whole: figures, the golden that is named, the reason in the audit log."""
    goldens = knowledge.goldens()
    good, bad = knowledge.propose(LIST), knowledge.propose(NO_UPDATE, context="stage")
    assert knowledge.read(good)["status"] == "none"
    found = knowledge.prove(good)
    assert (found["status"], found["n"], found["unchanged"], found["undecided"]) == ("done", 7, 5, 0)
    assert {UUID(one) for one in found["fixed"]} == set(goldens[:2])
    assert (found["broken"], round(found["lift"], 3), found["stale"], found["trials"]) == ([], 0.286, False, 1)
    assert found["low"] < found["lift"] < found["high"]
    assert found["usage"]["input_tokens"] == found["usage"]["cost"] == 0
    assert knowledge.activate(good).json["state"] == "active"
    assert not knowledge.read(good)["stale"], "what a row says is what was proved, whether it is in use or not"

    found = knowledge.prove(bad)
    assert (found["n"], found["fixed"], found["broken"]) == (1, [], [str(goldens[6])])
    refused = knowledge.activate(bad)
    assert (refused.status_code, refused.json["broken"]) == (409, [str(goldens[6])])
    assert f"breaks “{UPDATE}”" in refused.json["detail"]
    assert knowledge.activate(bad, override_reason="  ").status_code == 409
    assert knowledge.state(bad) == "proposed"
    assert knowledge.activate(bad, override_reason="Updates go through the CRM now.").json["state"] == "active"
    [overridden] = knowledge.audited("knowledge.proof_overridden", bad)
    assert (overridden["reason"], overridden["broken"]) == ("Updates go through the CRM now.", [str(goldens[6])])
    assert knowledge.read(bad)["override_reason"] == "Updates go through the CRM now."
    assert not knowledge.bench.complaints(), "runs of a proof are trials and write no feedback"


def test_both_runs_are_marked_and_their_replays_differ_by_the_row_alone(knowledge: Knowledge) -> None:
    knowledge.bench.golden("Search entities Halden", expected=LISTS)
    row_id = knowledge.propose(LIST)
    knowledge.prove(row_id, trials=2)
    proof = newest(knowledge, row_id)
    with_run, without_run = (knowledge.bench.look(UUID(str(run_id))) for run_id in knowledge.read(row_id)["run_ids"])
    assert with_run.options["proof"] == {"row": str(row_id), "side": "with", "content": LIST}
    assert (with_run.options["plus"], without_run.options["plus"]) == ([str(row_id)], [])
    assert (with_run.options["trial"], with_run.trials, without_run.trials) == (True, 2, 2)
    assert with_run.name.startswith(f"Proof with “{LIST}” ")
    assert without_run.name.startswith(f"Proof without “{LIST}” ")
    [case] = proof.cases
    assert (case["outcome"], case["before"], case["after"]) == ("fixed", "fail", "pass")
    assert (case["applies"], case["exercised"]) == (True, True)
    loaded = [
        knowledge.bench.desk.look(UUID(case[side])).payloads("context.loaded")[0]["row_ids"]
        for side in ("without", "with")
    ]
    assert loaded == [[], [str(row_id)]]


def newest(knowledge: Knowledge, row_id: UUID) -> KnowledgeProof:
    with knowledge.bench.acting():
        found = db.session.scalars(
            select(KnowledgeProof)
            .where(KnowledgeProof.shared_context_id == row_id)
            .order_by(KnowledgeProof.created_at.desc())
        ).first()
        assert found is not None
        assert found.cases is not None
        return found


def test_an_active_row_is_proved_against_the_same_prompt_without_it(knowledge: Knowledge) -> None:
    row_id = knowledge.add("Use listEntities, with limit=1, instead of searchEntities.")
    goldens = [knowledge.bench.golden("Search entities Halden"), knowledge.bench.golden("List entity types")]
    found = knowledge.prove(row_id)
    assert {UUID(one) for one in found["fixed"]} == {goldens[0]}, "without it the recorded call is not made"
    with_run, without_run = (knowledge.bench.look(UUID(one)) for one in found["run_ids"])
    assert (with_run.options["minus"], without_run.options["minus"]) == ([], [str(row_id)])
    with knowledge.bench.acting():
        knowledge_rows.edit_row(row_id, {"content": LIST}, None, actor=knowledge.bench.admin)
    assert knowledge.read(row_id)["stale_because"] == ["row"]
    again = knowledge.prove(row_id)
    with_run = knowledge.bench.look(UUID(again["run_ids"][0]))
    assert (with_run.options["plus"], with_run.options["minus"]) == ([str(row_id)], [str(row_id)])
    [replay] = [one for one in knowledge.bench.replays(with_run) if one.eval_source == str(goldens[0])]
    assert knowledge.bench.desk.look(replay.id).payloads("context.loaded")[0]["versions"] == [2]


def test_a_new_wording_is_measured_against_the_row_it_replaces(knowledge: Knowledge) -> None:
    old = knowledge.add(LIST)
    golden = knowledge.bench.golden("Search entities Halden", expected=LISTS)
    with knowledge.bench.acting():
        new = proposals.propose_edit(old, {"content": "Never use listEntities."}, actor=knowledge.bench.admin).id
    found = knowledge.prove(new)
    assert (found["broken"], found["fixed"]) == ([str(golden)], [])
    with_run, without_run = (knowledge.bench.look(UUID(one)) for one in found["run_ids"])
    assert (with_run.options["plus"], with_run.options["minus"]) == ([str(new)], [str(old)])
    assert (without_run.options["plus"], without_run.options["minus"]) == ([str(old)], [])


def test_a_proof_is_stale_when_the_row_its_agents_or_goldens_change(knowledge: Knowledge) -> None:
    bench = knowledge.bench
    goldens = [bench.golden(UPDATE), bench.golden("List entities")]
    row_id = knowledge.propose(NO_UPDATE, context="stage")
    assert knowledge.prove(row_id)["broken"] == [str(goldens[0])]
    third = bench.golden("Sing a song")
    assert knowledge.read(row_id)["stale_because"] == ["goldens"], "one was added"
    assert knowledge.activate(row_id).status_code == 409, "which mends nothing"
    with bench.acting():
        eval_golden.revoke_golden(third, actor=bench.admin)
        eval_golden.edit_golden(goldens[1], {"note": "Read this.", "set": "other"}, actor=bench.admin)
    assert not knowledge.read(row_id)["stale"], "a note and another set change no verdict"
    with bench.acting():
        revise_expectations(goldens[1], Revision(expected={"mentions": ["Halden"]}), actor=bench.admin)
    assert knowledge.read(row_id)["stale_because"] == ["goldens"]
    with bench.acting():
        revise_expectations(goldens[1], Revision(expected={}), actor=bench.admin)
    assert not knowledge.read(row_id)["stale"], "it is held to the same again"
    with bench.acting():
        versions.save_version(bench.agent_id, CONFIG | {"instructions": "Be brief."}, actor=bench.admin)
    assert knowledge.read(row_id)["stale_because"] == ["agent"]
    assert knowledge.prove(row_id)["stale_because"] == []
    assert knowledge.activate(row_id).status_code == 409
    with bench.acting():
        eval_golden.revoke_golden(goldens[0], actor=bench.admin)
    assert knowledge.read(row_id)["stale_because"] == ["goldens"]
    assert knowledge.activate(row_id).json["state"] == "active", "what it broke is no golden any more"
    assert knowledge.api.post(f"{ROWS}/{bench.admin.id}/proof", {}).status_code == 404
    assert knowledge.api.get(f"{ROWS}/{bench.admin.id}/proof").status_code == 404


def test_another_text_is_not_held_to_the_proof_but_going_back_to_it_is(knowledge: Knowledge) -> None:
    knowledge.bench.golden(UPDATE)
    row_id = knowledge.add(NO_UPDATE, context="stage")
    knowledge.prove(row_id)
    with knowledge.bench.acting():
        knowledge_rows.edit_row(row_id, {"content": "Sing before you update."}, None, actor=knowledge.bench.admin)
        knowledge_rows.set_state(row_id, "inactive", actor=knowledge.bench.admin, reason="Too loud.")
        knowledge_rows.set_state(row_id, "active", actor=knowledge.bench.admin)
        knowledge_rows.set_state(row_id, "inactive", actor=knowledge.bench.admin, reason="Too loud.")
    with knowledge.bench.acting(), pytest.raises(knowledge_proofs.BreaksGoldens):
        knowledge_rows.roll_back(row_id, 1, 5, actor=knowledge.bench.admin)


def test_without_goldens_nothing_is_claimed(knowledge: Knowledge) -> None:
    row_id = knowledge.propose(LIST)
    found = knowledge.prove(row_id)
    assert (found["status"], found["n"], found["lift"], found["low"]) == ("done", 0, None, None)
    assert found["run_ids"] == []
    knowledge.bench.golden("Sing a song")
    assert knowledge.read(row_id)["stale_because"] == ["goldens"]
    quiet = knowledge.propose("Convert pounds at the rate of the valuation date.", context="comparing currencies")
    found = knowledge.prove(quiet)
    assert (found["n"], found["replayed"]) == (0, 1), "its condition fits no message, and nothing changes"
    assert knowledge.activate(quiet).json["state"] == "active"


def test_goldens_that_cannot_speak_are_left_out(knowledge: Knowledge) -> None:
    bench = knowledge.bench
    bench.golden("Search entities Halden", expected=LISTS)
    wrong = bench.desk.ask("Search entities Kestrel")
    bench.drain()
    complain(bench.app, bench.admin, wrong)
    promote(bench.app, bench.admin, wrong)
    with bench.acting():
        other = versions.ensure_agent("other", actor=bench.admin, kind="builtin", config=CONFIG).id
    row_id, elsewhere = knowledge.propose(LIST, agent_id=bench.agent_id), knowledge.propose(LIST, agent_id=other)
    assert knowledge.prove(elsewhere)["replayed"] == 0, "no golden is of its agent"
    found = knowledge.prove(row_id)
    assert (found["n"], found["left_out"]) == (1, {"rejected": 1})
    with bench.acting():
        versions.archive_agent(bench.agent_id, actor=bench.admin)
    found = knowledge.prove(row_id)
    assert (found["n"], found["left_out"]) == (0, {"elsewhere": 2})


def test_the_gate_activates_what_a_tool_proposed_and_its_proof_allows(knowledge: Knowledge) -> None:
    knowledge.goldens()
    knowledge.gate("proved")
    good, bad = knowledge.propose(LIST), knowledge.propose(NO_UPDATE, context="stage")
    idle = knowledge.propose("Convert pounds at the rate of the valuation date.", context="comparing currencies")
    for row_id in (good, bad, idle):
        knowledge.prove(row_id)
    assert [knowledge.state(one) for one in (good, bad, idle)] == ["active", "proposed", "proposed"]
    [opened] = knowledge.audited("knowledge.gate_opened", good)
    assert (opened["gate"], opened["fixed"], opened["exercised"]) == ("proved", 2, 7)
    assert knowledge.audited("knowledge.active", good)[0]["reason"] == (
        "Activated by the gate: its proof fixes 2 and breaks 0 of 7 goldens."
    )
    assert knowledge.read(bad)["gate"] == "It breaks 1 golden."
    assert knowledge.read(idle)["gate"] == "No goldens exercise it; the gate needs 5."
    vague = knowledge.propose("Use listEntities rather than searchEntities.")
    assert knowledge.prove(vague)["gate"] == "The checks have a finding: duplicate."
    by_person = NewRow(type="lesson", content="Prefer listEntities to searchEntities for lists of deals.")
    with knowledge.bench.acting():
        mine = knowledge_rows.add_row(by_person, actor=knowledge.bench.admin, proposed=True).id
    assert knowledge.prove(mine)["gate"] is None, "the gate is for what tools propose"


def test_all_proposed_rows_are_proved_together_and_share_a_side(knowledge: Knowledge) -> None:
    knowledge.goldens()
    rows = [knowledge.propose(LIST), knowledge.propose(NO_UPDATE, context="stage")]
    rows.append(knowledge.propose("Never use listEntities."))
    mine = knowledge.propose(LIST, agent_id=knowledge.bench.agent_id)
    with knowledge.bench.acting():
        started = proof_start.start_proofs(actor=knowledge.bench.admin)
        assert len({proof.batch_id for proof in started}) == 1
        assert len({proof.without_run_id for proof in started}) == 1, "all have the same goldens"
        progress = proof_start.progress_of(actor=knowledge.bench.admin)
        assert progress is not None
        assert (progress.rows, progress.total, progress.ended) == (4, 35, 0)
        with pytest.raises(Refused, match="has a proof or is being proved"):
            proof_start.start_proofs(actor=knowledge.bench.admin)
    assert knowledge.prove(mine)["n"] == 7, "one that is under way is not started again"
    assert [len(knowledge.read(one)["fixed"]) for one in rows] == [2, 0, 0]
    assert [len(knowledge.read(one)["broken"]) for one in rows] == [0, 1, 5]
    with knowledge.bench.acting():
        assert proof_start.progress_of(actor=knowledge.bench.admin) is None
        assert proof_start.unproved_rows(actor=knowledge.bench.admin) == []


def test_two_workers_finish_each_proof_once(knowledge: Knowledge, app: Flask) -> None:
    knowledge.goldens()
    rows = [knowledge.propose(text) for text in (LIST, NO_UPDATE, "Never use listEntities.")]
    workers = [Executor(app, slots=4) for _ in range(2)]
    try:
        for row_id in rows:
            assert knowledge.api.post(f"{ROWS}/{row_id}/proof", {}).status_code == 202
        run_at_once(*(worker.drain for worker in workers))
    finally:
        for worker in workers:
            worker.stop()
    assert [knowledge.read(row_id)["status"] for row_id in rows] == ["done"] * 3
    assert [len(knowledge.audited("knowledge.proved", row_id)) for row_id in rows] == [1, 1, 1]


def test_a_proof_is_cancelled_alone_and_leaves_what_others_need(knowledge: Knowledge) -> None:
    knowledge.bench.golden("Search entities Halden", expected=LISTS)
    first, second = knowledge.propose(LIST), knowledge.propose(NO_UPDATE, context="stage")
    with knowledge.bench.acting():
        proof_start.start_proofs(actor=knowledge.bench.admin)
        assert proof_start.cancel_proofs(actor=knowledge.bench.admin, row_id=first) == 1
    assert knowledge.read(first)["status"] == "none"
    knowledge.bench.drain()
    assert knowledge.read(second)["status"] == "done"
    with knowledge.bench.acting():
        proof_start.start_proof(first, actor=knowledge.bench.admin)
        proof_start.start_proof(second, actor=knowledge.bench.admin)
        assert proof_start.cancel_proofs(actor=knowledge.bench.admin) == 2
        open_runs = select(func.count()).where(EvalRun.tenant_id == knowledge.bench.workspace.id)
        assert db.session.scalar(open_runs.where(EvalRun.completed_at.is_(None))) == 0
    assert knowledge.read(second)["status"] == "done", "the one before still stands"


def test_errored_replays_are_undecided_until_they_are_tried_again(
    knowledge: Knowledge, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = knowledge.bench
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    bench.golden("Search entities Halden", expected=LISTS)
    with bench.acting():
        versions.save_version(bench.agent_id, CONFIG | {"model": "openai:gpt-5"}, actor=bench.admin)
    row_id = knowledge.propose(LIST)
    found = knowledge.prove(row_id)
    assert (found["n"], found["undecided"], found["trials"]) == (0, 1, 3)
    with bench.acting():
        eval_results.retry_errored(UUID(found["run_ids"][0]), actor=bench.admin)
    assert knowledge.read(row_id)["status"] == "running"
    bench.drain()
    assert knowledge.read(row_id)["status"] == "done"
    with bench.acting():
        eval_results.delete_run(UUID(found["run_ids"][0]), actor=bench.admin)
    left = knowledge.read(row_id)
    assert (left["status"], left["run_ids"]) == ("done", found["run_ids"][1:])


def test_only_admins_prove(knowledge: Knowledge, api: Callable[..., Api], workspace: Workspace) -> None:
    row_id = knowledge.propose(LIST)
    member = api(workspace.actor("member"), "knowledge")
    assert member.post(f"{ROWS}/{row_id}/proof", {}).status_code == 403
    assert member.get(f"{ROWS}/{row_id}/proof").status_code == 403
    assert knowledge.api.post(f"{ROWS}/{row_id}/proof", {"trials": 21}).status_code == 400
    with knowledge.bench.acting():
        knowledge_rows.set_state(row_id, "deleted", actor=knowledge.bench.admin)
        assert db.session.get_one(SharedContext, row_id).state == "deleted"
    assert knowledge.api.post(f"{ROWS}/{row_id}/proof", {}).status_code == 409
