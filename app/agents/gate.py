"""Asks the server's model about messages that the machine-feedback gate is unsure of."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.agents import models
from app.agents.judge import structured, text_of
from app.agents.turn import describe_trouble
from app.config import Settings, redact_text
from app.learning.gate.classify import Verdict
from app.learning.gate.question import SCHEMA, build_question, read_verdict
from app.learning.gate.reading import Turn

if TYPE_CHECKING:
    from pydantic_ai.models import Model

log = logging.getLogger("upshot")
SECONDS = 20.0
MAX_TOKENS = 1000
AT_ONCE = 4


def ask_model(asked: Sequence[tuple[str, Sequence[Turn]]], settings: Settings) -> list[Verdict | None]:
    """The model's verdict on each message with its turns, None where it gave none in time. Opens no transaction."""
    try:
        return asyncio.run(_ask_all(asked, settings))
    except models.NoModel as refusal:
        log.info("machine feedback: %s", refusal.detail)
        return [None] * len(asked)


async def _ask_all(asked: Sequence[tuple[str, Sequence[Turn]]], settings: Settings) -> list[Verdict | None]:
    model = models.find_model("", settings, asyncio.get_running_loop())
    turns = asyncio.Semaphore(AT_ONCE)

    async def ask(message: str, earlier: Sequence[Turn]) -> Verdict | None:
        try:
            async with turns, asyncio.timeout(SECONDS):
                return read_verdict(await _request(model, message, earlier))
        except TimeoutError:
            log.info("machine feedback: the model did not answer within %s seconds", SECONDS)
        except Exception as trouble:
            log.info("machine feedback: %s", redact_text(describe_trouble(str(model.model_name), trouble)))
        return None

    return await asyncio.gather(*(ask(message, earlier) for message, earlier in asked))


async def _request(model: Model, message: str, earlier: Sequence[Turn]) -> str:
    from pydantic_ai import direct
    from pydantic_ai.messages import ModelRequest, SystemPromptPart, UserPromptPart
    from pydantic_ai.settings import ModelSettings

    instructions, data = build_question(message, earlier, secrets.token_hex(16))
    response = await direct.model_request(
        model,
        [ModelRequest(parts=[SystemPromptPart(instructions), UserPromptPart(data)])],
        model_settings=ModelSettings(temperature=0.0, max_tokens=MAX_TOKENS),
        model_request_parameters=structured(model, SCHEMA, "verdict", "Give the verdict."),
    )
    return text_of(response)
