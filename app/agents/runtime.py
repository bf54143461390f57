"""Runs a session: load what it needs, play its turns, and end it once.

Each batch of events is committed as it happens, under the lease. A run that dies leaves its events behind, and the next
process that claims the session continues from them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from app.actor import Actor
from app.agents import models
from app.agents.history import History, add_agent_message, add_user_message, build_history
from app.agents.outside.endpoint import Endpoint
from app.agents.outside.tools import RunConnections
from app.agents.replay_tools import RecordedTools
from app.agents.review import Reviewer
from app.agents.review_model import ModelReview
from app.agents.slots import FOR_PEOPLE, FOR_REPLAYS, NO_LIMIT, ModelAccess, Rank, next_rank, run_of_agent, server_named
from app.agents.turn import Answer, Record, RunFailed, StopRequested, Threads, Turn, Usage
from app.config import Settings, redact, redact_text
from app.errors import Problem
from app.evals.trace import Run as Trace
from app.formats.agent_config import OFFLINE
from app.formats.model_slots import read_model_slots, slots_for
from app.services.evals import replays as eval_replays
from app.services.evals.replays import Replay
from app.services.runtime.inputs import RunInputs, load_inputs
from app.services.sessions import leases
from app.services.sessions.event_windows import payloads_at
from app.services.sessions.events import NewEvent, SessionFull, full_reason
from app.services.sessions.leases import Lease, LeaseLost, RunOutcome
from app.services.workspaces import identity
from app.tools import Tool, find_tool, tailor_tools, tools_of

if TYPE_CHECKING:
    from pydantic_ai.models import Model

log = logging.getLogger("upshot")
INTERNAL_ERROR = "Upshot failed while this session ran. See the server log."
Injected = Callable[[UUID, list[UUID]], None]


@dataclass(eq=False)
class Run:
    """One attempt at a session. `injected` is called with the knowledge rows in the prompt. `received` are events of an
    endpoint's turn that has not ended. `stop_requested` says that the task was cancelled to end the session as
    cancelled."""

    lease: Lease
    threads: Threads
    settings: Settings
    injected: Injected
    usage: Usage = field(default_factory=Usage)
    received: list[NewEvent] = field(default_factory=list)
    replay: Replay | None = None
    recorded: RecordedTools | None = None
    tools: list[Tool] = field(default_factory=list)
    rank: Rank = (FOR_PEOPLE, 0)
    deadline: asyncio.Timeout | None = None
    task: asyncio.Task[None] = field(init=False)
    stop_requested: bool = False

    def __post_init__(self) -> None:
        self.product = self.writer = identity.product_in(self.lease.tenant_id)

    async def run(self) -> None:
        """Run the session to its end: completed, failed or cancelled, unless the lease was lost."""
        try:
            work, history = await self._prepare()
            limits = work.config.limits
            if work.dry_run is not None:
                # Calls of an attempt that was lost keep their ids.
                self.usage.tool_calls = history.calls
                await self._end(await self._review(work))
                return
            # Waiting for a turn is not the agent's time.
            async with run_of_agent(work.actor.agent_id, limits.runs, self.rank):
                async with asyncio.timeout(limits.seconds) as self.deadline:
                    async with RunConnections(work.config, self.settings.outbound_allow) as outside:
                        ending = await self._play(work, history, outside)
            await self._end(ending)
        except LeaseLost:
            log.info("session %s is not ours any more", self.lease.session_id)
        except StopRequested:
            await self.cancel()
        except TimeoutError:
            seconds = work.config.limits.seconds
            await self._fail(f"The agent didn’t answer within its limit of {seconds} seconds.")
        except RunFailed as failure:
            await self._fail(str(failure))
        except SessionFull:
            await self._fail(full_reason(), full=True)
        except Problem as refusal:
            await self._fail(refusal.detail)

    async def cancel(self) -> None:
        """End the session as cancelled, if its lease is still held."""
        await self._end(RunOutcome(status="cancelled", **self._figures()))

    async def fail_internally(self) -> None:
        """End the session after an unexpected error of Upshot."""
        await self._fail(INTERNAL_ERROR)

    async def _prepare(self) -> tuple[RunInputs, History]:
        work, history, self.writer = await self.threads.transact(self.product, self._load)
        self.replay = work.replay
        self.rank = next_rank(FOR_PEOPLE if self.replay is None else FOR_REPLAYS)
        if self.replay is None:
            self.injected(self.lease.tenant_id, work.prompt.row_ids)
        else:
            # From here on the database lets this run write nothing but its own session.
            self.writer = replace(self.writer, hermetic=True)
        return work, history

    def _load(self) -> tuple[RunInputs, History, Actor]:
        held = leases.hold(self.lease)
        given_up = leases.why_given_up(held)
        if given_up is not None:
            raise RunFailed(given_up)
        work = load_inputs(held)
        history = build_history(work)
        loaded = {**work.prompt.loaded(), "memories": len(work.memories.ids)}
        events = [NewEvent("context.loaded", redact(loaded))]
        if self.lease.attempt > 1:
            events.insert(0, NewEvent("session.claimed", {"attempt": self.lease.attempt}))
        if history.answered or not history.prompts:
            events += _next_prompt(work, history)
        leases.write(held, events)
        self.tools = self._tools(work)
        return work, history, held.product

    def _tools(self, work: RunInputs) -> list[Tool]:
        given, submit = tools_of(work.config.tool_groups), find_tool("submitResponse")
        if work.output_type in ("field", "fields") and submit not in given:
            # An extraction needs this tool to submit what it finds.
            given.append(submit)
        record = work.record.id if work.record else None
        return tailor_tools(given, actor=work.actor, entity_id=record, criteria_set_id=work.criteria_set_id)

    async def _play(self, work: RunInputs, history: History, outside: RunConnections) -> RunOutcome:
        if not history.prompts:
            raise RunFailed("The session has no message for the agent.")
        if work.kind != "endpoint":
            self.tools = await outside.open_tools(self.tools, connect=self._reaches_servers())
        if self.replay is not None:
            self.recorded = RecordedTools(self.replay, self.tools, self._recorded_payloads)
            self.tools = list(self.recorded.tools.values())
            self.recorded.catch_up(work.events)
        while True:
            answer, events = Answer(history.last_answer), []
            if not history.answered:
                answer = await self._answer(work, history)
                add_agent_message(history, answer.text)
                events = [*answer.before, NewEvent("agent.message", {"text": answer.text, **answer.extra})]
            prompt = _next_prompt(work, history)
            if not prompt:
                return self._completed(work, answer, events)
            await self._record([*events, *prompt])

    async def _review(self, work: RunInputs) -> RunOutcome:
        """Review feedback, which takes as long as there is feedback; the agent's limits hold for each group that its
        model is asked about. A dry run never asks a model: it would have to be asked again for the review itself."""
        reviewer = Reviewer(self.lease, self.threads, work.actor, bool(work.dry_run))
        configured, loop = work.config.model or self.settings.model, asyncio.get_running_loop()
        if configured != OFFLINE and not work.dry_run:
            model = await self.threads.call(lambda: models.find_model(work.config.model, self.settings, loop))
            self.usage.model = reviewer.model = configured
            asking = ModelReview(reviewer, work, model, self.usage, self._record, partial(self._group_turn, work))
            reviewer.judge = asking.judge
        said = await reviewer.run()
        return self._completed(work, Answer(said), [NewEvent("agent.message", {"text": said})])

    def _group_turn(
        self,
        work: RunInputs,
        model: Model,
        tools: dict[str, Tool],
        record: Record,
        usage: Usage,
        deadline: asyncio.Timeout,
    ) -> Turn:
        """The turn in which the model of a review is asked about one group of feedback."""
        self.deadline = deadline
        write = partial(leases.record, self.lease)
        access = self._access(work.config.model)
        return Turn(work, model, tools, self.threads, record, self._draft, usage, write, None, access)

    async def _answer(self, work: RunInputs, history: History) -> Answer:
        if work.kind == "endpoint":
            endpoint = Endpoint(work, self.settings.outbound_allow, self._draft, self.usage, self.received)
            return await endpoint.run(history)
        self.usage.model = work.config.model or self.settings.model
        loop = asyncio.get_running_loop()
        model = await self.threads.call(lambda: models.find_model(work.config.model, self.settings, loop))
        tools = {tool.name: tool for tool in self.tools}
        write = partial(leases.record, self.lease)
        turn = Turn(
            work, model, tools, self.threads, self._record, self._draft, self.usage, write, self.recorded,
            self._access(work.config.model),
        )  # fmt: skip
        return await turn.run(history)

    def _access(self, configured: str) -> ModelAccess | None:
        """The way to the server of a model, with as many at once as the operator allows."""
        server = models.server_of(configured, self.settings)
        if not server:
            return None
        most = slots_for(server, read_model_slots(self.settings.model_slots)) or NO_LIMIT
        return ModelAccess(server_named(server), most, self.rank, self.deadline)

    async def _record(self, events: list[NewEvent]) -> None:
        if await self.threads.transact(self.writer, lambda: leases.record(self.lease, events)):
            raise StopRequested

    async def _recorded_payloads(self, places: list[int]) -> dict[int, dict[str, Any]]:
        """Load payloads of the golden by sequence, where the recording holds only their hashes."""
        assert self.replay is not None  # noqa: S101 - only a replay has a recording
        writer, golden_id = self.writer, self.replay.golden_id
        return await self.threads.transact(writer, lambda: payloads_at(golden_id, places, actor=writer))

    async def _draft(self, so_far: str) -> None:
        await self.threads.transact(self.writer, lambda: leases.write_draft(self.lease, so_far))

    def _completed(self, work: RunInputs, answer: Answer, events: list[NewEvent]) -> RunOutcome:
        done = {"input_tokens": self.usage.input_tokens, "output_tokens": self.usage.output_tokens}
        return RunOutcome(
            status="completed",
            events=[*events, NewEvent("session.completed", done)],
            answer=answer.text if events else None,
            turn_id=work.turn_id,
            details=answer.extra,
            **self._figures(),
        )

    async def _fail(self, reason: str, *, full: bool = False) -> None:
        """End the session as failed. Events of an endpoint are left out where the session is full."""
        reason = redact_text(reason)
        events = [NewEvent("session.failed", {"reason": reason})]
        ending = RunOutcome(status="failed", events=events, error=reason, full=full, **self._figures())
        try:
            await self._end(replace(ending, events=[*([] if full else self.received), *events]))
        except SessionFull:
            await self._end(replace(ending, full=True))

    async def _end(self, ending: RunOutcome) -> None:
        try:
            result = await self._compare(ending)
            await self.threads.transact(self.product, lambda: self._finish(ending, result))
        except LeaseLost:
            log.info("session %s is not ours any more", self.lease.session_id)

    async def _compare(self, ending: RunOutcome) -> dict[str, Any] | None:
        """The verdict on a replay that completed. No transaction is open while it is compared."""
        replay = self.replay
        if replay is None or ending.status != "completed":
            return None
        tools = [{"name": tool.name, "writes": tool.writes, "parameters": tool.parameters} for tool in self.tools]

        def load() -> Trace:
            held = leases.hold(self.lease)
            return eval_replays.load_trace(replay, held, ending, tools, actor=held.product)

        trace = await self.threads.transact(self.product, load)
        return await self.threads.call(lambda: eval_replays.compare_replay(replay, trace))

    def _finish(self, ending: RunOutcome, result: dict[str, Any] | None) -> None:
        """End the session if it is still ours. The lease is checked again: it may have been lost meanwhile."""
        held = leases.hold(self.lease)
        if held.eval_source is None:
            leases.end(held, ending, actor=held.product)
        else:
            verdict = result or eval_replays.errored_result(ending.error or f"the replay was {ending.status}")
            eval_replays.finish_replay(held, ending, verdict, actor=held.product)

    def _reaches_servers(self) -> bool:
        """A replay connects to tool servers only if one of its tools is set to live."""
        return self.replay is None or any(what == eval_replays.LIVE for what in self.replay.tools.values())

    def _figures(self) -> dict[str, Any]:
        usage = self.usage
        if usage.model is None and not usage.input_tokens + usage.output_tokens:
            return {}
        return {name: getattr(usage, name) for name in ("model", "input_tokens", "output_tokens", "cost")}


def _next_prompt(work: RunInputs, history: History) -> list[NewEvent]:
    """Say the next of the session's prompts to the agent, if there is one more. Returns its event."""
    left = work.turns[history.prompts :]
    if not left:
        return []
    add_user_message(history, left[0])
    return [NewEvent("user.message", {"text": redact_text(left[0])})]
