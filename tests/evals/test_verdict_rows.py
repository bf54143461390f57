"""Verdicts as rows: written when a run ends, the newest of each cell marked, gone with their run."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from app.db import db
from app.models import EvalVerdict
from app.services.evals import results as eval_results
from tests.agents.test_replays import Bench, bench

__all__ = ["bench"]
WON = 'Find the deal "Halden". Then update entity Halden: set stage to won'


def rows(bench: Bench) -> list[Any]:
    with bench.acting():
        return list(db.session.scalars(select(EvalVerdict).order_by(EvalVerdict.ended_at)))


def test_a_run_leaves_a_row_for_each_golden_and_the_newest_is_marked(bench: Bench) -> None:
    golden = bench.golden(WON)
    first = bench.run(set_name="default")
    bench.worse()
    second, third = bench.run(set_name="default"), bench.run(set_name="default")
    found = rows(bench)
    assert [row.run_id for row in found] == [first.id, second.id, third.id]
    assert [(row.verdict, row.trial, row.latest) for row in found] == [
        ("pass", False, True),
        ("fail", False, False),
        ("fail", False, True),
    ]
    assert {row.golden_id for row in found} == {golden}
    assert found[0].agent_version_id != found[1].agent_version_id == found[2].agent_version_id
    replays = {replay.id for run in (first, second, third) for replay in bench.replays(run)}
    assert {row.replay_session_id for row in found} == replays


def test_a_deleted_run_gives_its_place_to_the_one_before(bench: Bench) -> None:
    bench.golden(WON)
    bench.worse()
    first, second = bench.run(set_name="default"), bench.run(set_name="default")
    with bench.acting():
        eval_results.delete_run(second.id, actor=bench.admin)
    assert [(row.run_id, row.latest) for row in rows(bench)] == [(first.id, True)]


def test_a_run_keeps_its_figures_by_agent_and_by_dimension(bench: Bench) -> None:
    bench.golden(WON)
    bench.golden('Find the deal "Halden"')
    bench.worse()
    run = bench.run(set_name="default")
    figures = run.figures
    assert figures == {name: value for name, value in run.results.items() if name != "bySession"}
    assert (figures["accuracy"], figures["passed"], figures["judged"]) == (0.0, 0, 2)
    assert figures["agents"] == {str(bench.agent_id): {"accuracy": 0.0, "passed": 0, "judged": 2}}
    assert figures["dimensions"]["entities_created"] == {"mean": 1.0, "passed": 2, "judged": 2}
    assert figures["dimensions"]["entities_updated"] == {"mean": 0.5, "passed": 1, "judged": 2}
