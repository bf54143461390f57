"""The offline model as pydantic-ai runs it. Imported on first use only."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.function import (
    AgentInfo,
    DeltaToolCall,
    DeltaToolCalls,
    FunctionModel,
    FunctionStreamedResponse,
)
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext
from pydantic_ai.usage import RequestUsage

from app.agents.offline.steps import NAME, CannotJudge, answer, call_id, places_of
from app.agents.offline.turn import Move

CHUNK = re.compile(r".{1,60}(?:\s+|$)|\S{1,200}|\s+", re.DOTALL)


class OfflineModel(FunctionModel):
    """It costs nothing and counts nothing: usage is zero, never an estimate."""

    def __init__(self) -> None:
        super().__init__(_respond, stream_function=_stream, model_name=NAME)
        self._system = NAME

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        response = await super().request(messages, model_settings, model_request_parameters)
        response.usage = RequestUsage()
        return response

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        async with super().request_stream(messages, model_settings, model_request_parameters, run_context) as streamed:
            assert isinstance(streamed, FunctionStreamedResponse)  # noqa: S101 - that is what the base class gives.
            yield _Unmetered(
                model_request_parameters=streamed.model_request_parameters,
                _model_name=NAME,
                _iter=streamed._iter,
            )


@dataclass
class _Unmetered(FunctionStreamedResponse):
    @property
    def usage(self) -> RequestUsage:
        return RequestUsage()


def _move(messages: list[ModelMessage], info: AgentInfo) -> Move:
    if not info.allow_text_output or info.model_request_parameters.output_object is not None:
        raise CannotJudge
    return answer(messages, info.function_tools, info.instructions)


def _respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    move = _move(messages, info)
    if move.call is not None:
        return ModelResponse([ToolCallPart(move.call.name, move.call.arguments, call_id(messages))])
    return ModelResponse([TextPart(move.text)], metadata=places_of(move))


async def _stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    move = _move(messages, info)
    if move.call is not None:
        arguments = json.dumps(move.call.arguments, ensure_ascii=False)
        yield {0: DeltaToolCall(move.call.name, arguments, tool_call_id=call_id(messages))}
        return
    for chunk in CHUNK.findall(move.text):
        yield chunk


@lru_cache(maxsize=1)
def offline_model() -> Model:
    """The one offline model. It keeps nothing between requests, so that everybody can share it."""
    return OfflineModel()
