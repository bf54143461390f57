"""Model servers and agents get no more at once than they are allowed, and a server that is busy is waited for."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from app.agents import models, slots
from app.agents.slots import FOR_PEOPLE, FOR_REPLAYS, Slots
from app.config import Settings
from app.errors import Unusable
from tests.agents.conftest import Outing
from tests.loopback import Asked, Reply, as_json
from tests.loopback_model import LoopbackModel, say


class BusyModel(LoopbackModel):
    """Counts how many requests are answered at once. The first `refusals` are answered with `status`."""

    def __init__(self, refusals: int = 0, status: int = 429, retry_after: str | None = "1", **more: Any) -> None:
        super().__init__(say("Done."), **more)
        self.refusals, self.status = refusals, status
        self.headers = {"Retry_After": retry_after} if retry_after is not None else {}
        self.at_once = self.most = 0
        self.came: list[float] = []
        self._counting = threading.Lock()

    def _reply(self, asked: Asked) -> Reply:
        with self._counting:
            self.came.append(time.monotonic())
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        try:
            if len(self.came) <= self.refusals:
                return as_json({"error": {"message": "busy"}}, self.status, **self.headers)
            return super()._reply(asked)
        finally:
            with self._counting:
                self.at_once -= 1


def prepare(outing: Outing, model: LoopbackModel, slots: str = "", **limits: int) -> None:
    outing.set(openai_base_url=model.base_url, model_slots=slots)
    outing.agent(model="openai:loopback", limits={"seconds": 20} | limits)


def ask_together(outing: Outing, number: int) -> list[Any]:
    asked = [outing.desk.ask(f"Hello {place}") for place in range(number)]
    outing.executor.drain()
    return [outing.desk.look(one).session for one in asked]


@pytest.mark.parametrize(("allowed", "runs"), [("1", 0), ("", 1)], ids=["server", "agent"])
def test_a_server_with_one_slot_is_asked_one_by_one(outing: Outing, allowed: str, runs: int) -> None:
    models.preload()
    with BusyModel(mode="slow", seconds=0.8) as model:
        prepare(outing, model, allowed, seconds=3, runs=runs)
        sessions = ask_together(outing, 5)
    assert [one.status for one in sessions] == ["completed"] * 5, "waiting for a turn is not the agent's time"
    assert (len(model.asked), model.most) == (5, 1)


def test_without_a_limit_all_are_asked_at_once(outing: Outing) -> None:
    with BusyModel(mode="slow", seconds=0.5) as model:
        prepare(outing, model, "elsewhere:8080=1")
        ask_together(outing, 4)
    assert model.most > 1


@pytest.mark.parametrize("live", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_when_it_says(outing: Outing, status: int, live: bool) -> None:
    with BusyModel(refusals=2, status=status) as model:
        prepare(outing, model, seconds=2)
        seen = outing.ask("Hello", metadata={"live": live})
    assert seen.session.status == "completed", seen.session.error
    assert len(model.came) == 3
    assert min(after - before for before, after in zip(model.came, model.came[1:], strict=False)) >= 1
    assert (seen.session.input_tokens, seen.payloads("session.failed")) == (40, [])


def test_who_is_busy_without_saying_for_how_long_is_asked_later_and_later(
    outing: Outing, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(slots.ModelServer, "keep_quiet", lambda _, seconds: waited.append(seconds))
    with BusyModel(refusals=100, retry_after=None) as model:
        prepare(outing, model)
        assert 'answered with status 429: {"message": "busy"}' in outing.failed("Hello")
    assert (waited, len(model.came)) == ([1, 2, 4, 8, 16, 32], 7)


def test_a_server_that_wants_an_hour_is_not_waited_for(outing: Outing) -> None:
    with BusyModel(refusals=100, retry_after="3600") as model:
        prepare(outing, model)
        assert "answered with status 429 and asks to wait 3,600 seconds" in outing.failed("Hello")
    assert len(model.came) == 1


def test_people_go_before_replays_and_who_gives_up_takes_no_turn() -> None:
    async def play() -> list[str]:
        turns, order = Slots(), []

        async def take(name: str, kind: int) -> None:
            async with turns.hold(1, (kind, len(name))):
                order.append(name)

        async with turns.hold(1, (FOR_PEOPLE, 0)):
            waiting = [
                asyncio.create_task(take(name, kind))
                for name, kind in (("replay 2.", FOR_REPLAYS), ("replay 1", FOR_REPLAYS), ("gone", FOR_PEOPLE))
            ]
            await asyncio.sleep(0)
            waiting.append(asyncio.create_task(take("person", FOR_PEOPLE)))
            await asyncio.sleep(0)
            waiting[2].cancel()
        # Let in and cancelled in the same moment: the turn goes to the next.
        await asyncio.gather(*waiting, return_exceptions=True)
        assert (turns.used, turns.waiting) == (0, 0)
        return order

    assert asyncio.run(play()) == ["person", "replay 1", "replay 2."]


def test_turns_are_passed_on_between_event_loops() -> None:
    turns, inside, most, guard = Slots(), 0, 0, threading.Lock()

    async def work() -> None:
        nonlocal inside, most
        for _ in range(20):
            async with turns.hold(2, (FOR_REPLAYS, 0)):
                with guard:
                    inside += 1
                    most = max(most, inside)
                await asyncio.sleep(0.001)
                with guard:
                    inside -= 1

    async def several() -> None:
        await asyncio.gather(*(work() for _ in range(3)))

    threads = [threading.Thread(target=lambda: asyncio.run(several())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (most, turns.used, turns.waiting) == (2, 0, 0)


@pytest.mark.parametrize(
    ("base_url", "model", "server"),
    [
        ("http://127.0.0.1:8080/v1", "llama", "127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1", "openai:llama", "127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1", "anthropic:claude-sonnet-4-5", "anthropic"),
        ("", "openai:gpt-5", "openai"),
        ("", "offline", ""),
    ],
)
def test_the_server_of_a_model(base_url: str, model: str, server: str) -> None:
    assert models.server_of(model, Settings(openai_base_url=base_url)) == server


@pytest.mark.parametrize("text", ["none", "0", "4 5", "openai=", "=3", "1001"])
def test_slots_that_cannot_be_read_stop_the_start(text: str) -> None:
    with pytest.raises(Unusable, match="UPSHOT_MODEL_SLOTS cannot be read"):
        Settings.from_env({"UPSHOT_MODEL_SLOTS": text})


def test_slots_are_for_all_servers_or_for_one() -> None:
    from app.formats.model_slots import read_model_slots, slots_for

    limits = read_model_slots("4, 127.0.0.1:8080=1, OpenAI = 16")
    assert [slots_for(name, limits) for name in ("127.0.0.1:8080", "openai", "anthropic")] == [1, 16, 4]
    assert slots_for("openai", {}) is None
