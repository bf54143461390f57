"""Scheduled work: each time once, what was missed once, and never two runs beside each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import select, update

from app.db import acting_as, db, transaction
from app.errors import Forbidden, Invalid, Refused
from app.formats.cron import next_after
from app.jobs.process import start_due_tasks
from app.models import AgentSession, AuditEntry, Task, TaskTick
from app.services.knowledge import rows as knowledge_rows
from app.services.sessions import lists as session_lists
from app.services.sessions import start as session_start
from app.services.tasks import schedules as task_schedules
from app.services.workspaces import people
from app.services.workspaces import store as workspace_store
from tests.agents.running import Desk


class Office(Desk):
    """A workspace with an agent and a schedule."""

    def __init__(self, app: Flask, workspace: Any) -> None:
        super().__init__(app, workspace)
        self.agent()

    @contextmanager
    def at_work(self, role: str = "admin") -> Iterator[Any]:
        actor = self.workspace.actor(role)
        with self.app.app_context(), acting_as(actor), transaction():
            yield actor

    def task(self, cron: str = "*/5 * * * *", **more: str) -> UUID:
        plan = {"name": "Morning report", "agent": "assistant", "message": "Say what is new."} | more
        with self.at_work() as admin:
            return task_schedules.create_task(task_schedules.Plan(cron=cron, **plan), actor=admin).id

    def set(self, task_id: UUID, **values: Any) -> None:
        with self.at_work("system") as system:
            db.session.execute(
                update(Task).where(Task.tenant_id == system.tenant_id, Task.id == task_id).values(values)
            )

    def get(self, task_id: UUID) -> Task:
        with self.at_work() as admin:
            return task_schedules.get_task(task_id, actor=admin)[0]

    def ticks(self, task_id: UUID) -> list[TaskTick]:
        with self.at_work() as admin:
            wanted = select(TaskTick).where(TaskTick.tenant_id == admin.tenant_id, TaskTick.task_id == task_id)
            return list(db.session.scalars(wanted.order_by(TaskTick.scheduled_for)))

    def look_at_the_clock(self) -> int:
        with self.app.app_context():
            return start_due_tasks("a-process")


@pytest.fixture
def office(app: Flask, workspace: Any) -> Office:
    return Office(app, workspace)


def ago(**spans: float) -> datetime:
    return datetime.now(UTC) - timedelta(**spans)


def test_a_task_whose_time_has_come_is_run_once_and_says_how_it_ended(
    office: Office, run_sessions: Callable[[], int]
) -> None:
    task_id = office.task()
    due = ago(minutes=2)
    office.set(task_id, next_run_at=due)
    assert office.look_at_the_clock() == 1
    assert office.look_at_the_clock() == 0
    [tick] = office.ticks(task_id)
    assert (tick.status, tick.scheduled_for) == ("claimed", due)
    run_sessions()
    [tick] = office.ticks(task_id)
    task = office.get(task_id)
    assert (tick.status, task.last_outcome) == ("done", "done")
    assert tick.session_id is not None
    seen = office.look(tick.session_id)
    assert seen.payloads("user.message") == [{"text": "Say what is new."}]
    assert seen.session.created_by == office.workspace.actor("admin").id
    assert task.next_run_at == next_after("*/5 * * * *", tick.created_at)


def test_what_was_missed_is_made_up_for_once(office: Office) -> None:
    task_id = office.task()
    office.set(task_id, next_run_at=ago(hours=30))
    office.look_at_the_clock()
    office.look_at_the_clock()
    assert len(office.ticks(task_id)) == 1
    later = office.get(task_id).next_run_at
    assert later is not None
    assert later > datetime.now(UTC)


def test_a_clock_that_was_set_back_runs_nothing_twice(office: Office, run_sessions: Callable[[], int]) -> None:
    task_id = office.task()
    due = ago(minutes=1)
    office.set(task_id, next_run_at=due)
    office.look_at_the_clock()
    run_sessions()
    # The same time is due again, as after a jump back of the clock of whoever computed it.
    office.set(task_id, next_run_at=due)
    assert office.look_at_the_clock() == 0
    assert [tick.status for tick in office.ticks(task_id)] == ["done"]


def test_a_run_that_is_still_under_way_lets_the_next_time_pass(office: Office) -> None:
    task_id = office.task()
    for minutes in (3, 2):
        office.set(task_id, next_run_at=ago(minutes=minutes))
        office.look_at_the_clock()
    first, second = office.ticks(task_id)
    assert (first.status, second.status) == ("claimed", "skipped")
    assert second.detail == "The previous run was still in progress."
    assert second.session_id is None
    with office.at_work() as admin:
        assert first.session_id is not None
        session_start.stop_run(first.session_id, actor=admin)
    assert [tick.status for tick in office.ticks(task_id)] == ["abandoned", "skipped"]
    assert office.get(task_id).last_outcome == "abandoned"


def test_a_run_whose_session_was_deleted_is_given_up(office: Office) -> None:
    task_id = office.task()
    office.set(task_id, next_run_at=ago(minutes=3))
    office.look_at_the_clock()
    with office.at_work() as admin:
        session_id = db.session.scalar(select(TaskTick.session_id).where(TaskTick.task_id == task_id))
        assert session_id is not None
        session_lists.delete_sessions([session_id], actor=admin)
    office.set(task_id, next_run_at=ago(minutes=1))
    office.look_at_the_clock()
    assert [tick.status for tick in office.ticks(task_id)] == ["abandoned", "claimed"]


def test_a_failed_run_is_a_failed_task_and_one_feedback_row(office: Office, run_sessions: Callable[[], int]) -> None:
    office.agent("keyless", model="openai:gpt-5")
    task_id = office.task(agent="keyless")
    office.set(task_id, next_run_at=ago(minutes=1))
    office.look_at_the_clock()
    run_sessions()
    task = office.get(task_id)
    assert task.last_outcome == "failed"
    assert task.last_detail is not None
    assert "OPENAI_API_KEY" in task.last_detail


def test_a_schedule_of_someone_who_left_fails_and_says_so(office: Office) -> None:
    task_id = office.task()
    admin, owner = office.workspace.actor("admin"), office.workspace.actor("owner")
    with office.app.app_context(), acting_as(owner), transaction():
        people.remove_member(admin.id, actor=owner)
    with office.app.app_context(), acting_as(owner), transaction():
        db.session.execute(update(Task).where(Task.id == task_id).values(next_run_at=ago(minutes=1)))
    assert office.look_at_the_clock() == 1
    with office.app.app_context(), acting_as(owner), transaction():
        task, _ = task_schedules.get_task(task_id, actor=owner)
        assert task.last_outcome == "failed"
        assert task.last_detail is not None
        assert "has left the workspace" in task.last_detail
        assert db.session.scalar(select(AgentSession.id).where(AgentSession.title == "Morning report")) is None


def test_a_task_that_is_off_does_not_run_and_run_now_does(office: Office, run_sessions: Callable[[], int]) -> None:
    task_id = office.task()
    with office.at_work() as admin:
        assert task_schedules.switch_task(task_id, False, actor=admin).next_run_at is None
    office.set(task_id, next_run_at=ago(minutes=1))
    assert office.look_at_the_clock() == 0
    with office.at_work() as admin:
        tick = task_schedules.start_task(task_id, actor=admin)
    with office.at_work() as admin, pytest.raises(Refused, match="still in progress"):
        task_schedules.start_task(task_id, actor=admin)
    run_sessions()
    assert [one.status for one in office.ticks(task_id)] == ["done"]
    assert office.ticks(task_id)[0].id == tick.id


def test_the_review_task_is_switched_and_never_taken_away(office: Office) -> None:
    with office.at_work() as admin:
        review = task_schedules.review_task(actor=admin).id
        for on in (True, False):
            with transaction():
                task = task_schedules.switch_task(review, on, actor=admin)
                assert (task.enabled, task.next_run_at is not None) == (on, on)
            assert workspace_store.get_settings(admin).review_enabled is on
        with pytest.raises(Refused, match="Settings → Review"):
            task_schedules.delete_task(review, actor=admin)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"name": " "}, "name"),
        ({"message": ""}, "message"),
        ({"agent": "nobody"}, "agent"),
        ({"agent": "feedback-review-agent"}, "agent"),
        ({"cron": "99 * * * *"}, "cron"),
        ({"cron": "0 0 31 2 *"}, "cron"),
        ({"cron": "soon"}, "cron"),
    ],
)
def test_what_cannot_be_scheduled_is_refused_by_its_field(office: Office, changed: dict[str, str], field: str) -> None:
    with pytest.raises(Invalid) as refusal:
        office.task(**changed)
    assert set(refusal.value.fields) == {field}


def test_only_admins_schedule_and_every_change_is_on_record(office: Office) -> None:
    task_id = office.task()
    plan = task_schedules.Plan("Evening report", "assistant", "Say what was new.", "0 18 * * 1-5")
    with office.at_work("member") as member, pytest.raises(Forbidden):
        task_schedules.change_task(task_id, plan, actor=member)
    with office.at_work() as admin:
        task_schedules.change_task(task_id, plan, actor=admin)
        task_schedules.switch_task(task_id, False, actor=admin)
        task_schedules.switch_task(task_id, True, actor=admin)
        task_schedules.start_task(task_id, actor=admin)
        assert task_schedules.delete_task(task_id, actor=admin) == "Evening report"
    with office.at_work() as admin:
        found = db.session.scalars(
            select(AuditEntry.action)
            .where(AuditEntry.subject_id == task_id)
            .order_by(AuditEntry.created_at, AuditEntry.id)
        )
        assert sorted(found) == sorted(
            ["task.created", "task.changed", "task.disabled", "task.enabled", "task.started", "task.deleted"]
        )


def test_what_was_used_is_written_in_batches_and_ranks_follow_age(
    office: Office, executor: Any, run_sessions: Callable[[], int]
) -> None:
    from app.learning.ranking import rank
    from app.models import SharedContext, SharedContextUsage

    with office.at_work() as admin:
        row = knowledge_rows.add_row(
            knowledge_rows.NewRow(type="guideline", content="Answer in one sentence."), actor=admin
        )
        old = ago(days=90)
        db.session.execute(update(SharedContext).where(SharedContext.id == row.id).values(updated_at=old))
    for _ in range(3):
        office.ask("Hello there")
    executor.usage.ranked_at.clear()
    run_sessions()
    with office.at_work():
        usage = db.session.scalar(select(SharedContextUsage).where(SharedContextUsage.shared_context_id == row.id))
        assert usage is not None
        assert usage.injected == 3
        fresh = db.session.scalar(select(SharedContext.rank).where(SharedContext.id == row.id))
        assert fresh == pytest.approx(rank(90), abs=0.001)


def set_back(office: Office, task_id: UUID, **span: float) -> None:
    """As if the clock had been set back: everything that was written down is that much later than it is now."""
    with office.at_work("system") as system:
        for table in (Task, TaskTick):
            own = table.id == task_id if table is Task else TaskTick.task_id == task_id
            moved = (
                {"next_run_at": Task.next_run_at + timedelta(**span)}
                if table is Task
                else {
                    "scheduled_for": TaskTick.scheduled_for + timedelta(**span),
                    "created_at": TaskTick.created_at + timedelta(**span),
                }
            )
            db.session.execute(update(table).where(table.tenant_id == system.tenant_id, own).values(moved))


def test_a_task_keeps_its_pace_when_the_clock_is_set_back(office: Office, run_sessions: Callable[[], int]) -> None:
    task_id = office.task("* * * * *")
    office.set(task_id, next_run_at=ago(seconds=1))
    assert office.look_at_the_clock() == 1
    run_sessions()
    set_back(office, task_id, hours=1)
    assert office.look_at_the_clock() == 0
    due = office.get(task_id).next_run_at
    assert due is not None
    assert timedelta(0) < due - datetime.now(UTC) <= timedelta(minutes=2)


def test_a_time_that_comes_again_runs_once_more_and_no_more(office: Office, run_sessions: Callable[[], int]) -> None:
    """The tick of the same minute is there already, from before the clock was set back."""
    task_id = office.task("* * * * *")
    minute = datetime.now(UTC).replace(second=0, microsecond=0)
    office.set(task_id, next_run_at=minute)
    assert office.look_at_the_clock() == 1
    run_sessions()
    with office.at_work("system") as system:
        own = (TaskTick.tenant_id == system.tenant_id, TaskTick.task_id == task_id)
        db.session.execute(update(TaskTick).where(*own).values(created_at=datetime.now(UTC) + timedelta(hours=1)))
    office.set(task_id, next_run_at=minute)
    assert [office.look_at_the_clock() for _ in range(3)] == [1, 0, 0]
    assert len(office.ticks(task_id)) == 2
    run_sessions()


def test_a_daily_task_does_not_run_twice_when_the_clock_is_set_back(
    office: Office, run_sessions: Callable[[], int]
) -> None:
    task_id = office.task("0 2 * * *")
    office.set(task_id, next_run_at=ago(minutes=5))
    assert office.look_at_the_clock() == 1
    run_sessions()
    set_back(office, task_id, hours=1)
    office.look_at_the_clock()
    due = office.get(task_id).next_run_at
    assert due is not None
    assert due - datetime.now(UTC) > timedelta(hours=1)
    assert len(office.ticks(task_id)) == 1


def test_jobs_wake_up_when_the_clock_is_set_back(app: Flask) -> None:
    from app.jobs.process import Jobs

    jobs = Jobs(app)
    jobs.clock.start(paused=True)
    try:
        late = datetime.now(UTC) + timedelta(hours=1)
        for job in jobs.clock.get_jobs():
            job.modify(next_run_time=late)
        jobs._clock_offset += 3600
        watching = threading.Thread(target=jobs._follow_clock, daemon=True)
        watching.start()
        deadline = time.monotonic() + 30
        while any(job.next_run_time >= late for job in jobs.clock.get_jobs()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        jobs.stop()
