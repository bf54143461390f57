"""Agents behind an HTTP endpoint: one request for each turn, answered with events.

The response is `{"events": […]}`, or one event per line. Events are written together with the answer that ends the
turn, so a turn whose process died is simply requested again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, field_validator

from app.agents.history import History, system_prompt
from app.agents.turn import Answer, Draft, RunFailed, Usage, truncate
from app.config import redact, redact_text
from app.errors import Invalid
from app.formats import session_limits
from app.formats.messages import sentence
from app.formats.outbound_rules import Target, check_address
from app.formats.rfc3339 import read_past_moment
from app.formats.strict_json import parse
from app.formats.tool_results import is_truncated
from app.services.runtime.inputs import RunInputs
from app.services.sessions.events import NewEvent, check_event

if TYPE_CHECKING:
    import httpx2

PROTOCOL = "upshot.run/1"
MAX_BYTES = 4 * 1_048_576
MAX_EVENTS = 500
MAX_ERROR = 300
LINE_TYPES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")


@dataclass
class Endpoint:
    """One turn of such an agent. `received` has the events so far, also when the rest never comes."""

    work: RunInputs
    allow: str
    draft: Draft
    usage: Usage
    received: list[NewEvent]

    async def run(self, history: History) -> Answer:
        """Request the turn and return the answer with the events before it."""
        from app.agents.outside.client import OutboundError, open_client, secret_headers

        target = check_address(self.work.config.endpoint_url, self.allow)
        headers = secret_headers(self.work.config.endpoint_headers_env, target.host)
        seconds = float(self.work.config.limits.seconds)
        try:
            async with open_client(self.allow, headers, most=MAX_BYTES, seconds=seconds) as client:
                await self._ask(client, target, build_request(self.work, history))
        except OutboundError as trouble:
            raise RunFailed(f"The agent's endpoint failed: {trouble}") from None
        except Invalid as refusal:
            raise RunFailed(f"The agent's endpoint was not understood: {refusal.detail}") from None
        return self._answer()

    async def _ask(self, client: httpx2.AsyncClient, target: Target, asked: dict[str, Any]) -> None:
        key = f"{asked['session']['id']}:{asked['turn']['number']}"
        headers = {"Accept": f"application/json, {LINE_TYPES[0]}", "Idempotency-Key": key}
        async with client.stream("POST", target.url, json=asked, headers=headers) as response:
            if not response.is_success:
                body = (await response.aread())[:MAX_ERROR].decode("utf-8", "replace")
                about = f"The agent's endpoint answered with status {response.status_code}: {body}"
                raise RunFailed(redact_text(about).rstrip(": "))
            if response.headers.get("content-type", "").partition(";")[0].strip().lower() in LINE_TYPES:
                await self._read_lines(response.aiter_lines())
            else:
                self._read_object(await response.aread())

    async def _read_lines(self, lines: AsyncIterator[str]) -> None:
        number = 0
        async for line in lines:
            number += 1
            if line.strip():
                found = _parse(line.encode("utf-8", "surrogatepass"), f"line {number} of the answer")
                self._count_usage(found) if "usage" in found else self._add_event(found)
                if self.received and self.received[-1].event_type == "agent.message":
                    await self.draft(self.received[-1].payload["text"])

    def _read_object(self, raw: bytes) -> None:
        found = _parse(raw, "answer")
        events = found.get("events")
        if not isinstance(events, list) or found.keys() - {"events", "usage"}:
            raise RunFailed('The agent\'s endpoint did not answer with {"events": […]}.')
        for event in events:
            self._add_event(event)
        self._count_usage(found)

    def _add_event(self, given: Any) -> None:
        event = read_event(given, len(self.received))
        if len(self.received) >= MAX_EVENTS:
            raise RunFailed(f"The agent's endpoint sent more than {MAX_EVENTS} events for one turn.")
        self.usage.tool_calls += event.event_type == "tool.call"
        most = self.work.config.limits.tool_calls
        if self.usage.tool_calls > most:
            raise RunFailed(f"The agent made more than {most} tool calls, which is its limit.")
        self.received.append(event)

    def _count_usage(self, found: dict[str, Any]) -> None:
        usage = found.get("usage")
        if not isinstance(usage, dict):
            return
        self.usage.input_tokens += int(_figure(usage.get("input_tokens"), session_limits.TOKENS) or 0)
        self.usage.output_tokens += int(_figure(usage.get("output_tokens"), session_limits.TOKENS) or 0)
        cost, model = _figure(usage.get("cost"), session_limits.COST), usage.get("model")
        if self.usage.cost is not None:
            self.usage.cost = None if cost is None else self.usage.cost + Decimal(str(cost))
        if isinstance(model, str) and model:
            self.usage.model = redact_text(model)[: session_limits.MODEL]

    def _answer(self) -> Answer:
        last = self.received[-1] if self.received else None
        if last is None or last.event_type != "agent.message" or last.payload.get("interim"):
            raise RunFailed("The agent's endpoint did not end with an agent.message.")
        if not last.payload["text"].strip():
            raise RunFailed("The agent's endpoint answered nothing.")
        before = self.received[:-1]
        self.received.clear()
        text, cut = truncate(last.payload["text"], self.work.config.limits.output_chars)
        extra = {name: value for name, value in last.payload.items() if name != "text"}
        if is_truncated(last.event_type, last.payload):
            cut = {"truncated": True}
        return Answer(text, extra | cut, before)


def build_request(work: RunInputs, history: History) -> dict[str, Any]:
    """Build the request for a turn."""
    messages = list_messages(history)
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
        "turn": {"number": history.prompts, "id": work.turn_id, "text": messages[-1]["text"]},
        "messages": messages,
        "system_prompt": redact_text(system_prompt(work)),
        "knowledge": {
            "text": redact_text(work.prompt.text),
            "row_ids": [str(row_id) for row_id in work.prompt.row_ids],
            "sha256": work.prompt.sha256,
        },
        "record": {"id": str(record.id), "type": record.type_slug, "name": record.name} if record else None,
        "limits": work.config.limits.model_dump(mode="json", exclude={"runs"}),
    }


def list_messages(history: History) -> list[dict[str, str]]:
    """The messages so far, each with its role."""
    roles = {"user-prompt": "user", "text": "agent"}
    parts: list[Any] = [part for message in history.messages for part in message.parts if part.part_kind in roles]
    return [{"role": roles[part.part_kind], "text": redact_text(str(part.content))} for part in parts]


class SentEvent(BaseModel):
    """An event in the format of the API. Only Upshot writes user messages, loaded context and the end of a session."""

    model_config = ConfigDict(extra="forbid", strict=True)

    event_type: str
    payload: dict[str, Any] = {}
    occurred_at: Annotated[datetime, BeforeValidator(read_past_moment)] | None = None

    @field_validator("event_type")
    @classmethod
    def check_type(cls, given: str) -> str:
        if given.startswith(("session.", "context.", "user.")):
            raise ValueError(f"{given[:60]} is written by Upshot. Leave it out.")
        return given


def read_event(given: Any, place: int) -> NewEvent:
    """Read an event, or raise Invalid with what to change."""
    try:
        sent = SentEvent.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise Invalid(f"{'.'.join(map(str, ('events', place, *first['loc'])))[:100]}: {sentence(first)}") from None
    event = NewEvent(sent.event_type, redact(sent.payload), sent.occurred_at)
    check_event(event, place)
    return event


def _parse(raw: bytes, what: str) -> dict[str, Any]:
    found = parse(raw, what)
    if not isinstance(found, dict):
        raise Invalid(f"The {what} is no JSON object.")
    return found


def _figure(given: Any, most: float) -> float | None:
    return given if type(given) in (int, float) and 0 <= given <= most else None
