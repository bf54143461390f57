"""Running one tool: check what came in and who asks, do it in one short transaction, and say what happened."""

from __future__ import annotations

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
from app.services.sessions.budget import SessionFull
from app.services.sessions.leases import LeaseLost
from app.tools.base import Outcome, Tool, ToolScope

log = logging.getLogger(__name__)
Settle = Callable[[Outcome], None]
DOWN = (OperationalError, InterfaceError, PoolTimeout)


def run_tool(tool: Tool, arguments: Any, scope: ToolScope, settle: Settle | None = None) -> Outcome:
    """Run a tool for somebody. What cannot be done is an answer that says so: an agent reads it and goes on. Only a
    database that does not answer is raised, since nobody can go on without it, and so are a lost lease and a session
    that is full.

    `settle` is told the outcome in the tool's own transaction: what it writes is there exactly when the tool's work is.
    """
    try:
        given = read_arguments(tool, arguments)
        check_allowed(tool, scope.actor)
        outcome = _call(tool, given, scope, settle)
    except SessionFull:
        # Nothing more can be written down about the run, so it cannot go on.
        raise
    except Problem as refusal:
        return Outcome(refusal.detail, is_error=True)
    except DataError:
        return Outcome("A value is outside what can be stored.", is_error=True)
    except (LeaseLost, *DOWN):
        raise
    except Exception:
        log.exception("the tool %s broke", tool.name)
        return Outcome(f"{tool.name} broke on our side and changed nothing.", is_error=True)
    return outcome


def read_arguments(tool: Tool, arguments: Any) -> Any:
    """The arguments as the tool takes them, or Invalid with what to change. Models often send an object as text."""
    given = _strict(arguments)
    if not isinstance(given, dict):
        raise Invalid("Send the arguments as one JSON object.")
    if tool.arguments is None:
        return given
    try:
        return tool.arguments.model_validate(given)
    except ValidationError as error:
        raise Invalid(_complaint(error, tool)) from None


def _strict(arguments: Any) -> Any:
    """Refuse what cannot be stored: NUL, half characters, endless numbers and depths."""
    if arguments is None or arguments == "":
        return {}
    try:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return parse(text.encode("utf-8", "surrogatepass"), "text of the arguments")
    except (RecursionError, TypeError, ValueError):
        raise Invalid("Send the arguments as one JSON object that is not nested too deep.") from None


def _complaint(error: ValidationError, tool: Tool) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    name = ".".join(str(part) for part in first["loc"])[:100]
    if first["type"] == "missing":
        return f"{tool.name} needs `{name}`."
    if first["type"] == "extra_forbidden":
        known = ", ".join(f"`{known}`" for known in tool.parameters["properties"]) or "nothing"
        return f"{tool.name} does not take `{name}`; it takes {known}."
    return f"`{name}`: {sentence(first)}"


def may_use(tool: Tool, actor: Actor) -> bool:
    """Whether the role and, where a key asks or started the run, its scopes are enough."""
    if tool.scope is not None and not actor.has_scope(tool.scope):
        return False
    return actor.at_least(tool.role) and (tool.role != "admin" or actor.is_admin)


def check_allowed(tool: Tool, actor: Actor) -> None:
    """Refuse what the person or the key behind an agent may not do, whichever agent asks."""
    if may_use(tool, actor):
        return
    if not actor.at_least(tool.role):
        raise Forbidden(f"{tool.name} needs the role {tool.role}; this is done for a {actor.role}.")
    raise Forbidden(f"{tool.name} needs the scope `{tool.scope}`, which the key that started this does not have.")


def _call(tool: Tool, given: Any, scope: ToolScope, settle: Settle | None) -> Outcome:
    if not tool.transactional:
        return _marked(tool.call(given, scope), scope)
    with acting_as(scope.actor), transaction():
        outcome = _marked(tool.call(given, scope), scope)
        if settle is not None:
            settle(outcome)
        return outcome


def _marked(outcome: Outcome, scope: ToolScope) -> Outcome:
    return replace(outcome, events=[_of_call(event, scope) for event in outcome.events])


def _of_call(event: Any, scope: ToolScope) -> Any:
    return replace(event, payload={**event.payload, "call_id": scope.call_id}) if scope.call_id else event
