"""Suggest facts of a session's last message that are backed by a tool result or the record."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from app.evals.trace import Run, last_message
from app.text.similarity import FactIndex
from app.text.values import canonical
from app.text.words import quotations

MAX_FACTS = 8
MAX_FACT_CHARS = 200
_MAX_CHARS = 1_000_000

_UNIT = r"(?:\s?(?:%|percent|million|billion|thousand|[kmb]n?\b|[a-z]+\b))?"
_KINDS = (
    # Dates, ids, numbers with a unit, and names: capitalised words that do not open a sentence.
    r"\b\d{4}-\d\d-\d\d\b",
    r"\b\d{1,2}(?:st|nd|rd|th)?\s+[A-Z][a-z]{2,8}\.?,?\s+\d{4}\b",
    r"\b[A-Z][a-z]{2,8}\.?\s+\d{1,2}(?:st|nd|rd|th)?,?\s+\d{4}\b",
    r"\b(?=[\w-]{0,63}\d)(?=[\w-]{0,63}[^\W\d_])[\w-]{4,64}\b",
    rf"(?<![\w.-])[-−]?[$€£¥]?\d[\d,]*(?:\.\d+)?{_UNIT}",
    r"(?<=[a-z0-9,;:\)] )[A-Z][\w&'’.-]*(?:\s+[A-Z][\w&'’.-]*)*",
)
_FACT = re.compile("|".join(f"({kind})" for kind in _KINDS))


def suggest_facts(run: Run, entity: Mapping[str, Any] | None = None) -> list[str]:
    """Up to eight facts of the last message that a tool result or the record has too, in the order of the message."""
    message = canonical(last_message(run)[0][:_MAX_CHARS])
    known = FactIndex(_evidence(run, entity))
    found: dict[str, None] = {}
    for fact in _facts(message):
        # A record may have the bare number without the unit that the message adds.
        bare = re.match(r"[-−]?[$€£¥]?\d[\d,]*(?:\.\d+)?", fact)
        for said in dict.fromkeys((fact, bare[0] if bare else fact)):
            if 1 < len(said) <= MAX_FACT_CHARS and known.mentions(said) and not any(said in other for other in found):
                found[said] = None
                break
        if len(found) == MAX_FACTS:
            break
    return list(found)


def _facts(message: str) -> Iterable[str]:
    quoted = [(message.find(text), text) for text in quotations(message)]
    plain = [(match.start(), match[0].strip(" .,;:")) for match in _FACT.finditer(message)]
    return [text for _, text in sorted(quoted + plain)]


def _evidence(run: Run, entity: Mapping[str, Any] | None) -> str:
    parts = [json.dumps(entity, ensure_ascii=False, default=str)] if entity else []
    for event in run.events:
        if event.event_type == "tool.result" and event.payload.get("is_error") is not True:
            output = event.payload.get("output")
            parts.append(output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, default=str))
    return "\n".join(parts)[:_MAX_CHARS]
