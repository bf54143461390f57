"""What should have happened where the recorded run was wrong: each key replaces that part of the recording."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from app.evals.compare.effects import CREATED, RESPONSE, UPDATED, Effect, merge_updates
from app.formats.messages import invalid_values
from app.text.values import MAX_BYTES, Reader

MAX_MENTIONS = 8
MAX_CALLS = 50
MAX_FACT_CHARS = 200


def _read_call(call: Any) -> tuple[str, dict[str, Any]]:
    known = isinstance(call, dict) and not call.keys() - {"name", "arguments"}
    name, arguments = (call.get("name"), call.get("arguments", {})) if known else (None, None)
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        raise ValueError("Send an object with a name and arguments, nothing else.")
    return name, arguments


def _check_effect(effect: dict[str, Any]) -> dict[str, Any]:
    kind, target = effect.get("kind"), effect.get("target")
    if kind not in (CREATED, UPDATED, RESPONSE) or not isinstance(effect.get("type"), str):
        raise ValueError("Send kind (created, updated or response), type, target and fields.")
    if not isinstance(effect.get("fields", {}), dict):
        raise ValueError("Send fields as an object.")
    if isinstance(target, bool) or not isinstance(target, str | int | None):
        raise ValueError("Send the id of the record as text.")
    if kind != RESPONSE and (kind == UPDATED) != (target is not None):
        raise ValueError("An update has a target and a creation has none.")
    return effect


def _unique(texts: list[str]) -> list[str]:
    return list(dict.fromkeys(texts))


_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_FACT_CHARS)]
_Facts = Annotated[list[_Text], Field(max_length=MAX_MENTIONS), AfterValidator(_unique)]
_Names = Annotated[list[_Text], Field(max_length=MAX_CALLS), AfterValidator(_unique)]
_Calls = Annotated[list[Annotated[Any, AfterValidator(_read_call)]], Field(max_length=MAX_CALLS)]
_Effects = Annotated[list[Annotated[dict[str, Any], AfterValidator(_check_effect)]], Field(max_length=MAX_CALLS)]


class Expected(BaseModel):
    """None means: as recorded. A call is a name with arguments."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    answer: Annotated[str, Field(min_length=1, max_length=MAX_BYTES)] | None = None
    mentions: _Facts | None = None
    must_not_mention: _Facts | None = None
    calls: _Calls | None = None
    no_calls: _Names | None = None
    effects: _Effects | None = None

    @property
    def about_answer(self) -> bool:
        return self.answer is not None or bool(self.mentions) or bool(self.must_not_mention)

    @property
    def about_calls(self) -> bool:
        return self.calls is not None or bool(self.no_calls)

    def read_effects(self, reader: Reader) -> list[Effect]:
        """The expected effects as the comparer takes them: everything about one record is one effect."""
        given = self.effects or ()
        return merge_updates(
            [
                Effect(one["kind"], one["type"], one.get("target"), reader.value(one.get("fields") or {}))
                for one in given
            ]
        )


def read_expected(given: Any) -> Expected:
    """What was sent, checked; Invalid with a sentence for each key that is wrong."""
    try:
        return Expected() if given is None else Expected.model_validate(given)
    except ValidationError as wrong:
        raise invalid_values("expected", wrong) from None
