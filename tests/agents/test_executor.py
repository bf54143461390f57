"""Sessions that wait are claimed, run and ended, as `serve` and `worker` do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Flask

from tests.agents.running import Desk


def test_a_session_that_waits_is_run_to_its_end(app: Flask, workspace: Any, run_sessions: Callable[[], int]) -> None:
    desk = Desk(app, workspace)
    desk.agent()
    asked = desk.ask("Hello there")
    assert run_sessions() >= 1
    seen = desk.look(asked)
    assert seen.session.status == "completed", seen.session.error
    assert seen.types == ["context.loaded", "user.message", "agent.message", "session.completed"]
