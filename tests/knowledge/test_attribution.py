"""What was observed of knowledge: sessions with a row and without it, and rows that are flagged as harmful."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select

from app.db import acting_as, db, transaction
from app.evals.stats import newcombe
from app.jobs.usage import ExposureMeter, UsageWriter, count_receptions
from app.models import SharedContextUsage
from app.services.knowledge import attribution
from app.services.knowledge import rows as knowledge_rows
from app.services.knowledge.attribution import Attribution
from app.services.workspaces import identity
from tests.conftest import Api, Workspace, soup
from tests.knowledge.test_receptions import counted_before, learn, say, worked

__all__ = ["counted_before"]
pytestmark = pytest.mark.usefixtures("app_context")
URL = "/admin/agent-review/knowledge"
FIGURES = ("exposed", "exposed_negative", "unexposed", "unexposed_negative")


def measure(actor: Any) -> None:
    """Count and measure as the job does."""
    meter = ExposureMeter()
    UsageWriter().write()
    while count_receptions(meter):
        pass
    meter.due.add(actor.tenant_id)
    meter.measure()


def figures(actor: Any, row_id: UUID) -> tuple[int, ...]:
    with acting_as(actor):
        found = db.session.scalar(select(SharedContextUsage).where(SharedContextUsage.shared_context_id == row_id))
        return tuple(getattr(found, name) for name in FIGURES) if found else (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("rates", "low", "high"),
    # Newcombe 1998, table II, method 10.
    [((56, 70, 48, 80), 0.0524, 0.3339), ((9, 10, 3, 10), 0.1705, 0.8090), ((10, 10, 0, 20), 0.6791, 1.0)],
)
def test_the_interval_is_newcombes(rates: tuple[int, int, int, int], low: float, high: float) -> None:
    assert newcombe(*rates) == (pytest.approx(low, abs=5e-4), pytest.approx(high, abs=5e-4))


def test_figures_are_hidden_below_thirty_and_a_flag_needs_twenty() -> None:
    assert Attribution(30, 3, 29, 3).difference is None
    assert Attribution(30, 6, 30, 3).difference == pytest.approx(0.1)
    assert not Attribution(19, 19, 100, 0).harmful
    assert Attribution(20, 20, 100, 0).harmful
    assert not Attribution(40, 6, 40, 3).harmful, "that can be chance"
    assert not Attribution(20, 20, 0, 0).harmful, "there is nothing to compare it with"


def test_sessions_with_a_row_and_without_it_are_counted_in_its_scope(workspace: Workspace) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(admin):
        row, other = learn(admin, "Figures are in thousands."), learn(admin, "Ask for the year.")
        with_it = [worked(admin, [str(row)]), worked(admin, [str(row), str(other)], [str(row)])]
        without = [worked(admin), worked(admin, [])]
    say(member, with_it[0], "not_helpful")
    say(member, with_it[0], "unsafe")
    say(member, with_it[1], "helpful")
    say(member, without[0], "inaccurate")
    measure(admin)
    assert figures(admin, row) == (2, 1, 2, 1)
    assert figures(admin, other) == (1, 0, 3, 2)
    say(member, without[1], "inaccurate")
    measure(admin)
    assert figures(admin, row) == (2, 1, 2, 2)


def test_only_context_that_upshot_gave_counts(workspace: Workspace, api: Callable[..., Api]) -> None:
    admin = workspace.actor("admin")
    with acting_as(admin):
        row = learn(admin, "Figures are in thousands.")
    key = api(admin, "ingest", "context", "feedback")
    served = key.get("/api/v1/context").json["sha256"]

    def report(**payload: Any) -> None:
        trace = uuid4().hex
        events = [{"event_type": "context.loaded", "payload": payload}] if payload else []
        body = {"agent": "outside", "status": "completed", "trace_id": trace, "events": events}
        assert key.post("/api/v1/sessions", body).status_code == 201
        assert key.post("/api/v1/feedback", {"trace_id": trace, "signal": "inaccurate"}).status_code == 201

    report(sha256=served)
    report(row_ids=[str(row)], sha256="0" * 64)
    report(row_ids=[str(row)])
    report()
    measure(admin)
    assert figures(admin, row) == (1, 1, 1, 1), "a claim counts on neither side"


def test_a_harmful_row_is_flagged_with_its_sessions(
    workspace: Workspace, make_workspace: Callable[..., Workspace], sign_in: Callable[..., Any], api: Callable[..., Api]
) -> None:
    admin, member = workspace.actor("admin"), workspace.actor("member")
    with acting_as(admin):
        bad, fine = learn(admin, "Round all figures to millions."), learn(admin, "Ask for the year.")
    with_it = [worked(admin, [str(bad), str(fine)]) for _ in range(30)]
    for _ in range(30):
        worked(admin, [str(fine)])
    for session_id in with_it[:12]:
        say(member, session_id, "inaccurate")
    measure(admin)
    client = sign_in(admin)
    listed = soup(client.get(f"{URL}?harmful=yes"))
    assert [one["id"] for one in listed.select("article[data-row]")] == [f"knowledge-{bad}"]
    assert len(soup(client.get(f"{URL}?harmful=no")).select("article[data-row]")) == 1
    shown = soup(client.get(f"{URL}/{bad}")).select_one(f"#observed-{bad}")
    words = " ".join(shown.get_text(" ", strip=True).split())
    assert "With this row 30 sessions 12 negative 40%" in words
    assert "+40 points of negative feedback with it, 95% CI +21 to +58" in words
    assert len(shown.select("li a")) == 12
    assert soup(client.get(f"{URL}/{fine}")).select_one(f"#observed-{fine}").select("li a") == []

    key = api(admin, "admin")
    item = key.get("/api/admin/shared-context?harmful=yes").json["items"][0]["attribution"]
    assert item["harmful"] is True
    assert item["difference"] == pytest.approx(0.4)
    assert item == key.get(f"/api/admin/shared-context/{bad}").json["attribution"]
    foreign = make_workspace().actor("admin")
    assert api(foreign, "admin").get("/api/admin/shared-context?harmful=yes").json["items"] == []

    with acting_as(admin), transaction():
        knowledge_rows.set_state(bad, "inactive", actor=admin, reason="It misleads.")
    with acting_as(identity.product_in(admin.tenant_id)), transaction():
        attribution.measure_exposures(actor=admin)
    assert figures(admin, bad)[0] == 30, "what was seen of a row stays with it"
