"""The three walks of docs/architecture.md: the modules they name really run, and no call goes back up a layer."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.jobs.executor import Executor
from tests.agents.running import Desk
from tests.conftest import Api, Workspace, soup

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text()
EVALS = "/admin/agent-review/evals"
HTMX = {"HX-Request": "true", "HX-Request-Type": "partial"}
MAX_THUMB_MODULES = 24
# What every request passes, whatever it asks for.
FRAME = re.compile(
    r"app\.(?:security|views\.layout|api\.ops|api\.kit\.(?:limits|problems|cors)|db|models|server|config|errors|actor|logs"
    r"|views\.htmx|views\.format|text\.hidden_characters)\b|app$|app\.tokens$|app\.services\.analytics\.tab_counts$"
)
# A call may go from a layer to the same or a lower one. What is not listed is at the bottom.
LAYERS = {"jobs": 4, "agents": 3, "tools": 3, "views": 3, "api": 3, "security": 3, "services": 2}
SignIn = Callable[..., FlaskClient]


class Walk:
    """Modules of `app/` that ran, in order of their first call, and calls that went back up a layer."""

    def __init__(self) -> None:
        self.modules: dict[str, None] = {}
        self.upward: set[tuple[str, str]] = set()

    def note(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call":
            return
        name = str(frame.f_globals.get("__name__", ""))
        if (name != "app" and not name.startswith("app.")) or frame.f_code.co_name == "<module>":
            return
        self.modules.setdefault(name)
        caller = str(frame.f_back.f_globals.get("__name__", "")) if frame.f_back else ""
        if caller.startswith("app.") and layer(caller) < layer(name):
            self.upward.add((caller, name))

    @property
    def own(self) -> list[str]:
        return [name for name in self.modules if not FRAME.match(name)]


def layer(name: str) -> int:
    return LAYERS.get(name.split(".")[1], 0) if name.count(".") else 0


@contextmanager
def recorded() -> Iterator[Walk]:
    """Record what runs in this thread and in threads that begin meanwhile."""
    walk = Walk()
    threading.setprofile(walk.note)
    sys.setprofile(walk.note)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def documented(heading: str) -> list[tuple[str, str]]:
    """The modules that a walk of the page names, and the function or class in them where it names one."""
    section = PAGE.partition(f"### {heading}\n")[2].partition("\n##")[0]
    found = re.findall(r"`([a-z_]+(?:/[a-z_]+)+)(?:\.(\w+))?`", section)
    assert len(found) > 5, heading
    return [(f"app.{path.replace('/', '.')}", name) for path, name in found]


def check(walk: Walk, heading: str) -> None:
    unknown = [f"{module}.{name}" for module, name in documented(heading) if not hasattr(import_module(module), name)]
    assert not [name for name in unknown if not name.endswith(".")]
    missing = [module for module, _ in documented(heading) if module not in walk.modules]
    assert not missing, f"{heading} names {missing}; what ran: {list(walk.modules)}"
    # Functions that are handed down, such as what counts usage, are called from below on purpose.
    assert not {(a, b) for a, b in walk.upward if a.startswith("app.services")}


@pytest.fixture
def member(sign_in: SignIn, workspace: Workspace) -> FlaskClient:
    return sign_in(workspace.actor("member"))


@pytest.fixture
def admin(sign_in: SignIn, workspace: Workspace) -> FlaskClient:
    return sign_in(workspace.actor("admin"))


def send(client: FlaskClient, url: str, headers: dict[str, str] | None = None, **form: Any) -> Any:
    data = {"csrf_token": client.csrf, **form}  # type: ignore[attr-defined]
    return client.post(url, data=data, headers=headers or {})


def answered_chat(api: Api) -> str:
    said = [("user", "What does Kestrel trade at?"), ("agent", "11.2 times last year's EBITDA.")]
    messages = [{"role": role, "content": text} for role, text in said]
    return str(api.post("/api/v1/chats", {"agent": "analyst", "messages": messages}).json["id"])


def test_a_thumb(member: FlaskClient, api: Callable[..., Api], workspace: Workspace) -> None:
    chat = answered_chat(api(workspace.actor("member"), "ingest"))
    url = f"/chat/{chat}/messages/1/thumb"
    assert send(member, url, signal="helpful", do="give").status_code == 303
    with recorded() as walk:
        answer = send(member, url, HTMX, signal="not_helpful", do="give")
    assert answer.status_code == 200
    check(walk, "A thumb")
    assert not walk.upward
    assert len(walk.own) <= MAX_THUMB_MODULES, walk.own


def test_a_golden(app: Flask, workspace: Workspace, admin: FlaskClient, run_sessions: Callable[[], int]) -> None:
    desk = Desk(app, workspace)
    desk.agent()
    session_id = desk.ask("Say hello.")
    run_sessions()
    with recorded() as walk:
        assert send(admin, f"{EVALS}/promote/{session_id}", set="smoke", should="right").status_code == 303
        assert send(admin, f"{EVALS}/runs", set="smoke").status_code == 303
        # Its threads begin now, so they are recorded too.
        executor = Executor(app, slots=1)
        executor.drain()
        executor.stop()
    assert "1 of 1" in soup(admin.get(f"{EVALS}/sets/smoke")).text
    check(walk, "A golden")


def test_a_knowledge_row(admin: FlaskClient, api: Callable[..., Api], workspace: Workspace) -> None:
    reader = api(workspace.actor("admin"))
    rule = "State EBITDA multiples of Kestrel on last year's figures."
    with recorded() as walk:
        done = send(admin, "/admin/agent-review/knowledge", type="correction", content=rule)
        prompt = reader.get("/api/v1/context")
    assert done.status_code == 303
    assert rule in prompt.json["prompt"]
    check(walk, "A knowledge row")
