"""Agents that are somebody's HTTP address: a run request goes out for each turn, and events come back.

The answer is `{"events": […]}`, or one event on each line. Its events are written together with the answer that ends
them, so that a turn whose process died is asked again as if it had not been.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from app.agents.history import Talk, system_prompt
from app.agents.outside.secrets import hide, hide_in
from app.agents.turn import Answer, Draft, RunFailed, Spent, fit
from app.errors import Invalid, Problem
from app.formats import session_limits
from app.formats.outbound_rules import Target, check_address
from app.formats.rfc3339 import read_past_moment
from app.formats.strict_json import parse
from app.formats.truncation import is_truncated
from app.services.runtime.inputs import RunInputs
from app.services.sessions.events import NewEvent, check_event

if TYPE_CHECKING:
    import httpx2

PROTOCOL = "upshot.run/1"
MOST_BYTES = 4 * 1_048_576
MOST_EVENTS = 500
LONGEST_TROUBLE = 300
LINES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
# What only Upshot says: who asked what, what the prompt held, and how the session ends.
OURS = ("session.", "context.", "user.")
KNOWN = {"event_type", "payload", "occurred_at"}


class Endpoint:
    """One turn of such an agent. `came` holds what has come so far, for the case that the rest never does."""

    def __init__(self, work: RunInputs, allow: str, draft: Draft, spent: Spent, came: list[NewEvent]) -> None:
        self.work = work
        self.allow = allow
        self.draft = draft
        self.spent = spent
        self.came = came
        self.model: str | None = None

    async def run(self, talk: Talk) -> Answer:
        """Ask for the turn; the answer, with the events before it."""
        from app.agents.outside.client import OutboundError, open_client, secret_headers

        target = check_address(self.work.config.endpoint_url, self.allow)
        headers = secret_headers(self.work.config.endpoint_headers_env, target.host)
        seconds = float(self.work.config.limits.seconds)
        try:
            async with open_client(self.allow, headers, most=MOST_BYTES, seconds=seconds) as client:
                await self._ask(client, target, run_request(self.work, talk))
        except OutboundError as trouble:
            raise RunFailed(f"The agent's endpoint failed: {trouble}") from None
        return self._answer()

    async def _ask(self, client: httpx2.AsyncClient, target: Target, asked: dict[str, Any]) -> None:
        key = f"{asked['session']['id']}:{asked['turn']['number']}"
        headers = {"Accept": f"application/json, {LINES[0]}", "Idempotency-Key": key}
        async with client.stream("POST", target.url, json=asked, headers=headers) as response:
            if not response.is_success:
                said = (await response.aread())[:LONGEST_TROUBLE].decode("utf-8", "replace")
                raise RunFailed(
                    hide_in(f"The agent's endpoint answered with status {response.status_code}: {said}").rstrip(": ")
                )
            if response.headers.get("content-type", "").partition(";")[0].strip().lower() in LINES:
                await self._lines(response.aiter_lines())
            else:
                self._whole(await response.aread())

    async def _lines(self, lines: AsyncIterator[str]) -> None:
        number = 0
        async for line in lines:
            number += 1
            if line.strip():
                found = self._parsed(line.encode("utf-8", "surrogatepass"), f"line {number} of the answer")
                self._usage(found) if "usage" in found else self._take(found)
                if self.came and self.came[-1].event_type == "agent.message":
                    await self.draft(self.came[-1].payload["text"])

    def _whole(self, raw: bytes) -> None:
        found = self._parsed(raw, "answer")
        events = found.get("events")
        if not isinstance(events, list) or found.keys() - {"events", "usage"}:
            raise RunFailed('The agent\'s endpoint did not answer with {"events": […]}.')
        for event in events:
            self._take(event)
        self._usage(found)

    def _parsed(self, raw: bytes, what: str) -> dict[str, Any]:
        try:
            found = parse(raw, what)
        except Invalid as refusal:
            raise RunFailed(f"The agent's endpoint was not understood: {refusal.detail}") from None
        if not isinstance(found, dict):
            raise RunFailed(f"The agent's endpoint was not understood: The {what} is no JSON object.")
        return found

    def _take(self, given: Any) -> None:
        place = len(self.came)
        try:
            event = read_event(given, place)
        except Problem as refusal:
            raise RunFailed(f"The agent's endpoint sent an event that does not fit: {refusal.detail}") from None
        if place >= MOST_EVENTS:
            raise RunFailed(f"The agent's endpoint sent more than {MOST_EVENTS} events for one turn.")
        self.spent.tool_calls += event.event_type == "tool.call"
        most = self.work.config.limits.tool_calls
        if self.spent.tool_calls > most:
            raise RunFailed(f"The agent made more than {most} tool calls, which is its limit.")
        self.came.append(event)

    def _usage(self, found: dict[str, Any]) -> None:
        usage = found.get("usage")
        if not isinstance(usage, dict):
            return
        self.spent.input_tokens += _count(usage.get("input_tokens"))
        self.spent.output_tokens += _count(usage.get("output_tokens"))
        cost, model = usage.get("cost"), usage.get("model")
        if self.spent.cost is not None:
            known = isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost <= session_limits.COST
            self.spent.cost = self.spent.cost + Decimal(str(cost)) if known else None
        if isinstance(model, str) and model:
            self.model = hide_in(model)[: session_limits.MODEL]

    def _answer(self) -> Answer:
        if not self.came or self.came[-1].event_type != "agent.message" or self.came[-1].payload.get("interim"):
            raise RunFailed("The agent's endpoint did not end with an agent.message.")
        if not self.came[-1].payload["text"].strip():
            raise RunFailed("The agent's endpoint answered nothing.")
        last = self.came.pop()
        before = [*self.came]
        self.came.clear()
        text, cut = fit(last.payload["text"], self.work.config.limits.output_chars)
        extra = {name: value for name, value in last.payload.items() if name != "text"}
        if is_truncated(last.event_type, last.payload):
            cut = {"truncated": True}
        return Answer(text, extra | cut, before)


def run_request(work: RunInputs, talk: Talk) -> dict[str, Any]:
    """What is sent for a turn."""
    said = messages_of(talk)
    record = work.record
    return {
        "protocol": PROTOCOL,
        "agent": {"slug": work.agent_slug, "name": work.agent_name, "version": work.version},
        "session": {
            "id": str(work.lease.session_id),
            "type": work.session_type,
            "output_type": work.output_type,
            "trace_id": work.trace_id,
            "attempt": work.lease.attempt,
        },
        "turn": {"number": talk.said, "id": work.turn_id, "text": said[-1]["text"]},
        "messages": said,
        "system_prompt": hide_in(system_prompt(work)),
        "knowledge": {
            "text": hide_in(work.prompt.text),
            "row_ids": [str(row_id) for row_id in work.prompt.row_ids],
            "sha256": work.prompt.sha256,
        },
        "record": {"id": str(record.id), "type": record.type_slug, "name": record.name} if record else None,
        "limits": work.config.limits.model_dump(mode="json"),
    }


def messages_of(talk: Talk) -> list[dict[str, str]]:
    """What was said so far, by whom."""
    roles = {"user-prompt": "user", "text": "agent"}
    parts: list[Any] = [part for message in talk.messages for part in message.parts if part.part_kind in roles]
    return [{"role": roles[part.part_kind], "text": hide_in(str(part.content))} for part in parts]


def read_event(given: Any, place: int) -> NewEvent:
    """An event as the API takes it, or Invalid with what to change."""
    if not isinstance(given, dict) or not isinstance(given.get("event_type"), str):
        raise Invalid(f"events.{place}: Send an object with event_type and payload.")
    unknown = sorted(given.keys() - KNOWN)
    if unknown:
        raise Invalid(f"events.{place}.{unknown[0][:60]}: This name is not known here; leave it out.")
    if given["event_type"].startswith(OURS):
        raise Invalid(f"events.{place}.event_type: {given['event_type'][:60]} is written by Upshot; leave it out.")
    payload = given.get("payload", {})
    if not isinstance(payload, dict):
        raise Invalid(f"events.{place}.payload: Send an object.")
    try:
        at = read_past_moment(given["occurred_at"]) if given.get("occurred_at") else None
    except ValueError as wrong:
        raise Invalid(f"events.{place}.occurred_at: {wrong}") from None
    event = NewEvent(given["event_type"], hide(payload), at)
    check_event(event, place)
    return event


def _count(given: Any) -> int:
    known = isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= session_limits.TOKENS
    return int(given) if known else 0
