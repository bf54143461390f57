"""What a golden is held to can be changed: the recording stays, each revision is kept, and others are told apart."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.errors import Forbidden, NotFound, Refused, Stale
from app.models import AuditEntry
from app.services.evals import revisions
from app.services.evals.revisions import Revision
from tests.agents.test_replays import Bench, bench
from tests.conftest import Api, Workspace
from tests.evals.test_golden import complain, promote, ran
from tests.evals.test_pages import golden_mark_of

__all__ = ["bench"]
API = "/api/admin/evals/golden"


def revise(app: Flask, actor: Any, session_id: Any, **given: Any) -> Any:
    with app.app_context(), acting_as(actor), transaction():
        return revisions.revise_expectations(session_id, Revision(**given), actor=actor)


def test_a_revision_is_kept_with_its_past_and_audited(
    app: Flask, workspace: Workspace, api: Callable[..., Api]
) -> None:
    admin, other = workspace.actor(), workspace.actor("member")
    session_id = ran(app, admin)
    frozen = promote(app, admin, session_id, expected={"mentions": ["Kestrel"]})
    client = api(admin, "admin")

    first = client.patch(f"{API}/{session_id}", {"expected": {"mentions": ["cheaper"]}, "reason": " Not the name. "})
    assert (first.status_code, first.json["revision"]) == (200, 1)
    assert first.json["expected"] == {"mentions": ["cheaper"]}
    same = client.patch(f"{API}/{session_id}", {"expected": {"mentions": ["cheaper"], "no_calls": []}, "revision": 1})
    assert (same.status_code, same.json["revision"]) == (200, 1), "nothing changed"
    right = client.patch(f"{API}/{session_id}", {"recorded_is_right": True, "note": "Fine", "set": "smoke"})
    assert (right.json["recordedIsRight"], right.json["expected"], right.json["note"]) == (True, None, "Fine")
    back = client.patch(f"{API}/{session_id}", {"expected": {}, "recorded_is_right": False}).json
    assert (back["recordedIsRight"], back["baselineRejected"], back["revision"]) == (False, False, 3)
    said = [(one["number"], one["before"], one["reason"], one["who"]) for one in back["revisions"]]
    assert said == [
        (3, {"recorded_is_right": True}, None, admin.name),
        (2, {"expected": {"mentions": ["cheaper"]}}, None, admin.name),
        (1, {"expected": {"mentions": ["Kestrel"]}}, "Not the name.", admin.name),
    ]
    assert client.get(f"{API}/{session_id}").json == back

    golden = golden_mark_of(app, admin, session_id)
    assert golden is not None
    assert (golden["snapshot"], golden["sha256"]) == (frozen["snapshot"], frozen["sha256"])
    with app.app_context(), acting_as(admin):
        changed = AuditEntry.action == "golden.expectations_changed"
        about = AuditEntry.subject_id == session_id, changed
        told = db.session.scalars(select(AuditEntry.details).where(*about).order_by(AuditEntry.created_at))
        assert [(one["revision"], one["set"]) for one in told] == [(1, "default"), (2, "default"), (3, "smoke")]
    with pytest.raises(Forbidden):
        revise(app, other, session_id, expected={"mentions": ["x"]})

    for names in (["Heron", "Orion"], ["Orion", "Heron"]):
        ordered = client.patch(f"{API}/{session_id}", {"expected": {"must_not_mention": names}}).json
        assert (ordered["revision"], ordered["expected"]) == (4, {"must_not_mention": ["Heron", "Orion"]})


def test_what_is_refused_says_where(app: Flask, workspace: Workspace, api: Callable[..., Api]) -> None:
    admin = workspace.actor()
    session_id, plain = ran(app, admin), ran(app, admin)
    promote(app, admin, session_id)
    client = api(admin, "admin")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"expected": {"mentions": ["LTM"], "must_not_mention": ["ltm"]}}, "expected.must_not_mention"),
        ({"expected": {"no_calls": ["updateEntty"]}}, "expected.no_calls"),
        ({"expected": {"nonsense": 1}}, "expected.nonsense"),
        ({"expected": {"mentions": ["LTM"]}, "recorded_is_right": True}, "recorded_is_right"),
        ({"expected": None, "reason": "x" * 2001}, "reason"),
        ({"reason": "Why not"}, "reason"),
        ({"revision": 0}, "revision"),
    ]
    for body, place in wrong:
        answer = client.patch(f"{API}/{session_id}", body)
        assert answer.status_code == 400, answer.text
        assert place in str(answer.json["errors"]), answer.json
    for unknown in (plain, uuid4()):
        assert client.patch(f"{API}/{unknown}", {"expected": {"mentions": ["x"]}}).status_code == 404
    assert client.get(f"{API}/{session_id}").json["revisions"] == []


def test_the_recording_counts_again_as_it_did_before(app: Flask, workspace: Workspace, api: Callable[..., Api]) -> None:
    admin = workspace.actor()
    client = api(admin, "admin")
    rejected, corrected, plain = (ran(app, admin) for _ in range(3))
    for session_id in (rejected, corrected):
        complain(app, workspace.actor("member"), session_id)
    promote(app, admin, rejected)
    promote(app, admin, corrected, expected={"mentions": ["x"]})
    promote(app, admin, plain)

    assert client.patch(f"{API}/{rejected}", {"expected": {"mentions": ["y"]}}).json["baselineRejected"] is False
    assert client.patch(f"{API}/{rejected}", {"expected": None}).json["baselineRejected"] is True
    # Someone complained, and by now nobody says what should have happened.
    assert client.patch(f"{API}/{corrected}", {"expected": None}).json["baselineRejected"] is True
    assert client.patch(f"{API}/{plain}", {"expected": None}).json["revision"] == 0


def test_of_several_who_edit_at_once_one_wins(app: Flask, workspace: Workspace) -> None:
    admin = workspace.actor()
    session_id = ran(app, admin)
    promote(app, admin, session_id)

    def edit(number: int) -> str:
        try:
            revise(app, admin, session_id, expected={"mentions": [f"fact {number}"]}, revision=0)
        except Stale:
            return "stale"
        return "saved"

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(edit, range(6))) == ["saved", *["stale"] * 5]
    golden = golden_mark_of(app, admin, session_id)
    assert golden is not None
    assert len(golden["revisions"]) == 1


def test_a_history_that_is_full_is_reported(
    app: Flask, workspace: Workspace, api: Callable[..., Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = workspace.actor()
    session_id = ran(app, admin)
    promote(app, admin, session_id)
    monkeypatch.setattr(revisions, "MAX_REVISIONS", 1)
    revise(app, admin, session_id, expected={"mentions": ["x"]})
    with pytest.raises(Refused, match="Revoke it"):
        revise(app, admin, session_id, expected={"mentions": ["y"]})
    monkeypatch.setattr(revisions, "MAX_REVISIONS", 100)
    for text in "abcd":
        revise(app, admin, session_id, expected={"answer": text * 250_000})
    with pytest.raises(Refused, match="Revoke it"):
        revise(app, admin, session_id, expected={"answer": "e" * 250_000})
    with pytest.raises(NotFound):
        revise(app, admin, uuid4())


def test_a_run_keeps_what_it_began_with_and_the_next_one_follows_the_revision(bench: Bench) -> None:
    golden_id = bench.golden("List entities", expected={"mentions": ["Halden"]})
    before = bench.run(set_name="default", drain=False)
    revise(bench.app, bench.admin, golden_id, expected={"mentions": ["Norrland"]})
    bench.drain()
    after = bench.run(set_name="default")

    verdicts = [bench.look(one.id).results["bySession"][str(golden_id)]["verdict"] for one in (before, after)]
    assert verdicts == ["pass", "fail"]
    (replay,) = bench.replays(after)
    assert "revisions" not in replay.meta["eval_golden"]
