"""A model that says what a test wants it to say, one step for each time it is asked."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from flask import Flask
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from app.agents import models


@dataclass(frozen=True)
class Call:
    """The model wants a tool."""

    tool: str
    arguments: Any = field(default_factory=dict)


@dataclass(frozen=True)
class Wait:
    """The model takes its time, then does what comes next."""

    seconds: float


Step = str | Call | Wait | Exception | list[Any] | Callable[[list[ModelMessage]], Any]


class Script:
    """`name` is what an agent has as its model; `asked` is what the model was given, each time."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self.name = f"scripted:{secrets.token_hex(4)}"
        self.asked: list[list[ModelMessage]] = []
        self.tools: list[str] = []
        self._steps = list(steps)

    async def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=self._parts(await self._next(messages, info)))

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for place, part in enumerate(self._parts(await self._next(messages, info))):
            if isinstance(part, TextPart):
                for word in part.content.split(" "):
                    yield word + " "
                    await asyncio.sleep(0.02)
            else:
                yield {place: DeltaToolCall(part.tool_name, json.dumps(part.args), part.tool_call_id)}

    async def _next(self, messages: list[ModelMessage], info: AgentInfo) -> Any:
        self.asked.append(list(messages))
        self.tools = [tool.name for tool in info.function_tools]
        # The last step stands for every further time.
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        if isinstance(step, Wait):
            await asyncio.sleep(step.seconds)
            return await self._next(messages, info)
        if isinstance(step, Exception):
            raise step
        return step(messages) if callable(step) else step

    def _parts(self, step: Any) -> list[Any]:
        found = step if isinstance(step, list) else [step]
        return [
            ToolCallPart(one.tool, one.arguments) if isinstance(one, Call) else TextPart(content=one) for one in found
        ]


@contextmanager
def scripted(app: Flask, *steps: Step) -> Iterator[Script]:
    """A model that agents of this process can have while the test runs."""
    script, real = Script(steps), models.find_model
    model = FunctionModel(script.answer, stream_function=script.stream, model_name=script.name)

    def find(configured: str, *others: Any) -> Any:
        return model if configured == script.name else real(configured, *others)

    with patch.object(models, "find_model", find):
        yield script
