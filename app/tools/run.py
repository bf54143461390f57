"""Runs one tool: check arguments and permissions, then call it in one short transaction."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from sqlalchemy.exc import DataError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.actor import Actor
from app.db import acting_as, transaction
from app.errors import Forbidden, Invalid, Problem
from app.formats.messages import sentence
from app.formats.strict_json import parse
from app.services.sessions.events import SessionFull
from app.services.sessions.leases import LeaseLost
from app.tools.base import Outcome, Tool, ToolScope

log = logging.getLogger(__name__)
OnOutcome = Callable[[Outcome], None]
DATABASE_DOWN = (OperationalError, InterfaceError, PoolTimeout)


def run_tool(tool: Tool, arguments: Any, scope: ToolScope, on_outcome: OnOutcome | None = None) -> Outcome:
    """Run a tool. A refusal is an outcome that the agent reads and continues from. Only what ends the run is raised: a
    database that is down, a lost lease, a full session. `on_outcome` is called in the tool's own transaction, so what
    it writes is stored exactly when the tool's work is."""
    try:
        given = read_arguments(tool, arguments)
        check_allowed(tool, scope.actor)
        return _call(tool, given, scope, on_outcome)
    except SessionFull:
        # No more events of the run can be written, so it cannot continue.
        raise
    except Problem as refusal:
        return Outcome(refusal.detail, is_error=True)
    except DataError:
        return Outcome("A value is outside what can be stored.", is_error=True)
    except (LeaseLost, *DATABASE_DOWN):
        raise
    except Exception:
        log.exception("the tool %s broke", tool.name)
        return Outcome(f"{tool.name} broke on our side and changed nothing.", is_error=True)


def read_arguments(tool: Tool, arguments: Any) -> Any:
    """Validate the arguments, or raise Invalid with what to change. Models often send an object as text."""
    given = _parse_strictly(arguments)
    if not isinstance(given, dict):
        raise Invalid("Send the arguments as one JSON object.")
    if tool.arguments is None:
        return given
    try:
        return tool.arguments.model_validate(given)
    except ValidationError as error:
        raise Invalid(_describe_error(error, tool)) from None


def _parse_strictly(arguments: Any) -> Any:
    """Refuse what cannot be stored: NUL, lone surrogates, infinite numbers, deep nesting."""
    if arguments is None or arguments == "":
        return {}
    try:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return parse(text.encode("utf-8", "surrogatepass"), "text of the arguments")
    except (RecursionError, TypeError, ValueError):
        raise Invalid("Send the arguments as one JSON object that is not nested too deep.") from None


def _describe_error(error: ValidationError, tool: Tool) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    name = ".".join(str(part) for part in first["loc"])[:100]
    if first["type"] == "missing":
        return f"{tool.name} needs `{name}`."
    if first["type"] == "extra_forbidden":
        known = ", ".join(f"`{known}`" for known in tool.parameters["properties"]) or "nothing"
        return f"{tool.name} does not take `{name}`; it takes {known}."
    return f"`{name}`: {sentence(first)}"


def may_use(tool: Tool, actor: Actor) -> bool:
    """Whether the actor has the role, and the scope if a key asks or started the run."""
    if tool.scope is not None and not actor.has_scope(tool.scope):
        return False
    return actor.at_least(tool.role) and (tool.role != "admin" or actor.is_admin)


def check_allowed(tool: Tool, actor: Actor) -> None:
    """Refuse what the person or the key behind an agent may not do."""
    if may_use(tool, actor):
        return
    if not actor.at_least(tool.role):
        raise Forbidden(f"{tool.name} needs the role {tool.role}; this is done for a {actor.role}.")
    raise Forbidden(f"{tool.name} needs the scope `{tool.scope}`, which the key that started this does not have.")


def _call(tool: Tool, given: Any, scope: ToolScope, on_outcome: OnOutcome | None) -> Outcome:
    if not tool.transactional:
        return tool.call(given, scope)
    with acting_as(scope.actor), transaction():
        outcome = tool.call(given, scope)
        mark = {"call_id": scope.call_id} if scope.call_id else {}
        events = [replace(event, payload=event.payload | mark) for event in outcome.events]
        outcome = replace(outcome, events=events)
        if on_outcome is not None:
            on_outcome(outcome)
        return outcome
