"""What pages show of a judge: the rubric of a replay, overruling in place, and the check with blind labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.models import EvalRun
from tests.agents.test_judge import Court, answer, court
from tests.agents.test_judge_checks import judged_run
from tests.conftest import soup
from tests.loopback_model import LoopbackModel

__all__ = ["court"]
EVALS = "/admin/agent-review/evals"


def diff_of(court: Court, run: EvalRun) -> str:
    [replay] = court.bench.replays(run)
    return f"{EVALS}/diff/{replay.eval_source}/{replay.id}"


def test_a_rubric_is_shown_and_overruled_in_place(court: Court, sign_in: Callable[..., Any]) -> None:
    court.golden()
    run = judged_run(court, answer(tone=1, reason="It is <b>rude</b>."))
    admin, here = sign_in(court.bench.admin), diff_of(court, run)
    rubric = soup(admin.get(here)).select_one("#rubric")
    first = rubric.select_one("tbody tr")
    assert "fail" in first.text
    assert "It is <b>rude</b>." in first.text, "what a judge says is text"
    form = {"csrf_token": admin.csrf, "dimension": "tone", "verdict": "pass", "reason": "It is polite here."}
    assert admin.post(f"{here}/overrule", data=form | {"reason": " "}).status_code == 303
    assert "overruled" not in admin.get(here).get_data(as_text=True)
    assert admin.post(f"{here}/overrule", data=form).status_code == 303
    page = soup(admin.get(here))
    assert f"{court.bench.admin.name} overruled: pass" in page.select_one("#rubric").text
    assert "Passes" in page.select_one(".u-verdict h2").text
    listed = soup(admin.get(f"{EVALS}/judge/overruled"))
    assert "It is polite here." in listed.select_one("tbody").text
    assert "Judge: 1 judged" in " ".join(soup(admin.get(f"{EVALS}/runs/{run.id}")).select_one("#judge").text.split())


def test_without_a_model_the_page_says_how_to_choose_one(court: Court, sign_in: Callable[..., Any]) -> None:
    court.golden()
    run = court.run()
    admin = sign_in(court.bench.admin)
    rubric = soup(admin.get(diff_of(court, run))).select_one("#rubric")
    assert "Not judged. No judge is configured." in " ".join(rubric.text.split())
    assert rubric.select_one("a")["href"] == "/admin/settings#h-judge"
    assert soup(admin.get("/admin/settings")).select_one("#h-judge") is not None


def test_the_check_hides_the_verdict_until_the_label_is_given(court: Court, sign_in: Callable[..., Any]) -> None:
    court.golden()
    judged_run(court, answer(tone=1, sources=1.0, reason="The judge's own words."))
    admin = sign_in(court.bench.admin)
    here = f"{EVALS}/criteria/{court.criteria_id}/check"
    page = admin.get(here)
    assert "own words" not in page.get_data(as_text=True)
    assert "0 of 20 labels" in page.get_data(as_text=True)
    form = {field["name"]: field["value"] for field in soup(page).select(".u-label-form input")}
    after = admin.post(here, data=form | {"verdict": "pass"}, follow_redirects=True)
    note = soup(after).select_one(".u-note").text
    assert "You: " in note
    assert "own words" in note
    assert "1 of 20 labels" in after.get_data(as_text=True)
    again = admin.post(here, data=form | {"verdict": "fail"}, follow_redirects=True).get_data(as_text=True)
    assert "You already labelled this." in again
    assert "reliable" not in again


def test_a_judge_with_many_models_shows_each(court: Court, sign_in: Callable[..., Any]) -> None:
    court.golden()
    judged_run(court, answer())
    with LoopbackModel(answer()) as model:
        court.configure(model)
        court.change(judge_model="openai:other")
        court.run()
    page = soup(sign_in(court.bench.admin).get(f"{EVALS}/criteria/{court.criteria_id}"))
    assert [one.text for one in page.select("#judges .u-mono")] == ["openai:judge", "openai:other"]
