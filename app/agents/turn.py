"""One turn of an agent: ask the model, run the tools it calls, until it answers or a limit is reached."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from app.agents import models
from app.agents.history import Open, Talk, answer, as_stored, returned
from app.agents.outside.secrets import hide, hide_in
from app.agents.replay_tools import Recorded
from app.agents.threads import Threads
from app.services.runtime.inputs import RunInputs
from app.services.sessions.events import NewEvent
from app.tools import Outcome, Tool, ToolScope, run_tool

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

Record = Callable[[list[NewEvent]], Awaitable[None]]
Draft = Callable[[str], Awaitable[None]]
DRAFT_EVERY = 0.25
LONGEST_OUTPUT = 60_000
LONGEST_ARGUMENTS = 20_000
LONGEST_REASON = 600
EMPTY_ANSWERS = 2
BROKEN_STREAMS = 2
MOST_CAUSES = 4
INTERRUPTED = "The run was interrupted while this was under way; look whether it was done before you do it again."
# What the offline model says about the rules it followed travels with its answer.
RULES = ("applied_rules", "unread_rules")


class RunFailed(Exception):
    """The run cannot go on. One sentence that says why."""


class StreamBroke(Exception):
    """A streamed answer ended before the model said that it was done. Nothing of it was used yet."""


@dataclass
class Spent:
    """What a run has taken so far. The cost is unknown as soon as one request's is."""

    requests: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = Decimal(0)


@dataclass(frozen=True)
class Answer:
    """What the agent said at last, what else belongs to its message, and what happened before it and is not written."""

    text: str
    extra: dict[str, Any] = field(default_factory=dict)
    before: list[NewEvent] = field(default_factory=list)


