"""What should have happened where the recorded run was wrong: each key replaces that part of the recording."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.errors import Invalid
from app.evals.compare.effects import CREATED, RESPONSE, UPDATED, Effect, merge_updates
from app.text.values import MAX_BYTES, Reader

MAX_MENTIONS = 8
MAX_CALLS = 50
MAX_FACT_CHARS = 200
KEYS = ("answer", "mentions", "must_not_mention", "calls", "no_calls", "effects")


@dataclass(frozen=True)
class Expected:
    """None means: as recorded."""

    answer: str | None = None
    mentions: tuple[str, ...] | None = None
    must_not_mention: tuple[str, ...] | None = None
    calls: tuple[tuple[str, dict[str, Any]], ...] | None = None
    no_calls: tuple[str, ...] | None = None
    effects: tuple[dict[str, Any], ...] | None = None

    @property
    def about_answer(self) -> bool:
        return self.answer is not None or bool(self.mentions) or bool(self.must_not_mention)

    @property
    def about_calls(self) -> bool:
        return self.calls is not None or bool(self.no_calls)

    def read_effects(self, reader: Reader) -> list[Effect]:
        """The expected effects as the comparer takes them: everything about one record is one effect."""
        return merge_updates(
            [
                Effect(given["kind"], given["type"], given.get("target"), reader.value(given.get("fields") or {}))
                for given in self.effects or ()
            ]
        )


def read_expected(given: Any) -> Expected:
    """What was sent, checked; Invalid with one sentence that names the key."""
    if given is None:
        return Expected()
    if not isinstance(given, Mapping):
        raise _invalid("", "Send a JSON object.")
    unknown = sorted(str(key) for key in given.keys() - set(KEYS))
    if unknown:
        raise _invalid(unknown[0][:60], f"This name is not known here; use {', '.join(KEYS)}.")
    answer = given.get("answer")
    if answer is not None and (not isinstance(answer, str) or not 1 <= len(answer) <= MAX_BYTES):
        raise _invalid("answer", f"Send text of 1 to {MAX_BYTES:,} characters.")
    return Expected(
        answer=answer,
        mentions=_texts(given, "mentions", MAX_MENTIONS),
        must_not_mention=_texts(given, "must_not_mention", MAX_MENTIONS),
        calls=_calls(given.get("calls")),
        no_calls=_texts(given, "no_calls", MAX_CALLS),
        effects=_effects(given.get("effects")),
    )


def _invalid(name: str, sentence: str) -> Invalid:
    name = f"expected.{name}" if name else "expected"
    return Invalid.of({name: sentence})


def _texts(given: Mapping[str, Any], name: str, most: int) -> tuple[str, ...] | None:
    found = given.get(name)
    if found is None:
        return None
    if not isinstance(found, list) or len(found) > most:
        raise _invalid(name, f"Send a list of at most {most} texts.")
    if not all(isinstance(text, str) and 1 <= len(text.strip()) <= MAX_FACT_CHARS for text in found):
        raise _invalid(name, f"Send texts of 1 to {MAX_FACT_CHARS} characters.")
    return tuple(dict.fromkeys(text.strip() for text in found))


def _calls(found: Any) -> tuple[tuple[str, dict[str, Any]], ...] | None:
    if found is None:
        return None
    if not isinstance(found, list) or len(found) > MAX_CALLS:
        raise _invalid("calls", f"Send a list of at most {MAX_CALLS} calls.")
    return tuple(_call(call, f"calls.{place}") for place, call in enumerate(found))


def _call(call: Any, name: str) -> tuple[str, dict[str, Any]]:
    if not isinstance(call, dict) or not isinstance(call.get("name"), str) or not call["name"]:
        raise _invalid(name, "Send an object with a name and arguments.")
    arguments = call.get("arguments", {})
    if not isinstance(arguments, dict):
        raise _invalid(f"{name}.arguments", "Send a JSON object.")
    if call.keys() - {"name", "arguments"}:
        raise _invalid(name, "Send a name and arguments, nothing else.")
    return call["name"], arguments


def _effects(found: Any) -> tuple[dict[str, Any], ...] | None:
    if found is None:
        return None
    if not isinstance(found, list) or len(found) > MAX_CALLS:
        raise _invalid("effects", f"Send a list of at most {MAX_CALLS} effects.")
    for place, effect in enumerate(found):
        name = f"effects.{place}"
        if not isinstance(effect, dict) or effect.get("kind") not in (CREATED, UPDATED, RESPONSE):
            raise _invalid(name, "Send an object with kind (created, updated or response), type, target and fields.")
        if not isinstance(effect.get("type"), str) or not isinstance(effect.get("fields", {}), dict):
            raise _invalid(name, "Send type as text and fields as an object.")
        if not isinstance(effect.get("target"), str | int | None) or isinstance(effect.get("target"), bool):
            raise _invalid(f"{name}.target", "Send the id of the record as text.")
        if (effect["kind"] == UPDATED) != (effect.get("target") is not None) and effect["kind"] != RESPONSE:
            raise _invalid(f"{name}.target", "An update has a target and a creation has none.")
    return tuple(found)
