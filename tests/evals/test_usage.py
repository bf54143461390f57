"""What runs took and are likely to take: nothing is made up, and the offline model costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from flask import Flask

from app.jobs.executor import Executor
from app.services.agents import versions
from app.services.evals import usage as eval_usage
from app.services.evals.usage import Estimate, Usage
from tests.agents.test_replays import CONFIG, Bench, bench
from tests.conftest import Api, Workspace
from tests.loopback_model import LoopbackModel, say

__all__ = ["bench"]
RUNS = "/api/admin/evals/runs"


@pytest.fixture
def drain_with_model(app: Flask) -> Iterator[Callable[[], int]]:
    with LoopbackModel(say("It closes on Friday.")) as model:
        one = Executor(app, slots=2)
        one.settings = replace(one.settings, openai_base_url=model.base_url)
        yield one.drain
        one.stop()


def estimate(bench: Bench, **asked: Any) -> Estimate:
    with bench.acting():
        return eval_usage.estimate_request(actor=bench.admin, **asked)


def test_a_run_says_what_it_took_and_the_next_one_what_it_will(
    bench: Bench, drain_with_model: Callable[[], int], api: Callable[..., Api], workspace: Workspace
) -> None:
    admin = api(workspace.actor("admin"), "admin")
    golden = bench.golden("Sing a song")
    with bench.acting():
        asked = versions.save_version(bench.agent_id, CONFIG | {"model": "openai:loopback"}, actor=bench.admin).id
    bench.drain = drain_with_model
    nothing = estimate(bench, golden_id=golden, trials=3)
    assert (nothing.replays, nothing.tokens, nothing.cost, nothing.seconds, nothing.basis) == (
        3,
        None,
        None,
        None,
        None,
    )

    run = bench.run(golden_ids=[golden], trials=2)
    answer = admin.get(f"{RUNS}/{run.id}").json["usage"]
    assert (answer["input_tokens"], answer["output_tokens"], answer["cost"]) == (80, 16, None), "nobody knows its price"
    assert answer["seconds"] > 0
    known = estimate(bench, golden_id=golden, trials=3)
    assert (known.tokens, known.cost, known.basis, known.offline) == (144, None, "version", False)
    assert known.seconds is not None
    assert known.seconds > 0
    with bench.acting():
        versions.save_version(
            bench.agent_id, CONFIG | {"model": "openai:loopback", "instructions": "Be brief."}, actor=bench.admin
        )
    assert estimate(bench, set_names=["default"]).basis == "model"
    both = estimate(bench, set_names=["default"], version_ids=[asked, UUID(int=0)])
    assert (both.goldens, both.basis) == (1, "version")


def test_the_offline_model_costs_nothing_even_before_its_first_replay(bench: Bench) -> None:
    golden = bench.golden("List entities")
    before = estimate(bench, set_names=["default"], trials=2)
    assert (before.tokens, before.cost, before.seconds, before.offline) == (0, 0.0, None, True)
    run = bench.run(golden_ids=[golden])
    with bench.acting():
        used = eval_usage.usage_of_run(run.id, actor=bench.admin)
    assert (used.tokens, used.cost) == (0, 0.0)
    after = estimate(bench, set_names=["default"])
    assert (after.tokens, after.cost, after.basis) == (0, 0.0, "version")
    nowhere = estimate(bench, set_names=['no"where}'])
    assert (nowhere.goldens, nowhere.tokens) == (0, None)


def test_what_belongs_together_is_added_up() -> None:
    both = Usage(10, 1, 0.5, 8.0) + Usage(20, 2, 0.25, 3.0)
    assert (both.tokens, both.cost, both.seconds) == (33, 0.75, 8.0)
    assert (both + Usage(1, 1, None, 1.0)).cost is None
