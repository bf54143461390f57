"""Admins overrule the judge, and blind labels say how far it agrees with people."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest
from sqlalchemy import select

from app.db import db
from app.db.paging import Page
from app.errors import Forbidden, Invalid, Refused
from app.evals.stats import count_verdicts
from app.models import EvalRun, EvalVerdict
from app.models.people import AuditEntry
from app.services.evals import results as eval_results
from app.services.evals.judging import labels, overrules
from tests.agents.test_judge import FIND, UPDATE, Court, answer, court
from tests.conftest import Api, soup
from tests.loopback_model import LoopbackModel

__all__ = ["court"]
LABELS, JUDGEMENTS = "/api/admin/evals/judge-labels", "/api/admin/evals/judgements"


def judged_run(court: Court, *said: dict[str, Any], **asked: Any) -> EvalRun:
    with LoopbackModel(*said) as model:
        court.configure(model)
        return court.run(**asked)


def overrule(court: Court, run: EvalRun, *, passed: bool, dimension: str = "tone", reason: str = "It is fine.") -> Any:
    [replay] = court.bench.replays(run)
    with court.bench.acting():
        return overrules.overrule_judgement(
            replay.id, dimension, passed=passed, reason=reason, actor=court.bench.admin
        )  # fmt: skip


def test_an_overruled_judgement_changes_the_verdict_and_every_figure(court: Court) -> None:
    golden_id = court.golden()
    run = judged_run(court, answer(tone=1))
    assert (run.failed_count, [row.status for row in court.bench.complaints()]) == (1, ["pending"])
    result = overrule(court, run, passed=True)
    assert (result["verdict"], result["overall_accuracy"]) == ("pass", 1.0)
    tone = result["rubric"]["dimensions"]["tone"]
    assert (tone["passed"], tone["judge_passed"], tone["score"]) == (True, False, 1)
    assert tone["overruled"]["reason"] == "It is fine."
    after = court.bench.look(run.id)
    assert after.figures is not None
    assert (after.passed_count, after.failed_count, after.figures["accuracy"]) == (1, 0, 1.0)
    assert [row.status for row in court.bench.complaints()] == ["dismissed"]
    with court.bench.acting():
        row = db.session.scalars(select(EvalVerdict).where(EvalVerdict.run_id == run.id)).one()
        assert (row.golden_id, row.verdict, row.latest) == (golden_id, "pass", True)
        assert after.results["verdicts"] == count_verdicts([row.verdict])
        entry = db.session.scalars(select(AuditEntry).where(AuditEntry.action == "judgement.overruled")).one()
        assert (entry.details["before"], entry.details["after"], entry.details["reason"]) == (
            "fail",
            "pass",
            "It is fine.",
        )
    # Taken back by overruling once more.
    with court.bench.acting():
        listed = overrules.list_overrules(Page(5), actor=court.bench.admin)
        assert [(one.dimension, one.passed) for one in listed.items] == [("tone", True)]
    back = overrule(court, run, passed=False, reason="No, it is not.")
    assert (back["verdict"], "overruled" in back["rubric"]["dimensions"]["tone"]) == ("fail", False)
    assert court.bench.look(run.id).failed_count == 1
    with court.bench.acting():
        assert overrules.list_overrules(Page(5), actor=court.bench.admin).items == []


def test_overruling_never_gets_past_the_comparison(court: Court) -> None:
    court.golden(UPDATE)
    run = judged_run(court, answer(tone=1), agent_version_id=court.bench.worse())
    assert overrule(court, run, passed=True)["verdict"] == "fail"


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"passed": True, "reason": " "}, Invalid),
        ({"passed": True, "dimension": "unknown"}, Invalid),
        ({"passed": False}, Refused),
    ],
)
def test_what_cannot_be_overruled_is_refused(court: Court, given: dict[str, Any], wrong: type[Exception]) -> None:
    court.golden()
    run = judged_run(court, answer(tone=1))
    with pytest.raises(wrong):
        overrule(court, run, **given)
    assert court.bench.look(run.id).failed_count == 1


def test_what_was_never_judged_cannot_be_overruled(court: Court) -> None:
    court.golden()
    with pytest.raises(Refused, match="no judgement to overrule"):
        overrule(court, judged_run(court, answer(tone=999)), passed=True)


def test_members_neither_overrule_nor_label(court: Court) -> None:
    court.golden()
    [replay] = court.bench.replays(judged_run(court, answer()))
    member = court.bench.workspace.actor("member")
    with court.bench.acting(), pytest.raises(Forbidden):
        overrules.overrule_judgement(replay.id, "tone", passed=False, reason="r", actor=member)
    with court.bench.acting(), pytest.raises(Forbidden):
        labels.add_label(replay.id, "tone", passed=True, actor=member)


def test_labels_are_blind_seeded_and_kept_apart_from_overrules(court: Court, api: Callable[..., Api]) -> None:
    for name in ("Halden", "Kestrel", "Heron"):
        court.golden(f'Find the deal "{name}"')
    run = judged_run(court, answer(tone=5), answer(tone=1), answer(tone=5))
    [first, *others] = court.bench.replays(run)
    admin = api(court.bench.admin)
    judged = first.meta["eval_result"]["rubric"]["dimensions"]["tone"]["passed"]
    sent = {"dimension": "tone", "passed": not judged, "reason": "I see it otherwise."}
    assert admin.post(f"{JUDGEMENTS}/{first.id}/overrule", sent).status_code == 200
    seen = []
    while (cell := next_cell(court)) is not None:
        assert next_cell(court) == cell, "the order is seeded"
        assert "score" not in vars(cell)
        body = {"replay_session_id": str(cell.session_id), "dimension": cell.dimension, "passed": True}
        made = admin.post(LABELS, body)
        assert made.status_code == 201, made.get_json()
        assert admin.post(LABELS, body).status_code == 409, "a label is kept once"
        seen.append((cell.session_id, cell.dimension))
    assert len(seen) == 5
    assert (first.id, "tone") not in seen, "what was overruled is not blind any more"
    refused = admin.post(LABELS, {"replay_session_id": str(first.id), "dimension": "tone", "passed": True})
    assert refused.status_code == 409
    [judge] = admin.get(LABELS).get_json()["items"]
    assert (judge["judged"], judge["overruled"], judge["agreement"]["labels"]) == (3, 1, 5)
    assert (judge["agreement"]["summary"], judge["agreement"]["reliable"]) == ("5 of 20 labels", False)
    listed = admin.get(f"{JUDGEMENTS}/overruled").get_json()["items"]
    assert {item["dimension"] for item in listed} == {"tone"}
    assert len(others) == 2


def next_cell(court: Court) -> Any:
    with court.bench.acting():
        return labels.next_cell(court.criteria_id, "openai:judge", actor=court.bench.admin)


def test_what_a_judge_could_not_say_is_tried_again_with_its_replay(court: Court) -> None:
    court.golden()
    run = judged_run(court, answer(tone=999))
    assert run.results["verdicts"]["errored"] == 1
    with LoopbackModel(answer()) as model:
        court.configure(model)
        with court.bench.acting():
            eval_results.retry_errored(run.id, actor=court.bench.admin)
        court.bench.drain()
    after = court.bench.look(run.id)
    assert (after.status, after.results["verdicts"]["pass"]) == ("completed", 1)
    assert [one.status for one in court.judgements()] == ["errored", "judged"]


def test_what_a_judge_could_not_say_is_judged_again_without_a_replay(
    court: Court, api: Callable[..., Api], sign_in: Callable[..., Any]
) -> None:
    court.golden()
    run = judged_run(court, answer(tone=999))
    [first] = court.judgements()
    admin = api(court.bench.admin, "admin")
    judge, page = f"/api/admin/evals/runs/{run.id}/judge", f"/admin/agent-review/evals/runs/{run.id}"
    client = sign_in(court.bench.admin)
    assert soup(client.get(page)).select_one(f'form[action="{page}/judge"]').text.strip() == "Judge again"
    with LoopbackModel(answer(tone=2, reason="Far too curt")) as model:
        court.configure(model)
        answered = admin.post(judge, {})
        assert (answered.status_code, answered.json["status"]) == (200, "running")
        assert admin.post(judge, {}).status_code == 409, "it is under way"
        court.bench.drain()
        assert len(model.asked) == 1
    after, [second] = court.bench.look(run.id), court.judgements()
    assert (after.status, after.results["verdicts"]["fail"], len(court.bench.replays(run))) == ("completed", 1, 1)
    assert (second.id, second.status, second.attempt) == (first.id, "judged", 1)
    assert second.input_tokens > first.input_tokens > 0, "the answer that nobody could use was paid for too"
    assert [row.status for row in court.bench.complaints()] == ["pending"]
    with court.bench.acting():
        entry = db.session.scalars(select(AuditEntry).where(AuditEntry.action == "eval_run.judged_again")).one()
        assert entry.details["judgements"] == 1
    assert admin.post(judge, {}).status_code == 409, "nothing is left to ask"
    assert soup(client.get(page)).select_one(f'form[action="{page}/judge"]') is None

    # What the judge found leaves with the run.
    files = {
        one: admin.get(f"/api/admin/evals/runs/{run.id}/export?format={one}").data for one in ("csv", "json", "junit")
    }
    [row] = csv.DictReader(io.StringIO(files["csv"].decode("utf-8-sig")))
    assert (row["rubric"], row["rubric_dimensions"]) == ("judged", "tone: fail 2 of 5; named sources: pass 1 of 1")
    [told] = json.loads(files["json"])["results"]["bySession"].values()
    assert told["rubric"]["dimensions"]["tone"]["reason"] == "Far too curt"
    case = ElementTree.fromstring(files["junit"]).find("testcase")  # noqa: S314 - written just before.
    assert case is not None
    assert case.find("failure").get("message") == "fail: tone scores 2 of 5 (Far too curt)"  # type: ignore[union-attr]
    assert [(one.get("name"), one.get("value")) for one in case.iter("property")] == [
        ("rubric", "judged"), ("rubric tone", "fail 2 of 5"), ("rubric named sources", "pass 1 of 1"),
    ]  # fmt: skip


def test_labels_outlive_the_run_that_they_judge(court: Court) -> None:
    court.golden()
    run = judged_run(court, answer())
    overrule(court, run, passed=False)
    cell = next_cell(court)
    with court.bench.acting():
        labels.add_label(cell.session_id, cell.dimension, passed=True, actor=court.bench.admin)
        eval_results.delete_run(run.id, actor=court.bench.admin)
    assert court.judgements() == []
    with court.bench.acting():
        assert labels.agreement_of(court.criteria_id, "openai:judge", actor=court.bench.admin).labels == 1


def test_an_answer_that_was_reused_is_labelled_once(court: Court) -> None:
    court.golden(FIND)
    judged_run(court, answer(), trials=2)
    judged_run(court, answer())
    statuses = [(one.status, one.cached) for one in court.judgements()]
    fresh = statuses.count(("judged", False))
    cells = set()
    while (cell := next_cell(court)) is not None:
        cells.add((cell.session_id, cell.dimension))
        with court.bench.acting():
            labels.add_label(cell.session_id, cell.dimension, passed=True, actor=court.bench.admin)
    assert len(cells) == 2 * fresh
    assert len(statuses) == 3
