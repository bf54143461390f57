"""A judged run over 200 goldens, a judge that takes a second, one worker with 16 slots: how long until it ended.

The offline model replays; the judge is a stub on loopback. The ideal is 200 / 16, rounded up: 13 seconds.
"""

from __future__ import annotations

import json
import math
from typing import Any

import psycopg

from bench.evals import Bench, work_until
from bench.places import database, environment, folder, free_port
from bench.slow_model import SlowModel, slow_model

GOLDENS = 200
SLOTS = 16
SECONDS = 1.0
IDEAL = float(math.ceil(GOLDENS / SLOTS))
AT_MOST = 1.5 * IDEAL
TONE = {"kind": "rating", "anchors": {"1": "Rude.", "5": "Kind."}}
DONE = "SELECT count(*) FROM sessions WHERE status = 'completed'"
JUDGED = "SELECT count(*) FROM judgements WHERE status = 'judged' AND NOT cached"


def measure() -> dict[str, Any]:
    with folder() as path, database(path) as (app_url, owner_url, superuser), slow_model(SECONDS) as model:
        model.answer = lambda _: json.dumps({"tone_reason": "It is kind.", "tone_score": 5})
        env = {
            **environment(path, free_port()),
            "UPSHOT_DATABASE_URL": app_url,
            "UPSHOT_SECRET_KEY": "only-for-a-measurement-0123456789",
            "UPSHOT_OPENAI_BASE_URL": model.url,
            "UPSHOT_SLOTS": str(SLOTS),
        }
        bench = Bench(app_url, owner_url, path, model="offline", goldens=GOLDENS)
        bench.ask()
        work_until(env, superuser, DONE, GOLDENS)
        bench.promote_and_start(_criteria(bench))
        spent = work_until(env, superuser, "SELECT count(*) FROM eval_runs WHERE status = 'completed'", 1)
        _check(superuser, model)
    return {"goldens": GOLDENS, "slots": SLOTS, "seconds": round(spent, 2), "ideal": IDEAL, "at_most": AT_MOST}


def _criteria(bench: Bench) -> Any:
    from app.db import acting_as, transaction
    from app.services.entities import criteria
    from app.services.workspaces import store as workspace_store

    with bench.app.app_context(), acting_as(bench.system), transaction():
        workspace_store.change_settings({"judge_model": "openai:judge", "judge_concurrency": SLOTS}, actor=bench.system)
        made = criteria.create_criteria_set(slug="tone", name="Tone", dimensions={"tone": TONE}, actor=bench.system)
        return made.id


def _check(superuser: str, model: SlowModel) -> None:
    with psycopg.connect(superuser) as connection:
        row = connection.execute(JUDGED).fetchone()
    assert row is not None
    assert (row[0], model.asked) == (GOLDENS, GOLDENS), (row, model.asked)
