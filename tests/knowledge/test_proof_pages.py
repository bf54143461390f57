"""Proofs on the Knowledge tab: asked for, followed, read, what they forbid, and the job that proves all proposals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from bs4 import BeautifulSoup

from app.services.evals import golden as eval_golden
from tests.agents.test_replays import Bench, bench
from tests.conftest import Api, Workspace, soup
from tests.evals.test_proofs import LIST, NO_UPDATE, UPDATE, Knowledge, knowledge

__all__ = ["bench", "knowledge"]
URL = "/admin/agent-review/knowledge"
HTMX = {"HX-Request": "true"}


@pytest.fixture
def client(workspace: Workspace, sign_in: Callable[..., Any]) -> Any:
    return sign_in(workspace.actor("admin"))


def post(client: Any, path: str, **data: Any) -> Any:
    return client.post(f"{URL}/{path}", data={"csrf_token": client.csrf, **data}, headers=HTMX)


def words(element: Any) -> str:
    return " ".join(element.get_text(" ", strip=True).split()).replace(" .", ".")


def card(client: Any, row_id: UUID) -> BeautifulSoup:
    found: BeautifulSoup = soup(client.get(f"{URL}/{row_id}?card=1", headers=HTMX))
    return found


def test_a_proof_is_asked_for_followed_and_read(
    knowledge: Knowledge, client: Any, count_queries: Callable[[], Any]
) -> None:
    goldens = knowledge.goldens()
    row_id = knowledge.propose(LIST)
    with count_queries() as seen:
        asked = words(soup(client.get(f"{URL}/{row_id}/prove")))
    assert len(seen) <= 8, seen
    assert "7 goldens, with and without it: no tokens, no cost. The offline model is free." in asked
    assert "7 of 7 match its condition." in asked
    wrong = post(client, f"{row_id}/prove", trials="many")
    assert (wrong.status_code, wrong.text.count("Enter a number from 1 to 20.")) == (422, 1)

    started = soup(post(client, f"{row_id}/prove", trials="1"))
    assert started.select_one(".u-proving[hx-get]") is not None
    assert not started.select("article [data-key=p]"), "one that is under way is not started again"
    following = soup(client.get(f"{URL}/{row_id}/proof", headers=HTMX))
    assert words(following.select_one(".u-proving span")) == "0 of 14 replays done"
    knowledge.bench.drain()
    done = soup(client.get(f"{URL}/{row_id}/proof", headers=HTMX))
    assert "Fixes 2, breaks 0 of 7" in words(done.select_one(f"article#knowledge-{row_id} .u-proof"))

    with count_queries() as seen:
        page = soup(client.get(f"{URL}/{row_id}"))
    assert len(seen) <= 20, [one[:100] for one in seen]
    proof = page.select_one(f"#proof-{row_id}")
    assert "Fixes 2, breaks 0 of 7 lift +29%, 95% CI −13% to +57%" in words(proof)
    assert "on assistant v1 with version 1 of the row, 1 trial." in words(proof)
    assert "0 tokens, no cost" in words(proof)
    lines = proof.select("tbody tr")
    assert [line.select_one(".u-badge") is not None for line in lines] == [True, True, *[False] * 5]
    links = [link["href"] for link in lines[0].select("a")]
    assert all(client.get(link).status_code == 200 for link in links)
    assert [str(one) in links[0] + links[1] for one in goldens[:2]].count(True) == 1
    assert client.get(f"{URL}/{row_id}/proof").status_code == 303

    shown = words(soup(client.get(f"{URL}?state=proposed")).select_one(f"#knowledge-{row_id}"))
    assert "Fixes 2, breaks 0 of 7" in shown
    assert knowledge.activate(row_id).status_code == 200
    assert "lift +29% (±35, 7 goldens)" in words(card(client, row_id).select_one(".u-meta"))
    with knowledge.bench.acting():
        eval_golden.revoke_golden(goldens[3], actor=knowledge.bench.admin)
    assert "stale" in words(card(client, row_id).select_one(".u-meta"))
    assert "Out of date (goldens were added, changed or revoked)." in words(soup(client.get(f"{URL}/{row_id}")))


def test_what_breaks_a_golden_is_blocked_in_place_and_overridden_with_a_reason(
    knowledge: Knowledge, client: Any
) -> None:
    [*_, golden] = knowledge.goldens()
    bad, fine = knowledge.propose(NO_UPDATE, context="stage"), knowledge.propose(LIST)
    knowledge.prove(bad)

    blocked = post(client, f"{bad}/state", state="active")
    assert blocked.status_code == 409
    form = soup(blocked).select_one("form.u-blocked")
    assert "Not activated. It breaks a golden." in words(form)
    assert UPDATE in words(form)
    assert client.get(form.select_one("li a")["href"]).status_code == 200
    assert str(golden) in form.select_one("li a")["href"]
    without_script = client.post(f"{URL}/{bad}/state", data={"csrf_token": client.csrf, "state": "active"})
    assert (without_script.status_code, "<h1>Not activated</h1>" in without_script.text) == (409, True)

    many = post(client, "decide", ids=[str(bad), str(fine)], state="active", next=URL)
    assert f"Activated 1 of 2. Left out rows that break “{UPDATE}”." in words(soup(many))
    assert (knowledge.state(bad), knowledge.state(fine)) == ("proposed", "active")

    empty = post(client, f"{bad}/state", state="active", overriding="1", override_reason=" ")
    assert (empty.status_code, "Enter a reason." in empty.text) == (409, True)
    done = post(client, f"{bad}/state", state="active", overriding="1", override_reason="The CRM owns stages.")
    assert done.status_code == 200
    page = words(soup(client.get(f"{URL}/{bad}")))
    assert page.count("“The CRM owns stages.”") + page.count("The CRM owns stages.") >= 2, (
        "in the proof and the history"
    )
    assert "overridden Activated anyway by Admin" in page
    [noted] = knowledge.audited("knowledge.proof_overridden", bad)
    assert (noted["reason"], noted["broken"]) == ("The CRM owns stages.", [str(golden)])
    assert "The CRM owns stages." in client.get("/admin/settings/audit").text


def test_without_goldens_the_page_says_what_would_exercise_it(knowledge: Knowledge, client: Any) -> None:
    bench = knowledge.bench
    row_id = knowledge.propose("Convert pounds before comparing.", context="pounds")
    asked = soup(client.get(f"{URL}/{row_id}/prove", headers=HTMX))
    assert "No golden in its scope. Promote a session first." in words(asked)
    said = [bench.desk.ask(text) for text in ("How many pounds is that?", "Sing a song")]
    bench.drain()
    found = soup(client.get(f"{URL}/{row_id}/suggestions"))
    assert [link["href"].rsplit("/", 1)[1] for link in found.select(".u-suggested a")] == [str(said[0])]
    bench.golden("List entities")
    knowledge.prove(row_id)
    assert "No golden tests this row" in words(card(client, row_id))
    assert "1 golden doesn’t test this row" in words(soup(client.get(f"{URL}/{row_id}")))


def test_all_proposals_are_proved_as_one_job(
    knowledge: Knowledge, client: Any, count_queries: Callable[[], Any]
) -> None:
    knowledge.goldens()
    rows = [knowledge.propose(LIST), knowledge.propose(NO_UPDATE, context="stage")]
    asked = words(soup(client.get(f"{URL}/prove")))
    assert "Prove 2 proposed rows? 21 replays: no tokens, no cost." in asked
    started = client.post(f"{URL}/prove", data={"csrf_token": client.csrf})
    assert (started.status_code, started.location) == (303, f"{URL}?state=proposed")
    with count_queries() as seen:
        page = soup(client.get(f"{URL}?state=proposed"))
    assert len(seen) <= 8, [one[:100] for one in seen]
    assert page.select_one("#proving[hx-get]") is not None
    assert len(page.select(".u-proving")) == 2
    bar = soup(client.get(f"{URL}/proving", headers=HTMX))
    assert "Proving 2 rows, 0 of 21 replays done" in words(bar)
    assert client.post(f"{URL}/prove", data={"csrf_token": client.csrf}).status_code == 409
    cancelled = client.post(f"{URL}/{rows[0]}/prove/cancel", data={"csrf_token": client.csrf})
    assert cancelled.status_code == 303
    knowledge.bench.drain()
    assert "Finished all proofs." in client.get(f"{URL}/proving", headers=HTMX).text
    assert [knowledge.read(one)["status"] for one in rows] == ["none", "done"]
    assert client.post(f"{URL}/proving/cancel", data={"csrf_token": client.csrf}).status_code == 303
    assert "Prove 1 proposed row?" in words(soup(client.get(f"{URL}/prove")))


def test_a_form_says_what_a_run_will_take_and_its_page_what_it_took(bench: Bench, client: Any, api: Any) -> None:
    bench.golden("List entities")
    evals = "/admin/agent-review/evals"
    form = soup(client.get(f"{evals}/runs/new?set=default"))
    assert words(form.select_one("#estimate")) == "1 golden: no tokens, no cost. The offline model is free."
    run = bench.run(set_name="default", trials=2)
    assert "0 tokens, no cost" in words(soup(client.get(f"{evals}/runs/{run.id}")).select_one(".u-run-now"))
    known = soup(client.get(f"{evals}/runs/estimate?set=default&trials=3", headers=HTMX))
    assert words(known).startswith("1 golden × 3 trials: ")
    assert words(known).endswith("no tokens, no cost. Based on earlier replays of this version.")
    assert words(soup(client.get(f"{evals}/runs/estimate?set=no'such}}", headers=HTMX))) == ""


def test_members_prove_nothing(
    knowledge: Knowledge, workspace: Workspace, sign_in: Any, api: Callable[..., Api]
) -> None:
    row_id = knowledge.propose(LIST)
    member = sign_in(workspace.actor("member"))
    assert member.get(f"{URL}/{row_id}/prove").status_code in (403, 404)
    assert post(member, f"{row_id}/prove").status_code in (403, 404)
    assert knowledge.read(row_id)["status"] == "none"