class Turn:
    """The loop of one turn. `record` commits events as they happen, `draft` shows the answer while it grows."""

    def __init__(
        self,
        work: RunInputs,
        model: Model,
        tools: list[Tool],
        threads: Threads,
        record: Record,
        draft: Draft,
        spent: Spent,
        settle: Callable[[list[NewEvent]], bool],
        recorded: Recorded | None = None,
    ) -> None:
        self.work = work
        self.settle = settle
        self.recorded = recorded
        self.model = model
        self.tools = {tool.name: tool for tool in tools}
        self.threads = threads
        self.record = record
        self.draft = draft
        self.spent = spent

    async def run(self, talk: Talk) -> Answer:
        for call in list(talk.unanswered):
            await self._take_up(talk, call)
        empty = broken = 0
        while True:
            try:
                response = await self._ask(talk)
            except StreamBroke as trouble:
                broken += 1
                if broken == BROKEN_STREAMS:
                    raise RunFailed(str(trouble)) from trouble
                continue
            calls, said = self._read(talk, response)
            if calls:
                await self._call_all(talk, calls, said)
            elif said.text.strip():
                return said
            else:
                empty += 1
                if empty == EMPTY_ANSWERS:
                    raise RunFailed(f"The model {self._name} answered nothing.")

    @property
    def _name(self) -> str:
        return str(self.model.model_name)

    async def _take_up(self, talk: Talk, call: Open) -> None:
        """A call without a result is made again: what a tool of ours writes is there exactly when its result is.
        Whether somebody else's program wrote something before the end came is not known."""
        tool = self.tools.get(call.name)
        if self.recorded is not None or (tool is not None and (tool.transactional or not tool.writes)):
            await self._carry_out(talk, call)
        else:
            await self._result(talk, call, Outcome(INTERRUPTED, is_error=True))

    async def _ask(self, talk: Talk) -> ModelResponse:
        if self.spent.requests >= self.work.config.limits.requests:
            raise RunFailed(
                f"The agent asked its model {self.spent.requests} times without coming to an answer; its limit is"
                f" {self.work.config.limits.requests}."
            )
        self.spent.requests += 1
        try:
            response = await self._request(talk)
        except (RunFailed, StreamBroke):
            raise
        except Exception as trouble:
            raise RunFailed(self._trouble(trouble)) from trouble
        self._count(response)
        return response

    async def _request(self, talk: Talk) -> ModelResponse:
        from pydantic_ai import direct
        from pydantic_ai.models import ModelRequestParameters

        parameters = ModelRequestParameters(function_tools=[defined(tool) for tool in self.tools.values()])
        if not self.work.live or models.is_offline(self.model):
            return await direct.model_request(self.model, talk.messages, model_request_parameters=parameters)
        async with direct.model_request_stream(
            self.model, talk.messages, model_request_parameters=parameters
        ) as stream:
            return await self._follow(stream)

    async def _follow(self, stream: Any) -> ModelResponse:
        """Read a stream, showing what has come so far; what is too long is not read to its end."""
        from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError

        loop, shown_at, longest = asyncio.get_running_loop(), 0.0, self.work.config.limits.output_chars
        try:
            async for _ in stream:
                if loop.time() - shown_at < DRAFT_EVERY:
                    continue
                text = stream.get().text or ""
                if text:
                    await self.draft(hide_in(text[:longest]))
                    shown_at = loop.time()
                if len(text) > longest:
                    return cast("ModelResponse", stream.get())
        except ModelHTTPError:
            raise
        except ModelAPIError as trouble:
            raise StreamBroke(self._broke(_causes(trouble))) from trouble
        found: ModelResponse = stream.get()
        if ended_early(found):
            raise StreamBroke(self._broke("the connection was closed"))
        return found

    def _broke(self, reason: str) -> str:
        return hide_in(f"The model {self._name} broke off in the middle of its answer: {reason}")[:LONGEST_REASON] + "."

    def _count(self, response: ModelResponse) -> None:
        spent = self.spent
        spent.input_tokens += response.usage.input_tokens or 0
        spent.output_tokens += response.usage.output_tokens or 0
        if spent.cost is not None and not models.is_offline(self.model):
            price = price_of(response)
            spent.cost = spent.cost + price if price is not None else None

    def _trouble(self, trouble: Exception) -> str:
        """What went wrong with the model, without its keys."""
        status = getattr(trouble, "status_code", None)
        if isinstance(status, int):
            said = f"The model {self._name} answered with status {status}"
            about = getattr(trouble, "body", None)
        else:
            said = f"The model {self._name} could not be asked"
            about = _causes(trouble)
        text = about if isinstance(about, str) else json.dumps(about, default=str) if about else ""
        return hide_in(f"{said}: {text}" if text else said)[:LONGEST_REASON].rstrip(".") + "."

    def _read(self, talk: Talk, response: ModelResponse) -> tuple[list[Open], Answer]:
        """The calls and the words of an answer. It joins the talk with ids that are unique in it."""
        from pydantic_ai.messages import ToolCallPart

        parts: list[Any] = []
        calls: list[Open] = []
        for part in response.parts:
            if isinstance(part, ToolCallPart):
                part = replace(part, tool_call_id=f"call_{talk.calls + len(calls) + 1}")
                calls.append(Open(part.tool_call_id, part.tool_name, _given(part.args)))
            parts.append(part)
        text, extra = fit(hide_in(response.text or ""), self.work.config.limits.output_chars)
        if calls:
            talk.messages.append(replace(response, parts=parts))
            talk.calls += len(calls)
            talk.unanswered.extend(calls)
        details = (response.provider_details or {}) | (response.metadata or {})
        if response.finish_reason == "length":
            extra = {"truncated": True}
        rules = {name: self._rule_ids(details[name]) for name in RULES if name in details}
        return calls, Answer(text, extra | rules)

    def _rule_ids(self, places: list[int]) -> list[str]:
        """The ids of knowledge rows by their places in the prompt, which holds no ids."""
        row_ids = self.work.prompt.row_ids
        return [str(row_ids[place]) for place in places if place < len(row_ids)]

    async def _call_all(self, talk: Talk, calls: list[Open], said: Answer) -> None:
        self.spent.tool_calls += len(calls)
        most = self.work.config.limits.tool_calls
        if self.spent.tool_calls > most:
            raise RunFailed(f"The agent wanted more than {most} tool calls, which is its limit.")
        words = [NewEvent("agent.message", {"text": said.text, "interim": True})] if said.text.strip() else []
        for place, call in enumerate(calls):
            payload = {"id": call.id, "name": hide_in(call.name)[:200], "arguments": _stored(call.arguments)}
            await self.record([*(words if place == 0 else []), NewEvent("tool.call", payload)])
            await self._carry_out(talk, call)

    async def _carry_out(self, talk: Talk, call: Open) -> None:
        """Run a tool and write down what came of it; together, where the tool writes to our database."""
        tool = self.tools.get(call.name)
        if tool is None or self.recorded is not None or not (tool.transactional and tool.writes):
            await self._result(talk, call, await self._run_tool(call))
            return
        done: list[bool] = []

        def settle(outcome: Outcome) -> None:
            done.append(self.settle(self._events(call, outcome)[1]))

        outcome = await self._execute(tool, call, settle)
        if not done or outcome.is_error:
            # Nothing was written, so what came of it stands alone.
            await self._result(talk, call, outcome)
            return
        returned(talk, call, self._events(call, outcome)[0], outcome.is_error)
        if done[0]:
            await self.record([])

    async def _run_tool(self, call: Open) -> Outcome:
        tool = self.tools.get(call.name)
        if tool is None:
            known = ", ".join(self.tools) or "none"
            return Outcome(f"There is no tool {call.name[:80]!r}; there are: {known}.", is_error=True)
        if self.recorded is not None:
            return await self.recorded.answer(call, lambda found: self._execute(found, call))
        return await self._execute(tool, call)

    async def _execute(self, tool: Tool, call: Open, settle: Callable[[Outcome], None] | None = None) -> Outcome:
        work = self.work
        scope = ToolScope(
            actor=work.actor,
            session_id=work.lease.session_id,
            agent_id=work.actor.agent_id,
            entity_id=work.record.id if work.record else None,
            call_id=call.id,
        )
        outside = not tool.transactional
        return await self.threads.call(lambda: run_tool(tool, call.arguments, scope, settle), outside=outside)

    async def _result(self, talk: Talk, call: Open, outcome: Outcome) -> None:
        output, events = self._events(call, outcome)
        await self.record(events)
        returned(talk, call, output, outcome.is_error)

    @staticmethod
    def _events(call: Open, outcome: Outcome) -> tuple[Any, list[NewEvent]]:
        """What the agent gets to read, and the events that say what happened."""
        output = as_stored(hide(outcome.output))
        if len(json.dumps(output, default=str)) > LONGEST_OUTPUT:
            output = {"cut": json.dumps(output, default=str, ensure_ascii=False)[: LONGEST_OUTPUT // 4] + " …"}
        payload = {"call_id": call.id, "name": hide_in(call.name)[:200], "output": output, "is_error": outcome.is_error}
        if outcome.replay is not None:
            payload["replay"] = outcome.replay
        effects = [replace(event, payload=hide(event.payload)) for event in outcome.events]
        return output, [NewEvent("tool.result", payload), *effects]


def defined(tool: Tool) -> Any:
    """A tool as models get it."""
    from pydantic_ai.tools import ToolDefinition

    return ToolDefinition(
        name=tool.name,
        description=tool.description,
        parameters_json_schema=tool.parameters,
        metadata={"writes": tool.writes},
        strict=False,
    )


def ended_early(response: ModelResponse) -> bool:
    """Whether a stream came to its end without the model saying why it stopped. The library fills in a reason of its
    own; what the provider itself said is in the details. A model without a provider says nothing at all."""
    details = response.provider_details or {}
    said = details.get("finish_reason") or details.get("refusal")
    return response.provider_name is not None and not said


def price_of(response: ModelResponse) -> Decimal | None:
    """What a request cost in US dollars, where that is known."""
    try:
        return Decimal(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return None


def finish_turn(talk: Talk, found: Answer) -> list[NewEvent]:
    """The agent's answer joins the talk; its event, after those that are not written yet."""
    answer(talk, found.text)
    return [*found.before, NewEvent("agent.message", {"text": found.text, **found.extra})]


def _causes(trouble: BaseException | None) -> str:
    """What went wrong and why, as far as it is known; libraries often keep the reason one or two steps behind."""
    said: list[str] = []
    while trouble is not None and len(said) < MOST_CAUSES:
        text = (str(trouble) or type(trouble).__name__).rstrip(".")
        if not any(text in other for other in said):
            said.append(text)
        trouble = trouble.__cause__
    return "; ".join(said)


def _given(arguments: Any) -> Any:
    """Arguments as JSON where they are; a text that is none is kept as it came, for the tool to refuse."""
    if not isinstance(arguments, str):
        return arguments or {}
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return arguments


def _stored(arguments: Any) -> Any:
    found = hide(arguments)
    text = json.dumps(found, default=str)
    return found if len(text) <= LONGEST_ARGUMENTS else {"cut": text[:LONGEST_ARGUMENTS] + " …"}


def fit(text: str, longest: int) -> tuple[str, dict[str, Any]]:
    """A text of at most so many characters, and the mark that says when it was cut."""
    if len(text) <= longest:
        return text, {}
    return text[:longest].rstrip() + " …", {"truncated": True}
