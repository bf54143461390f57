"""A small desk of tools for the offline model, and a loop that plays its turns without a database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from app.agents.offline.conversation import Call, Conversation, OfflineTool, Turn
from app.agents.offline.turn import Move, next_move
from app.learning.prompt import PromptRow, format_prompt

HALDEN, TESSERA = str(UUID(int=0xA1)), str(UUID(int=0xB2))
DEALS = [
    {"id": HALDEN, "name": "Halden Health", "stage": "diligence", "value": 120, "city": "Oslo", "owner": "Ana"},
    {"id": TESSERA, "name": "Tessera", "stage": "won", "value": 80},
]
ID = {"type": "string", "format": "uuid"}
TEXT = {"type": "string"}
STAGE = {"type": "string", "enum": ["sourcing", "diligence", "won", "lost"]}


def tool(
    name: str, about: str, properties: dict[str, Any], required: Sequence[str] = (), writes: bool = False
) -> OfflineTool:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return OfflineTool(name, about, schema, writes)


SEARCH = tool("searchDeals", "Find deals by words of their name.", {"query": TEXT}, ["query"])
FINANCIALS = tool(
    "getFinancials",
    "Get EBITDA and multiples of a deal.",
    {"dealId": ID, "basis": {"type": "string", "enum": ["FY", "LTM"], "default": "FY"}},
    ["dealId"],
)
COMPARE = tool("compareDeals", "Compare the valuation of deals.", {"query": TEXT}, ["query"])
CONTACTS = tool("listContacts", "List people.", {"limit": {"type": "integer", "maximum": 100}})
UPDATE = tool(
    "updateDeal",
    "Change fields of a record.",
    {"dealId": ID, "changes": {"type": "object", "properties": {"stage": STAGE, "value": {"type": "number"}}}},
    ["dealId", "changes"],
    writes=True,
)
CREATE = tool("createDeal", "Create a record.", {"name": TEXT, "stage": STAGE}, ["name"], writes=True)
ERASE = tool("deleteDeal", "Delete a record.", {"dealId": ID}, ["dealId"], writes=True)
TOOLS = [SEARCH, FINANCIALS, COMPARE, CONTACTS, UPDATE, CREATE, ERASE]


def row(content: str, context: str | None = None, scope: str = "workspace", kind: str = "routing") -> PromptRow:
    return PromptRow(UUID(int=1), kind, content, context, scope, 1, 1.0)


def prompt(*rows: PromptRow, instructions: str = "") -> str:
    ranked = [
        PromptRow(UUID(int=place + 1), one.type, one.content, one.context, one.scope, 1, 100.0 - place)
        for place, one in enumerate(rows)
    ]
    return f"{instructions}\n\n{format_prompt(ranked, secret='s', budget=20_000, top_n=100).text}"


def results(call: Call) -> Any:
    """What the desk's tools answer."""
    if call.name in ("searchDeals", "compareDeals"):
        wanted = str(call.arguments["query"]).lower().split()
        return {"items": [deal for deal in DEALS if any(word in str(deal["name"]).lower() for word in wanted)]}
    if call.name == "getFinancials":
        return {"ebitda": 12.5, **{key: value for key, value in call.arguments.items() if key == "basis"}}
    if call.name == "listContacts":
        return [{"id": "c1", "name": "Ana"}, {"id": "c2", "name": "Jonas"}]
    return {"id": call.arguments.get("dealId", "new"), "ok": True}


def play(
    text: str,
    system: str = "",
    tools: Sequence[OfflineTool] = TOOLS,
    answer: Callable[[Call], Any] = results,
    earlier: Sequence[Turn] = (),
) -> tuple[list[tuple[str, dict[str, Any]]], Move]:
    """A whole turn: every call with its arguments, and the last move. An exception as a result is a tool's error."""
    calls: list[Call] = []
    while True:
        move = next_move(Conversation(system, (*earlier, Turn(text, tuple(calls)))), tools)
        if move.call is None:
            return [(call.name, call.arguments) for call in calls], move
        result = answer(move.call)
        failed = isinstance(result, Exception)
        calls.append(Call(move.call.name, move.call.arguments, str(result) if failed else result, failed))
        assert len(calls) <= 6
