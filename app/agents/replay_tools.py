"""Tools of a replay: answered from the golden's recording, so that nothing happens twice.

What the recording never read is read in a read-only transaction. Only tools that an admin set to `live` are called, and
never one of ours that writes.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import text

from app.agents.history import OpenCall
from app.db import db
from app.evals.recording import READ, RecordedAnswer, Recording
from app.evals.trace import Event as RecordedEvent
from app.services.evals.replays import LIVE, Replay
from app.services.sessions.event_windows import Event
from app.services.sessions.events import NewEvent
from app.tools import Outcome, Tool, ToolScope

# A corrected agent may read records that the recording never read.
READABLE_GROUPS = ("entities-read", "context")
EFFECTS = ("entity.created", "entity.updated", "response.submitted", "knowledge.changed", "feedback.reviewed")
REFUSED = "This tool is not used in replays."
READ_ONLY = text("SET TRANSACTION READ ONLY")
Execute = Callable[[Tool], Awaitable[Outcome]]
Payloads = Callable[[list[int]], Awaitable[dict[int, dict[str, Any]]]]


class RecordedTools:
    """Answers the calls of one replay. Tools that the recording called and the replay does not have, such as those of
    servers, get placeholders."""

    def __init__(self, replay: Replay, tools: Sequence[Tool], payloads: Payloads) -> None:
        self.replay = replay
        self.payloads = payloads
        self.recording = Recording(replay.golden.run)
        self.tools = {tool.name: tool for tool in tools}
        schema = {"type": "object", "properties": {}, "additionalProperties": True}
        for name, writes in self.recording.called().items():
            self.tools.setdefault(name, Tool(name, "recorded", "", schema, writes, _refuse))
        self._effects = _effects_of(replay.golden.run.events)

    def catch_up(self, events: Sequence[Event]) -> None:
        """Look up the calls that a previous attempt got answers to, so that their recordings count as used."""
        answered = {event.payload["call_id"] for event in events if event.event_type == "tool.result"}
        for event in events:
            if event.event_type == "tool.call" and event.payload["id"] in answered:
                self._look_up(event.payload["name"], event.payload.get("arguments"))

    async def answer(self, call: OpenCall, execute: Execute) -> Outcome:
        """Answer a call of the agent."""
        tool = self.tools[call.name]
        policy = self.replay.policy_of(call.name)
        if policy == "refuse":
            return Outcome(REFUSED, is_error=True, replay={"kind": "refused"})
        if policy == LIVE and not (tool.transactional and tool.writes):
            outcome = await execute(tool)
            if tool.writes and not outcome.is_error:
                self.recording.wrote()
            return replace(outcome, replay={"kind": LIVE})
        found = self._look_up(call.name, call.arguments)
        if found.kind == READ:
            outcome = await execute(replace(tool, call=_read_only_call(tool)))
            return replace(outcome, events=[], replay={"kind": READ})
        effects = self._effects.get(found.golden_seq or 0, []) if found.kind == "exact" else []
        whole = await self._full_payloads(found, effects)
        output = whole.get(found.result_seq or 0, {}).get("output", found.output)
        events = [
            NewEvent(one.event_type, {**whole.get(one.sequence, one.payload), "call_id": call.id}) for one in effects
        ]
        return Outcome(output, found.is_error, events, found.mark())

    async def _full_payloads(
        self, found: RecordedAnswer, effects: Sequence[RecordedEvent]
    ) -> dict[int, dict[str, Any]]:
        """The full payloads behind an answer, where the recording keeps only hashes of long ones."""
        places = [place for place in (found.result_seq, *(one.sequence for one in effects)) if place is not None]
        return await self.payloads(places) if places and self.recording.clipped else {}

    def _look_up(self, name: str, arguments: Any) -> RecordedAnswer:
        tool = self.tools.get(name)
        own_read = tool is not None and not tool.writes and tool.group in READABLE_GROUPS
        return self.recording.answer(name, arguments, writes=tool.writes if tool else None, own_read=own_read)


def _read_only_call(tool: Tool) -> Callable[[Any, ToolScope], Outcome]:
    def call(arguments: Any, scope: ToolScope) -> Outcome:
        db.session.execute(READ_ONLY)
        return tool.call(arguments, scope)

    return call


def _effects_of(events: Sequence[RecordedEvent]) -> dict[int, list[RecordedEvent]]:
    """The effects of each recorded call, by the call's sequence in the golden."""
    places = {event.payload.get("id"): event.sequence for event in events if event.event_type == "tool.call"}
    found: dict[int, list[RecordedEvent]] = {}
    for event in events:
        place = places.get(event.payload.get("call_id"))
        if event.event_type in EFFECTS and place is not None:
            found.setdefault(place, []).append(event)
    return found


def _refuse(arguments: Any, scope: ToolScope) -> Outcome:
    return Outcome(REFUSED, is_error=True)
