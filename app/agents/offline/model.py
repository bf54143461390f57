"""The offline model as pydantic-ai runs it. Imported on first use only."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from app.agents.offline.conversation import read_conversation, read_tools
from app.agents.offline.turn import next_move
from app.errors import Refused
from app.formats.agent_config import OFFLINE


class CannotJudge(Refused):
    """Structured output was requested. A judge leaves the case unjudged, a reviewer uses its deterministic way."""

    title = "The offline model cannot judge"


class OfflineModel(FunctionModel):
    """Usage is zero, never the estimate of the base class."""

    def __init__(self) -> None:
        super().__init__(_respond, model_name=OFFLINE)

    @property
    def system(self) -> str:
        return OFFLINE

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        response = await super().request(messages, model_settings, model_request_parameters)
        response.usage = RequestUsage()
        return response


@lru_cache(maxsize=1)
def offline_model() -> Model:
    """The one offline model. It keeps nothing between requests, so all runs share it."""
    return OfflineModel()


def _respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """The next call, or the answer with the rules it followed. A prompt holds no ids, so rules are given by their place
    in it."""
    if not info.allow_text_output or info.model_request_parameters.output_object is not None:
        raise CannotJudge("offline cannot judge")
    move = next_move(read_conversation(messages, info.instructions), read_tools(info.function_tools))
    if move.call is not None:
        return ModelResponse([ToolCallPart(move.call.name, move.call.arguments, _next_call_id(messages))])
    rules = {"applied_rules": list(move.applied), "unread_rules": list(move.unread)}
    return ModelResponse([TextPart(move.text)], metadata=rules)


def _next_call_id(messages: Sequence[Any]) -> str:
    """An id that no other call in these messages has, the same for the same messages."""
    calls = sum(part.part_kind == "tool-call" for message in messages for part in message.parts)
    return f"offline-{calls + 1}"
