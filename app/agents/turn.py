"""One turn of an agent: ask the model and run the tools it calls, until it answers or reaches a limit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from app.actor import Actor
from app.agents import models
from app.agents.history import History, OpenCall, add_tool_result, sort_as_stored
from app.agents.replay_tools import RecordedTools
from app.agents.slots import ModelAccess
from app.config import redact, redact_text
from app.db import acting_as, transaction
from app.services.runtime.inputs import RunInputs
from app.services.sessions.events import NewEvent
from app.text.values import from_json
from app.tools import Outcome, Tool, ToolScope, run_tool
from app.tools.run import OnOutcome

if TYPE_CHECKING:
    from flask import Flask
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

Result = TypeVar("Result")
Pool = Literal["run", "tool", "lease"]
Record = Callable[[list[NewEvent]], Awaitable[None]]
Draft = Callable[[str], Awaitable[None]]
DRAFT_SECONDS = 0.25
MAX_OUTPUT = 60_000
MAX_ARGUMENTS = 20_000
MAX_REASON = 600
MAX_EMPTY_ANSWERS = 2
MAX_BROKEN_STREAMS = 2
MAX_CAUSES = 4
# A server that is busy is asked again so often, after as long as it says, or twice as long each time.
MAX_WAITS = 6
MAX_WAIT_SECONDS = 120.0
BUSY_STATUSES = (429, 503)
INTERRUPTED = "The run was interrupted while this was under way. Look whether it was done before you do it again."
# The offline model reports with its answer which rules it followed.
RULE_KEYS = ("applied_rules", "unread_rules")


class Threads:
    """Blocking work for the event loop: each piece runs in a thread with an app context, and no transaction spans two.
    Runs, tools that wait for other programs, and leases have pools of their own, so that leases never wait."""

    def __init__(self, app: Flask, outside: int) -> None:
        self.app = app
        sizes = {"run": app.config["SETTINGS"].run_threads, "tool": outside, "lease": 2}
        self._pools = {name: ThreadPoolExecutor(size, f"upshot-{name}") for name, size in sizes.items()}

    async def transact(self, actor: Actor, work: Callable[[], Result]) -> Result:
        """Run `work` in one transaction."""

        def within() -> Result:
            with acting_as(actor), transaction():
                return work()

        return await self.call(within)

    async def call(self, work: Callable[[], Result], pool: Pool = "run") -> Result:
        """Run `work`, which opens its own transactions, or none."""

        def within() -> Result:
            with self.app.app_context():
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._pools[pool], within)

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)


class RunFailed(Exception):
    """The run cannot continue. The message is one sentence that says why."""


class StopRequested(Exception):
    """A person asked the run to stop."""


class StreamBroke(Exception):
    """A streamed answer ended before the model finished. Nothing of it was used yet."""


@dataclass
class Usage:
    """What a run has used so far. The cost is unknown as soon as that of one request is."""

    model: str | None = None
    requests: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = Decimal(0)


@dataclass(frozen=True)
class Answer:
    """The final message of a turn, other parts of its payload, and events before it that are not written yet."""

    text: str
    extra: dict[str, Any] = field(default_factory=dict)
    before: list[NewEvent] = field(default_factory=list)


@dataclass
class Turn:
    """The loop of one turn. `record` commits events as they happen, `write_inside` writes them in a tool's transaction
    and returns whether to stop, `draft` shows the answer while it grows, `recorded` answers the calls of a replay.
    `access` is the way to the model's server; a model of this process has none."""

    work: RunInputs
    model: Model
    tools: dict[str, Tool]
    threads: Threads
    record: Record
    draft: Draft
    usage: Usage
    write_inside: Callable[[list[NewEvent]], bool]
    recorded: RecordedTools | None = None
    access: ModelAccess | None = None

    async def run(self, history: History) -> Answer:
        for call in list(history.open_calls):
            await self._take_up(history, call)
        empty = broken = 0
        while True:
            try:
                response = await self._ask(history)
            except StreamBroke as trouble:
                broken += 1
                if broken == MAX_BROKEN_STREAMS:
                    raise RunFailed(str(trouble)) from trouble
                continue
            calls, answer = self._read(history, response)
            if calls:
                await self._call_all(history, calls, answer)
            elif answer.text.strip():
                return answer
            else:
                empty += 1
                if empty == MAX_EMPTY_ANSWERS:
                    raise RunFailed(f"The model {self._name} answered nothing.")

    @property
    def _name(self) -> str:
        return str(self.model.model_name)

    async def _take_up(self, history: History, call: OpenCall) -> None:
        """Repeat a call without a result if that is safe: our tools write their work and its result together. Whether a
        foreign program did its work before the interruption is unknown."""
        tool = self.tools.get(call.name)
        if self.recorded is not None or (tool is not None and (tool.transactional or not tool.writes)):
            await self._carry_out(history, call)
        else:
            await self._result(history, call, Outcome(INTERRUPTED, is_error=True))

    async def _ask(self, history: History) -> ModelResponse:
        made, most = self.usage.requests, self.work.config.limits.requests
        if made >= most:
            raise RunFailed(f"The agent asked its model {made} times without an answer. Its limit is {most}.")
        self.usage.requests += 1
        try:
            response = await request_in_turn(self.access, lambda: self._request(history))
        except (RunFailed, StreamBroke):
            raise
        except Exception as trouble:
            raise RunFailed(describe_trouble(self._name, trouble)) from trouble
        self._count(response)
        return response

    async def _request(self, history: History) -> ModelResponse:
        from pydantic_ai import direct
        from pydantic_ai.models import ModelRequestParameters

        parameters = ModelRequestParameters(function_tools=[define_tool(tool) for tool in self.tools.values()])
        if not self.work.live or models.is_offline(self.model):
            return await direct.model_request(self.model, history.messages, model_request_parameters=parameters)
        async with direct.model_request_stream(
            self.model, history.messages, model_request_parameters=parameters
        ) as stream:
            return await self._follow(stream)

    async def _follow(self, stream: Any) -> ModelResponse:
        """Read a stream and show it as a draft. Stops reading at the limit of the agent."""
        from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError

        loop, shown_at, longest = asyncio.get_running_loop(), 0.0, self.work.config.limits.output_chars
        try:
            async for _ in stream:
                if loop.time() - shown_at < DRAFT_SECONDS:
                    continue
                text = stream.get().text or ""
                if text:
                    await self.draft(redact_text(text[:longest]))
                    shown_at = loop.time()
                if len(text) > longest:
                    return cast("ModelResponse", stream.get())
        except ModelHTTPError:
            raise
        except ModelAPIError as trouble:
            raise StreamBroke(_explain(self._name, "broke off in the middle of its answer", trouble)) from trouble
        found: ModelResponse = stream.get()
        if ended_early(found):
            raise StreamBroke(
                _explain(self._name, "broke off in the middle of its answer", "the connection was closed")
            )
        return found

    def _count(self, response: ModelResponse) -> None:
        usage = self.usage
        usage.input_tokens += response.usage.input_tokens or 0
        usage.output_tokens += response.usage.output_tokens or 0
        if usage.cost is not None and not models.is_offline(self.model):
            price = find_price(response)
            usage.cost = usage.cost + price if price is not None else None

    def _read(self, history: History, response: ModelResponse) -> tuple[list[OpenCall], Answer]:
        """The calls and the text of a response. Calls get ids that are unique in the history."""
        from pydantic_ai.messages import ToolCallPart

        parts: list[Any] = []
        calls: list[OpenCall] = []
        for part in response.parts:
            if isinstance(part, ToolCallPart):
                part = replace(part, tool_call_id=f"call_{history.calls + len(calls) + 1}")
                given = part.args.strip() if isinstance(part.args, str) else part.args
                calls.append(OpenCall(part.tool_call_id, part.tool_name, from_json(given or {})))
            parts.append(part)
        text, extra = truncate(redact_text(response.text or ""), self.work.config.limits.output_chars)
        if calls:
            history.messages.append(replace(response, parts=parts))
            history.calls += len(calls)
            history.open_calls.extend(calls)
        details = (response.provider_details or {}) | (response.metadata or {})
        if response.finish_reason == "length":
            extra = {"truncated": True}
        rules = {name: self._rule_ids(details[name]) for name in RULE_KEYS if name in details}
        return calls, Answer(text, extra | rules)

    def _rule_ids(self, places: list[int]) -> list[str]:
        """The ids of knowledge rows by their places in the prompt, which holds no ids."""
        row_ids = self.work.prompt.row_ids
        return [str(row_ids[place]) for place in places if place < len(row_ids)]

    async def _call_all(self, history: History, calls: list[OpenCall], answer: Answer) -> None:
        self.usage.tool_calls += len(calls)
        most = self.work.config.limits.tool_calls
        if self.usage.tool_calls > most:
            raise RunFailed(f"The agent reached its limit of {most} tool calls.")
        interim = [NewEvent("agent.message", {"text": answer.text, "interim": True})] if answer.text.strip() else []
        for call in calls:
            name, arguments = redact_text(call.name)[:200], _bound_arguments(call.arguments)
            await self.record([*interim, NewEvent("tool.call", {"id": call.id, "name": name, "arguments": arguments})])
            interim = []
            await self._carry_out(history, call)

    async def _carry_out(self, history: History, call: OpenCall) -> None:
        """Run a tool and record the result; in one transaction, where the tool writes to our database."""
        asked_to_stop: list[bool] = []

        def write_result(outcome: Outcome) -> None:
            asked_to_stop.append(self.write_inside(self._events(call, outcome)[1]))

        outcome = await self._run_tool(call, write_result)
        if not asked_to_stop or outcome.is_error:
            # The tool wrote nothing, so its result is recorded on its own.
            await self._result(history, call, outcome)
            return
        add_tool_result(history, call, self._events(call, outcome)[0], outcome.is_error)
        if asked_to_stop[0]:
            await self.record([])

    async def _run_tool(self, call: OpenCall, write_result: OnOutcome) -> Outcome:
        tool = self.tools.get(call.name)
        if tool is None:
            known = ", ".join(self.tools) or "none"
            return Outcome(f"There is no tool {call.name[:80]!r}; there are: {known}.", is_error=True)
        if self.recorded is not None:
            return await self.recorded.answer(call, lambda found: self._execute(found, call))
        return await self._execute(tool, call, write_result if tool.writes else None)

    async def _execute(self, tool: Tool, call: OpenCall, on_outcome: OnOutcome | None = None) -> Outcome:
        actor = self.work.actor
        scope = ToolScope(actor, self.work.lease.session_id, actor.agent_id, call.id)
        pool: Pool = "run" if tool.transactional else "tool"
        return await self.threads.call(lambda: run_tool(tool, call.arguments, scope, on_outcome), pool)

    async def _result(self, history: History, call: OpenCall, outcome: Outcome) -> None:
        output, events = self._events(call, outcome)
        await self.record(events)
        add_tool_result(history, call, output, outcome.is_error)

    @staticmethod
    def _events(call: OpenCall, outcome: Outcome) -> tuple[Any, list[NewEvent]]:
        """The output that the agent reads, and the events to record."""
        output = sort_as_stored(redact(outcome.output))
        if len(json.dumps(output, default=str)) > MAX_OUTPUT:
            output = {"cut": json.dumps(output, default=str, ensure_ascii=False)[: MAX_OUTPUT // 4] + " …"}
        name = redact_text(call.name)[:200]
        payload = {"call_id": call.id, "name": name, "output": output, "is_error": outcome.is_error}
        if outcome.replay is not None:
            payload["replay"] = outcome.replay
        effects = [replace(event, payload=redact(event.payload)) for event in outcome.events]
        return output, [NewEvent("tool.result", payload), *effects]


def define_tool(tool: Tool) -> Any:
    """The definition of a tool that models receive."""
    from pydantic_ai.tools import ToolDefinition

    return ToolDefinition(
        name=tool.name,
        description=tool.description,
        parameters_json_schema=tool.parameters,
        metadata={"writes": tool.writes},
        strict=False,
    )


async def request_in_turn(access: ModelAccess | None, request: Callable[[], Awaitable[ModelResponse]]) -> ModelResponse:
    """Ask when it is our turn at the server. One that is busy is asked again after as long as it says. `access` is None
    for a model of this process."""
    if access is None:
        return await request()
    waits = 0
    while True:
        async with access.turn():
            try:
                return await request()
            except Exception as trouble:
                seconds = seconds_to_wait(trouble, waits)
                if seconds is None:
                    raise
                access.server.keep_quiet(seconds)
        waits += 1


def seconds_to_wait(trouble: Exception, waits: int) -> float | None:
    """How long to wait before a busy server is asked again; None where it is not busy, was asked often enough, or
    wants to be left alone for longer than anybody waits."""
    status, asked = getattr(trouble, "status_code", None), getattr(trouble, "retry_after", None)
    if status not in BUSY_STATUSES or (status != 429 and asked is None) or waits == MAX_WAITS:
        return None
    seconds = float(2**waits) if asked is None else max(float(asked), 0.0)
    return seconds if seconds <= MAX_WAIT_SECONDS else None


def ended_early(response: ModelResponse) -> bool:
    """Whether a stream ended without a reason from the model. The library fills in a reason of its own; the provider's
    is in the details. A model without a provider has none."""
    details = response.provider_details or {}
    reason = details.get("finish_reason") or details.get("refusal")
    return response.provider_name is not None and not reason


def find_price(response: ModelResponse) -> Decimal | None:
    """The cost of a request in US dollars, if known."""
    try:
        return Decimal(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return None


def describe_trouble(name: str, trouble: Exception) -> str:
    """One sentence about a request that a model did not answer."""
    status, wait = getattr(trouble, "status_code", None), getattr(trouble, "retry_after", None)
    if isinstance(status, int):
        asks = f" and asks to wait {wait:,.0f} seconds" if wait and wait > MAX_WAIT_SECONDS else ""
        return _explain(name, f"answered with status {status}{asks}", getattr(trouble, "body", None))
    return _explain(name, "could not be asked", trouble)


def _explain(name: str, what: str, reason: Any) -> str:
    """One sentence about a failure of the model, without its keys."""
    if isinstance(reason, Exception):
        reason = _describe_causes(reason)
    text = reason if isinstance(reason, str) else json.dumps(reason, default=str) if reason else ""
    about = f"The model {name} {what}" + (f": {text}" if text else "")
    return redact_text(about)[:MAX_REASON].rstrip(".") + "."


def _describe_causes(trouble: BaseException | None) -> str:
    """Join an error with its causes; libraries often raise the real reason as a cause."""
    causes: list[str] = []
    while trouble is not None and len(causes) < MAX_CAUSES:
        text = (str(trouble) or type(trouble).__name__).rstrip(".")
        if not any(text in other for other in causes):
            causes.append(text)
        trouble = trouble.__cause__
    return "; ".join(causes)


def _bound_arguments(arguments: Any) -> Any:
    found = redact(arguments)
    text = json.dumps(found, default=str)
    return found if len(text) <= MAX_ARGUMENTS else {"cut": text[:MAX_ARGUMENTS] + " …"}


def truncate(text: str, longest: int) -> tuple[str, dict[str, Any]]:
    """Cut a text to a length, and return the mark for the payload if it was cut."""
    if len(text) <= longest:
        return text, {}
    return text[:longest].rstrip() + " …", {"truncated": True}
