"""Asks a model to judge one replay: one structured call, read strictly, with a time limit and three retries."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from app.agents import models
from app.agents.slots import FOR_JUDGES, NO_LIMIT, ModelAccess, Rank, next_rank, server_named
from app.agents.turn import Threads, describe_trouble, find_price, request_in_turn
from app.config import Settings, redact_text
from app.evals.rubric import JUDGED, NOT_JUDGED, RUBRIC_ERRORED, Unreadable, answer_schema, read_answer
from app.formats.model_slots import read_model_slots, slots_for
from app.services.evals.judging.work import JudgeOutcome, JudgeWork

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

log = logging.getLogger("upshot")
MAX_RETRIES = 3
# How long to wait before each retry of a request that failed. An answer that cannot be read is asked for again at once.
RETRY_SECONDS = (1.0, 2.0, 4.0)
TOKENS_FOR_ANSWER, TOKENS_PER_DIMENSION = 8_000, 400
ANSWER = "rubric"


@dataclass
class Judge:
    """One judgement under way, and what it has used so far. The cost is unknown as soon as that of one request is."""

    work: JudgeWork
    threads: Threads
    settings: Settings
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = Decimal(0)

    async def run(self) -> JudgeOutcome:
        """Ask until there is a usable answer, or the retries are used up. No transaction is open meanwhile."""
        loop = asyncio.get_running_loop()
        try:
            model = await self.threads.call(lambda: models.find_model(self.work.model, self.settings, loop))
        except models.NoModel as refusal:
            return self._outcome(NOT_JUDGED, reason=refusal.detail)
        rank, why = next_rank(FOR_JUDGES), ""
        for attempt in range(MAX_RETRIES + 1):
            try:
                return self._outcome(JUDGED, marks=await self._ask(model, rank))
            except Unreadable as trouble:
                why = str(trouble)
            except TimeoutError:
                # The server may have answered all the same, and its answer is paid for.
                self.cost = None
                why = f"The judge did not answer within {self.work.seconds} seconds."
            except Exception as trouble:
                why = redact_text(describe_trouble(str(model.model_name), trouble))
                if attempt < MAX_RETRIES:
                    await asyncio.sleep(RETRY_SECONDS[attempt])
        log.info("judgement %s gave no usable answer: %s", self.work.lease.judgement_id, why)
        return self._outcome(RUBRIC_ERRORED, reason=why)

    async def _ask(self, model: Model, rank: Rank) -> dict[str, Any]:
        async with asyncio.timeout(self.work.seconds) as deadline:
            access = self._access(rank, deadline)
            response = await request_in_turn(access, lambda: self._request(model))
        self._count(response)
        marks = read_answer(text_of(response), self.work.questions)
        return {name: {**mark, "reason": redact_text(mark["reason"])} for name, mark in marks.items()}

    def _access(self, rank: Rank, deadline: asyncio.Timeout) -> ModelAccess | None:
        server = models.server_of(self.work.model, self.settings)
        if not server:
            return None
        most = slots_for(server, read_model_slots(self.settings.model_slots)) or NO_LIMIT
        return ModelAccess(server_named(server), most, rank, deadline)

    async def _request(self, model: Model) -> ModelResponse:
        from pydantic_ai import direct
        from pydantic_ai.messages import ModelRequest, SystemPromptPart, UserPromptPart
        from pydantic_ai.settings import ModelSettings

        prompt, most = self.work.prompt, TOKENS_FOR_ANSWER + TOKENS_PER_DIMENSION * len(self.work.questions)
        message = ModelRequest(parts=[SystemPromptPart(prompt.instructions), UserPromptPart(prompt.data)])
        return await direct.model_request(
            model,
            [message],
            model_settings=ModelSettings(temperature=0.0, max_tokens=most),
            model_request_parameters=structured(model, answer_schema(self.work.questions), ANSWER, "Give the grades."),
        )

    def _count(self, response: ModelResponse) -> None:
        self.input_tokens += response.usage.input_tokens or 0
        self.output_tokens += response.usage.output_tokens or 0
        if self.cost is not None:
            price = find_price(response)
            self.cost = self.cost + price if price is not None else None

    def _outcome(self, status: str, **more: Any) -> JudgeOutcome:
        work = self.work
        return JudgeOutcome(
            status=status, model=work.model, criteria_version=work.criteria_version,
            content_hash=work.prompt.content_hash, input_tokens=self.input_tokens, output_tokens=self.output_tokens,
            cost=self.cost, **more,
        )  # fmt: skip


def structured(model: Model, schema: dict[str, Any], name: str, description: str) -> Any:
    """Ask for the schema in the way that the model supports."""
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    if model.profile.get("supports_json_schema_output"):
        wanted = OutputObjectDefinition(json_schema=schema, name=name, strict=True)
        return ModelRequestParameters(output_mode="native", output_object=wanted)
    tool = ToolDefinition(name=name, description=description, parameters_json_schema=schema, kind="output")
    return ModelRequestParameters(output_mode="tool", output_tools=[tool], allow_text_output=False)


def text_of(response: ModelResponse) -> str:
    """The answer as JSON text: what was said, or the arguments of the call that stands for it."""
    from pydantic_ai.messages import ToolCallPart

    call = next((part for part in response.parts if isinstance(part, ToolCallPart)), None)
    if call is None:
        return response.text or ""
    return call.args if isinstance(call.args, str) else json.dumps(call.args)
