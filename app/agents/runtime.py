"""Running a session: read what it needs, play its turns, and end it once.

Each batch of events is committed as it happens, under the lease. A run that dies leaves its events behind, and whoever
claims the session next goes on from them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.agents import models
from app.agents.history import Talk, say, talk_of
from app.agents.outside.connections import Outside
from app.agents.outside.endpoint import Endpoint
from app.agents.outside.secrets import hide, hide_in
from app.agents.outside.tools import open_tools
from app.agents.replay_tools import Recorded, only_called
from app.agents.threads import Threads
from app.agents.turn import Answer, RunFailed, Spent, Turn, finish_turn
from app.config import Settings
from app.errors import Problem
from app.evals.trace import Run as Trace
from app.services.evals import replays as eval_replays
from app.services.evals.replays import Replay
from app.services.runtime.inputs import RunInputs, load_inputs
from app.services.sessions import leases
from app.services.sessions.budget import SessionFull, full_reason
from app.services.sessions.event_windows import payloads_at
from app.services.sessions.events import NewEvent
from app.services.sessions.leases import Ending, Lease, LeaseLost
from app.services.workspaces import identity
from app.tools import Tool, find, tailored, tools_of

log = logging.getLogger("upshot")
BROKEN = "Something broke inside Upshot while this session ran; the server's log says what."
Injected = Callable[[UUID, list[UUID]], None]


class Stopped(Exception):
    """Somebody wants the run to stop."""


@dataclass(frozen=True)
class Begun:
    """A session that is ready to run."""

    system: Actor
    work: RunInputs
    talk: Talk
    tools: list[Tool]
    left: list[str]


class Run:
    """One attempt at a session. `injected` is told which knowledge rows were in the prompt."""

    def __init__(self, lease: Lease, threads: Threads, settings: Settings, injected: Injected) -> None:
        self.lease = lease
        self.threads = threads
        self.settings = settings
        self.injected = injected
        self.spent = Spent()
        self.model_name: str | None = None
        self.system: Actor | None = None
        # What an endpoint has told of a turn that has not ended.
        self.came: list[NewEvent] = []
        self.replay: Replay | None = None
        self.recorded: Recorded | None = None
        self.tools: list[Tool] = []

    async def to_the_end(self) -> None:
        """Run the session. It ends as completed or failed, whatever happens, unless the lease was lost."""
        try:
            begun = await self._begin()
            async with asyncio.timeout(begun.work.config.limits.seconds):
                async with Outside(begun.work.config, self.settings.outbound_allow) as outside:
                    ending = await self._play(begun, outside)
            await self._end(ending)
        except LeaseLost:
            log.info("session %s is not ours any more", self.lease.session_id)
        except Stopped:
            await self.cancel()
        except TimeoutError:
            seconds = begun.work.config.limits.seconds
            await self._fail(f"The agent did not come to an answer within {seconds} seconds, which is its limit.")
        except RunFailed as failure:
            await self._fail(str(failure))
        except SessionFull:
            await self._fail(full_reason(), full=True)
        except Problem as refusal:
            await self._fail(refusal.detail)

    async def cancel(self) -> None:
        """End the session as cancelled, if it is still ours."""
        await self._end(Ending(status="cancelled", **self._figures()))

    async def broken(self) -> None:
        """End the session after a fault of our own."""
        await self._fail(BROKEN)

    async def _begin(self) -> Begun:
        product = identity.product_in(self.lease.tenant_id)
        begun = await self.threads.transact(product, self._load)
        self.system, self.replay = begun.system, begun.work.replay
        if self.replay is None:
            self.injected(self.lease.tenant_id, begun.work.prompt.row_ids)
        else:
            # From here on the database lets this run write nothing but its own session.
            self.system = replace(begun.system, hermetic=True)
        return begun

    def _load(self) -> Begun:
        held = leases.hold(self.lease)
        given_up = leases.why_given_up(held)
        if given_up is not None:
            raise RunFailed(given_up)
        work = load_inputs(held)
        talk = talk_of(work)
        left = work.turns[talk.said :]
        events = [_loaded(work)]
        if self.lease.attempt > 1:
            events.insert(0, NewEvent("session.claimed", {"attempt": self.lease.attempt}))
        if left and (talk.answered or not talk.said):
            events.append(NewEvent("user.message", {"text": hide_in(left[0])}))
            say(talk, left.pop(0))
        leases.write(held, events)
        return Begun(held.product, work, talk, self._tools(work), left)

    def _tools(self, work: RunInputs) -> list[Tool]:
        given, submit = tools_of(work.config.tool_groups), find("submitResponse")
        if work.output_type in ("field", "fields") and submit not in given:
            # An extraction that could not hand in what it found would be for nothing.
            given.append(submit)
        record = work.record.id if work.record else None
        return tailored(given, actor=work.actor, entity_id=record, criteria_set_id=work.criteria_set_id)

    async def _play(self, begun: Begun, outside: Outside) -> Ending:
        if not begun.talk.said:
            raise RunFailed("Nothing was said to the agent.")
        if begun.work.kind != "endpoint":
            begun.tools[:] = await open_tools(outside, begun.tools, connect=self._reaches_servers())
        if self.replay is not None:
            begun.tools.extend(only_called(self.replay, begun.tools))
            self.recorded = Recorded(self.replay, begun.tools, self._recorded_payloads)
            self.recorded.catch_up(begun.work.events)
        self.tools = begun.tools
        while True:
            answer = Answer(begun.talk.last_answer)
            if not begun.talk.answered:
                answer = await self._answer(begun)
                event = finish_turn(begun.talk, answer)
            else:
                event = []
            if not begun.left:
                return self._completed(begun.work, answer, event)
            text = begun.left.pop(0)
            await self._record([*event, NewEvent("user.message", {"text": hide_in(text)})])
            say(begun.talk, text)

    async def _answer(self, begun: Begun) -> Answer:
        work = begun.work
        if work.kind == "endpoint":
            endpoint = Endpoint(work, self.settings.outbound_allow, self._draft, self.spent, self.came)
            try:
                return await endpoint.run(begun.talk)
            finally:
                self.model_name = endpoint.model or self.model_name
        self.model_name = models.name_of(work.config.model, self.settings)
        loop = asyncio.get_running_loop()
        model = models.kept_model(work.config.model, self.settings, loop)
        if model is None:
            model = await self.threads.call(lambda: models.find_model(work.config.model, self.settings, loop))
        turn = Turn(
            work, model, begun.tools, self.threads, self._record, self._draft, self.spent, self._settle, self.recorded
        )
        return await turn.run(begun.talk)

    async def _record(self, events: list[NewEvent]) -> None:
        system = self.system
        assert system is not None  # noqa: S101 - known since the run began
        if await self.threads.transact(system, lambda: leases.record(self.lease, events)):
            raise Stopped

    async def _recorded_payloads(self, places: list[int]) -> dict[int, dict[str, Any]]:
        """Payloads of the golden by their numbers, where the recording was too large to be held."""
        system, replay = self.system, self.replay
        assert system is not None  # noqa: S101 - known since the run began
        assert replay is not None  # noqa: S101 - only a replay has a recording
        return await self.threads.transact(system, lambda: payloads_at(replay.golden_id, places, actor=system))

    def _settle(self, events: list[NewEvent]) -> bool:
        """Write events in a transaction that is open already; whether somebody wants the run to stop."""
        return leases.record(self.lease, events)

    async def _draft(self, so_far: str) -> None:
        system = self.system
        assert system is not None  # noqa: S101 - known since the run began
        await self.threads.transact(system, lambda: leases.write_draft(self.lease, so_far))

    def _completed(self, work: RunInputs, answer: Answer, events: list[NewEvent]) -> Ending:
        done: dict[str, Any] = {"input_tokens": self.spent.input_tokens, "output_tokens": self.spent.output_tokens}
        return Ending(
            status="completed",
            events=[*events, NewEvent("session.completed", done)],
            answer=answer.text if events else None,
            turn_id=work.turn_id,
            details=answer.extra,
            **self._figures(),
        )

    async def _fail(self, reason: str, *, full: bool = False) -> None:
        """End the session as failed. What an endpoint told is left out where there is no room for it."""
        reason = hide_in(reason)
        events = [NewEvent("session.failed", {"reason": reason})]
        ending = Ending(status="failed", events=events, error=reason, full=full, **self._figures())
        try:
            await self._end(replace(ending, events=[*([] if full else self.came), *events]))
        except SessionFull:
            await self._end(replace(ending, full=True))

    async def _end(self, ending: Ending) -> None:
        product = identity.product_in(self.lease.tenant_id)
        try:
            result = await self._compare(product, ending)
            await self.threads.transact(product, lambda: self._finish(ending, result))
        except LeaseLost:
            log.info("session %s is not ours any more", self.lease.session_id)

    async def _compare(self, product: Actor, ending: Ending) -> dict[str, Any] | None:
        """The verdict on a replay that completed. No transaction is open while it is compared."""
        replay = self.replay
        if replay is None or ending.status != "completed":
            return None
        tools = [{"name": tool.name, "writes": tool.writes, "parameters": tool.parameters} for tool in self.tools]

        def load() -> Trace:
            held = leases.hold(self.lease)
            return eval_replays.load_trace(replay, held, ending, tools, actor=held.product)

        trace = await self.threads.transact(product, load)
        return await self.threads.call(lambda: eval_replays.compare_replay(replay, trace))

    def _finish(self, ending: Ending, result: dict[str, Any] | None) -> None:
        """End the session if it is still ours. The lease is checked again: it may have been lost meanwhile."""
        held = leases.hold(self.lease)
        if held.eval_source is None:
            leases.end(held, ending, actor=held.product)
        else:
            verdict = result or eval_replays.errored_result(ending.error or f"the replay was {ending.status}")
            eval_replays.finish_replay(held, ending, verdict, actor=held.product)

    def _reaches_servers(self) -> bool:
        """A replay talks to servers of tools only where somebody said that one of their tools is live."""
        return self.replay is None or any(what == eval_replays.LIVE for what in self.replay.tools.values())

    def _figures(self) -> dict[str, Any]:
        if self.model_name is None and not self.spent.input_tokens + self.spent.output_tokens:
            return {}
        return {
            "model": self.model_name,
            "input_tokens": self.spent.input_tokens,
            "output_tokens": self.spent.output_tokens,
            "cost": self.spent.cost,
        }


def _loaded(work: RunInputs) -> NewEvent:
    prompt = work.prompt
    payload = {
        "row_ids": [str(row_id) for row_id in prompt.row_ids],
        "versions": list(prompt.versions),
        "sha256": prompt.sha256,
        "token_count": prompt.token_count,
        "token_budget": prompt.token_budget,
        "types": list(prompt.types),
        "memories": len(work.memories.ids),
    }
    return NewEvent("context.loaded", hide(payload))
