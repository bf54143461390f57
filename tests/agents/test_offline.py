"""The offline model, rule by rule."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random

import pytest

from app.agents.offline.conversation import Call, Turn
from app.agents.offline.turn import WRITE_VERBS
from app.learning.rules import read_forms
from app.text.words import split_name, stem, steps, words
from tests.agents.offline_desk import (
    COMPARE,
    CONTACTS,
    FINANCIALS,
    HALDEN,
    ID,
    SEARCH,
    STAGE,
    TESSERA,
    TEXT,
    TOOLS,
    UPDATE,
    play,
    prompt,
    row,
    tool,
)

NAMES = [one.name for one in TOOLS]
ARGUMENTS = ["basis", "query", "limit"]


def test_words_are_split_lowered_stopped_and_stripped() -> None:
    assert words("searchDeals of the entity_types") == ["search", "deal", "entity", "typ"]
    assert words("listings, listing, lists") == ["list"]
    assert words("gas ring bed") == ["gas", "ring", "bed"]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Ask compareDeals about valuations", {"prefers": ("compareDeals",)}),
        (
            "compareDeals instead of several getFinancials calls",
            {"prefers": ("compareDeals",), "avoids": ("getFinancials",)},
        ),
        ("rather than getFinancials, compareDeals", {"prefers": ("compareDeals",), "avoids": ("getFinancials",)}),
        ("searchDeals, not getFinancials", {"prefers": ("searchDeals",), "avoids": ("getFinancials",)}),
        ("Never call deleteDeal, createDeal or updateDeal.", {"avoids": ("deleteDeal", "createDeal", "updateDeal")}),
        ("avoid getFinancials and use compareDeals", {"prefers": ("compareDeals",), "avoids": ("getFinancials",)}),
        ("Don't use searchDeals", {"avoids": ("searchDeals",)}),
        ("If it is not found, listContacts", {"prefers": ("listContacts",)}),
        ("basis=LTM for multiples", {"sets": (("basis", "LTM"),)}),
        ("never basis=FY", {"forbids": (("basis", "FY"),)}),
        ('Say "Not audited." and never say “cheap”', {"says": ("Not audited.",), "never_says": ("cheap",)}),
        ("Use LTM EBITDA, never the last fiscal year.", {}),
        ("EBITDA=margin, colour=blue", {}),
        ("Compare deals with the tool for comparing", {}),
    ],
)  # fmt: skip
def test_six_forms_and_nothing_else(text: str, read: dict[str, tuple[object, ...]]) -> None:
    forms, _ = read_forms(text, NAMES, ARGUMENTS)
    assert sorted(forms) == sorted((name, content) for name, contents in read.items() for content in contents)


def test_a_routing_row_flips_the_tool_and_without_it_all_is_as_before() -> None:
    ask = "What is the valuation of Halden Health?"
    before, _ = play(ask)
    with_row, move = play(ask, prompt(row("Prefer searchDeals for valuations.", "asking for a valuation")))
    after, _ = play(ask, prompt())
    assert [name for name, _ in before] == ["compareDeals"] == [name for name, _ in after]
    assert [name for name, _ in with_row] == ["searchDeals"]
    assert move.applied == (0,)


def test_a_pair_in_a_correction_changes_the_argument() -> None:
    ask = f"Show the EBITDA multiples of deal {HALDEN}"
    assert play(ask)[0] == [("getFinancials", {"dealId": HALDEN, "basis": "FY"})]
    calls, move = play(ask, prompt(row("Use basis=LTM", "quoting multiples", "agent", "correction")))
    assert calls == [("getFinancials", {"dealId": HALDEN, "basis": "LTM"})]
    assert move.text == "The ebitda is 12.5 and the basis is LTM."


def test_a_rephrased_row_changes_nothing_and_is_reported() -> None:
    ask = f"Show the EBITDA multiples of deal {HALDEN}"
    calls, move = play(
        ask, prompt(row("Take the last twelve months as the basis."), row("basis=LTM", "on Mars, at noon"))
    )
    assert calls == play(ask)[0]
    assert (move.applied, move.unread) == ((), (0,))


def test_a_row_applies_with_half_of_its_condition_or_three_words_of_it() -> None:
    ask = f"Show the EBITDA of deal {HALDEN}"
    for context, applies in [
        ("EBITDA questions", True),
        ("EBITDA in yearly reports", False),
        ("show EBITDA deal yearly monthly weekly daily hourly", True),
        ("of the", True),
    ]:
        calls, move = play(ask, prompt(row("basis=LTM", context)))
        assert (calls[0][1]["basis"] == "LTM") is applies is bool(move.applied), context
    # Without a context, what is left of the content is the condition.
    assert play(ask, prompt(row("basis=LTM for EBITDA")))[0][0][1]["basis"] == "LTM"
    assert play(ask, prompt(row("basis=LTM for monthly reports")))[0][0][1]["basis"] == "FY"


def test_order_of_strength() -> None:
    ask = f"Show the EBITDA of deal {HALDEN}"

    def basis(*rows: object, instructions: str = "") -> str:
        return str(play(ask, prompt(*rows, instructions=instructions))[0][0][1].get("basis"))  # type: ignore[arg-type]

    assert basis(instructions="Take basis=LTM. Then basis=FY.") == "LTM"
    assert basis(row("basis=FY"), instructions="Use basis=LTM.") == "FY"
    assert basis(row("basis=FY"), row("basis=LTM", None, "entity_type")) == "LTM"
    assert basis(row("basis=FY", None, "entity_type"), row("basis=LTM", None, "agent")) == "LTM"
    assert basis(row("basis=FY"), row("basis=LTM")) == "FY"
    assert basis(row("basis=FY"), row("not basis=FY")) == "None"
    assert basis(row("never basis=FY"), row("basis=FY", None, "agent")) == "FY"

    def names(*rows: object, instructions: str = "") -> list[str]:
        return [name for name, _ in play(ask, prompt(*rows, instructions=instructions))[0]]  # type: ignore[arg-type]

    assert names(row("compareDeals"), row("never compareDeals")) == ["getFinancials"]
    assert names(row("compareDeals", None, "agent"), row("never compareDeals")) == ["compareDeals"]
    assert names(instructions="Avoid getFinancials.") != ["getFinancials"]
    assert names(row("getFinancials"), instructions="Avoid getFinancials.") == ["getFinancials"]


def test_steps_are_cut_and_the_first_four_are_done() -> None:
    assert steps('Find "A. B; then C" at Acme Inc. today, then list people; show it. And more? Yes!') == [
        'Find "A. B; then C" at Acme Inc. today', "list people", "show it.", "more?", "Yes!",
    ]  # fmt: skip
    calls, move = play(
        "List contacts; search deals Halden; list contacts limit 1. List contacts limit 2; limit 3 contacts"
    )
    assert [arguments.get("limit") for _, arguments in calls] == [None, None, 1, 2]
    assert len(move.text.split("\n")) == 4


def test_choice_by_words_and_order_and_the_least_score() -> None:
    assert play("List contacts")[0][0][0] == "listContacts"
    twins = [tool("findA", "Search the index.", {}), tool("findB", "Search the index.", {})]
    assert play("search the index", tools=twins, answer=lambda call: "x")[0] == [("findA", {})]
    assert play("sing a song")[0] == []
    half = [tool("findDeals", "", {}), tool("other", "alpha beta gamma delta epsilon zeta eta theta iota deals", {})]
    weak = "alpha beta gamma delta epsilon zeta eta theta iota find"
    assert play(weak, tools=[*half[:1], tool("other", "alpha beta gamma delta epsilon zeta eta theta iota", {})],
                answer=lambda call: "x")[0] == [("other", {})]  # fmt: skip


def test_writing_needs_a_verb_and_its_object_or_a_preference() -> None:
    assert play("Halden Health deal lost")[0][0][0] != "updateDeal"
    assert play("Set the table")[0] == []
    calls, move = play("Set the stage of deal Halden Health to lost")
    assert calls[-1] == ("updateDeal", {"dealId": HALDEN, "changes": {"stage": "lost"}})
    assert move.text == "I set the stage of Halden Health to lost."
    anything = tool("updateEntity", "Change fields.", UPDATE.arguments, ["dealId"], writes=True)
    assert play(f"Move {HALDEN} on", tools=[anything])[0][0][0] == "updateEntity"
    assert play(f"Look at {HALDEN}", tools=[anything])[0] == []
    assert play(f"Look at {HALDEN}", prompt(row("updateEntity", "look")), [anything])[0][0][0] == "updateEntity"
    unmarked = tool("sendMail", "Send a mail.", {}, writes=True)
    assert play("Send a mail", tools=[unmarked])[0] == []


def test_arguments_by_the_first_rule_that_yields_a_valid_value() -> None:
    properties = {
        "kind": {"type": "string", "enum": ["in_progress", "done"]},
        "email": {"type": "string", "format": "email"},
        "since": {"type": "string", "format": "date"},
        "link": {"type": "string", "format": "uri"},
        "amount": {"type": "number"},
        "limit": {"type": "integer", "maximum": 50},
        "title": TEXT,
        "query": TEXT,
        "flag": {"type": "boolean"},
        "page": {"type": "integer", "default": 1},
        "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"},
        "share": {"type": "number", "exclusiveMaximum": 1},
        "tags": {"type": "array", "items": TEXT, "maxItems": 2},
    }
    look = tool("lookUp", "Look things up.", properties)

    def found(step: str, *rows: object) -> dict[str, object]:
        return play(step, prompt(*rows), [look], lambda call: "x")[0][0][1]  # type: ignore[arg-type]

    assert found("Look up things in progress")["kind"] == "in_progress"
    assert found("Look things up, kind=done or in progress")["kind"] == "done"
    assert found("Look up things done", row("kind=in_progress"))["kind"] == "in_progress"
    assert found("Look up things done", row("never kind=done")).get("kind") is None
    assert found("Look up things, flag is true")["flag"] is True
    mixed = found("Look up ana@example.com since 2026-03-01 at https://example.com/a.")
    assert (mixed["email"], mixed["since"], mixed["link"]) == ("ana@example.com", "2026-03-01", "https://example.com/a")
    assert found("Look up 7 with an amount of 1,200.50")["amount"] == 1200.5
    assert found("Look up 7 things")["amount"] == 7
    assert found("Look up limit: 70 things")["amount"] == 70
    assert "limit" not in found("Look up limit: 70 things")
    assert found("Look up the paper Red Lines of Oslo")["title"] == "Red Lines"
    assert found('Look up "Red lines" of Oslo')["title"] == "Red lines"
    assert found('Look up "Red lines" of Oslo')["query"] == "Red lines"
    assert found("Look up the lines of Oslo")["query"] == "lines Oslo"
    assert found("Look up things")["page"] == 1
    assert found("Look things up, code=DE-12")["code"] == "DE-12"
    assert "code" not in found("Look things up, code=twelve")
    assert found("Look things up, share=0.5")["share"] == 0.5
    assert "share" not in found("Look things up, share=1")
    assert found('Look things up, tags="red, blue"')["tags"] == ["red", "blue"]
    assert "tags" not in found('Look things up, tags="red, blue, green"')


def test_ids_come_from_the_step_then_this_turn_then_earlier_turns() -> None:
    past = [Turn("Search deals Tessera", (Call("searchDeals", {}, {"items": [{"id": TESSERA, "name": "Tessera"}]}),))]
    ask = "Show its EBITDA multiples"
    assert play(f"{ask} {HALDEN}", earlier=past)[0][0][1]["dealId"] == HALDEN
    assert play(ask, earlier=past)[0][0][1]["dealId"] == TESSERA
    assert play(f"Search deals Halden; {ask.lower()}", earlier=past)[0][1][1]["dealId"] == HALDEN
    # What a step names is changed, not what was spoken of before.
    calls, _ = play("Set the stage of deal Halden Health to lost", earlier=past)
    assert calls[-1][1]["dealId"] == HALDEN


def test_a_missing_id_is_looked_up_once_by_name_or_asked_for() -> None:
    calls, _ = play("Get the EBITDA of Halden Health")
    assert calls == [
        ("searchDeals", {"query": "Halden Health"}), ("getFinancials", {"dealId": HALDEN, "basis": "FY"}),
    ]  # fmt: skip
    calls, move = play("Get the EBITDA of Nobody Known")
    assert [name for name, _ in calls] == ["searchDeals"]
    assert move.text == "Which deal do you mean?"
    twice = {"items": [{"id": HALDEN, "name": "Halden"}, {"id": TESSERA, "name": "Halden"}]}
    assert play("Get the EBITDA of Halden", answer=lambda call: twice)[1].text == (
        "There are two deals called Halden. Which one do you mean?"
    )
    several = {"items": [{"id": HALDEN, "name": "Halden Health"}, {"id": TESSERA, "name": "Halden Group"}]}
    assert play("Get the EBITDA of Halden", answer=lambda call: several)[1].text == (
        "Which deal do you mean: Halden Health or Halden Group?"
    )
    assert play("Get the EBITDA of Halden", tools=[FINANCIALS])[1].text == "Which deal do you mean?"


def test_a_lookup_searches_for_the_record_and_not_for_what_is_set() -> None:
    noted = tool(
        "updateDeal",
        "Change fields of a record.",
        {"dealId": ID, "changes": {"type": "object", "properties": {"owner": TEXT}}},
        ["dealId", "changes"],
        writes=True,
    )
    asked = 'Update the deal owner of Halden Health to "Tessera Jones"'
    assert play(asked, tools=[SEARCH, noted])[0] == [
        ("searchDeals", {"query": "Halden Health"}),
        ("updateDeal", {"dealId": HALDEN, "changes": {"owner": "Tessera Jones"}}),
    ]
    assert play('Update the deal "Halden Health": owner is Jonas', tools=[SEARCH, noted])[0][0] == (
        "searchDeals", {"query": "Halden Health"},
    )  # fmt: skip


def test_thousands_belong_to_their_number_and_ids_are_left_out() -> None:
    calls, move = play("Update the deal Tessera: value to 64,000, stage to won")
    assert calls[-1][1]["changes"] == {"stage": "won", "value": 64000}
    submit = tool(
        "submitResponse",
        "Submit values.",
        {"dealId": ID, "criteriaSetId": ID, "values": {"type": "object", "properties": {"value": {"type": "number"}}}},
        ["dealId", "values"],
        writes=True,
    )
    calls, move = play(f"Submit a response for deal {HALDEN} and criteria set {TESSERA}: value is 5", tools=[submit])
    assert calls[0][1] == {"dealId": HALDEN, "criteriaSetId": TESSERA, "values": {"value": 5}}
    assert move.text == "I submitted a response with value 5."


def test_it_stops_on_errors_questions_repetition_and_after_six_calls() -> None:
    calls, move = play("Search deals Halden; list contacts", answer=lambda call: ValueError("The index is down."))
    assert (len(calls), move.text) == (1, "I could not search deals: The index is down.")
    calls, move = play("Create a deal; list contacts")
    assert (calls, move.text) == ([], "What should it be called?")
    calls, move = play("List contacts; list contacts; search deals Halden")
    assert (len(calls), move.text.count("\n")) == (1, 0)
    ids = iter("0123456789abcdef" * 2)

    def listed(call: Call) -> object:
        return {
            "items": [{"id": HALDEN[:-1] + next(ids), "name": f"Name {word}"} for word in ("One", "Two", "Six", "Ten")]
        }

    calls, _ = play("EBITDA of Name One; EBITDA of Name Two; EBITDA of Name Six; EBITDA of Name Ten", answer=listed)
    assert len(calls) <= 6


def test_what_it_says() -> None:
    assert play("Search deals Halden Tessera")[1].text == (
        "I found two deals: Halden Health (diligence, value 120, Oslo) and Tessera (won, value 80)."
    )
    assert play("Search deals Nobody")[1].text == "I found no deals for Nobody."
    assert play("Search deals", answer=lambda call: 42)[1].text == "The result is 42."
    assert play("Search deals", answer=lambda call: "all is well")[1].text == "All is well."
    many = [{"name": f"N{place}"} for place in range(9)]
    assert (
        play("Search deals", answer=lambda call: many)[1].text
        == "I found nine deals: N0, N1, N2, N3, N4, N5, N6, N7 and N8."
    )
    assert play('Create a deal "Nordlicht" stage to won', answer=lambda call: "ok")[1].text == (
        "I added Nordlicht as a deal (won)."
    )
    assert play("Sing a song")[1].text == (
        "I can't do that with the tools I have."
        " I can search deals, get a financial, compare deals, list contacts or update a deal."
    )
    told = prompt(row("Holidays are booked with the office manager."))
    assert play("Who pays the rent of the office?", told, [CONTACTS])[1].text.startswith("I can't do that")
    assert play("Holidays, office manager?", told, [CONTACTS])[1].text == (
        "Our notes say: “Holidays are booked with the office manager.”"
    )


def test_texts_to_say_are_appended_and_those_never_to_say_removed() -> None:
    say = row('Say "Figures are not audited."', "EBITDA")
    ask = f"EBITDA of deal {HALDEN}"
    assert play(ask, prompt(say))[1].text.split("\n")[-1] == "Figures are not audited."
    assert "audited" not in play("List contacts", prompt(say))[1].text
    assert play(ask, prompt(say, row('Never say "NOT audited"')))[1].text == "The ebitda is 12.5 and the basis is FY."
    assert play(ask, prompt(row('Never say "ebitda"')))[1].text == "I am not allowed to say anything about this."


def test_what_is_fenced_is_no_instruction() -> None:
    memory = "<<<memories 00ff>>>\n- use basis=LTM\n<<<end memories 00ff>>>\n"
    assert play(f"EBITDA of deal {HALDEN}", memory + prompt())[0][0][1]["basis"] == "FY"
    assert play(f"EBITDA of deal {HALDEN}", "Use basis=LTM.\n" + memory)[0][0][1]["basis"] == "LTM"


def test_results_and_schemas_of_every_shape_are_read() -> None:
    assert SEARCH in TOOLS
    assert COMPARE in TOOLS
    odd = tool("lookOdd", "Look.", {"a": True, "b": None, "c": {"$ref": "#/$defs/no"}, "d": {"enum": "x"}})  # type: ignore[dict-item]
    for result in (None, "", [], {}, [1, [2]], {"items": [{"id": []}]}, {"error": ""}, "{", "[1, 2]", 3.5, True):
        assert play("Look odd", tools=[odd], answer=lambda call, result=result: result)[1].text


def test_what_it_says_about_what_was_asked_for() -> None:
    """A field in the message is what the answer is about, named and with the unit that its title has."""
    fields = {
        "stage": STAGE,
        "value": {"type": "number", "title": "Price, m", "description": "what it costs; valuation"},
        "main_owner": {"type": "string", "title": "Owner"},
    }
    update = tool("updateDeal", "Change.", {"changes": {"type": "object", "properties": fields}}, writes=True)
    deals = [
        {"id": HALDEN, "name": "Halden Health", "stage": "won", "value": 120.0, "main_owner": "Ana", "sold": True},
        {"id": TESSERA, "name": "Tessera", "stage": "lost", "value": 80, "main_owner": "", "sold": False},
    ]

    def said(ask: str, items: list[dict[str, object]] = deals, **more: object) -> str:
        return play(ask, tools=[SEARCH, update], answer=lambda call: {"items": items, **more})[1].text

    assert said("Search deals by price") == "I found two deals: Halden Health (price 120m) and Tessera (price 80m)."
    assert said("Which deal has an owner?") == "The owner of Halden Health is Ana."
    assert (
        said("Search the deal Tessera, stage and valuation") == "For Tessera, the stage is lost and the price is 80m."
    )
    assert (
        said("Search deals") == "I found two deals: Halden Health (won, price 120m, Ana) and Tessera (lost, price 80m)."
    )
    assert said("Search deals", nextCursor="more").startswith("I found at least two deals")
    many = [{"id": str(place), "name": f"Deal {place}", "stage": "won"} for place in range(14)]
    assert said("Search deals and their stage", many).endswith("Deal 10 (stage won), Deal 11 (stage won) and two more.")
    rules = [{"id": "1", "name": "Never quote a bid."}, {"id": "2", "name": "Round to millions."}]
    assert said('Search deals "bid"', rules[:1]) == "One deal mentions bid: Never quote a bid."
    assert said('Search deals "bid"', rules) == "Two deals mention bid: “Never quote a bid.” and “Round to millions.”"


def test_values_are_read_beside_their_field() -> None:
    fields = {
        "stage": {"type": "string", "enum": ["IOI", "LOI", "won"]},
        "fit": {"type": "string", "enum": ["strong", "possible"]},
        "value": {"type": "number", "title": "Price, m"},
        "revenue": {"type": "number"},
        "days": {"type": "integer", "title": "Exclusivity, days"},
        "role": TEXT,
        "since": {"type": "string", "format": "date", "description": "spoke; call"},
    }
    properties = {"dealId": ID, "changes": {"type": "object", "properties": fields}}
    update = tool("updateDeal", "Change fields.", properties, ["dealId", "changes"], writes=True)

    def changes(text: str) -> object:
        return play(f"Update deal {HALDEN}, {text}", tools=[update])[0][0][1]["changes"]

    assert changes("move it to LOI") == {"stage": "LOI"}
    assert changes("strong fit, price 41.6m") == {"fit": "strong", "value": 41.6}
    assert changes("revenue of 1.2m") == {"revenue": 1_200_000}
    assert changes("price of 64,000 and 45 days of exclusivity") == {"value": 64000, "days": 45}
    assert changes("role CFO, stage won") == {"stage": "won", "role": "CFO"}
    assert changes("role to Managing Partner please.") == {"role": "Managing Partner"}
    assert changes("we spoke on 2026-03-01") == {"since": "2026-03-01"}
    assert play(f"Update deal {HALDEN} if possible", tools=[update])[1].text == "What should I change?"


def test_descriptions_say_which_member_of_an_enumeration_is_meant() -> None:
    state = {"type": "string", "enum": ["proposed", "active"], "description": "proposed: waiting for approval."}
    rules = tool("listRules", "List rules, also those that wait for approval.", {"state": state, "query": TEXT})

    def arguments(text: str) -> object:
        return play(text, tools=[rules], answer=lambda call: {"items": []})[0][0][1]

    assert arguments("Which rules are waiting for approval about Heron?") == {"state": "proposed", "query": "Heron"}
    assert arguments("Show me the active rules") == {"state": "active"}
    assert arguments("List rules about approval") == {}


def test_small_talk_is_no_step() -> None:
    assert len(play("Good morning! List contacts. Thanks!")[0]) == 1
    assert play("Sing a song. List contacts.")[1].text == "I found two contacts: Ana and Jonas."
    assert play("Sing a song. Dance a dance.")[1].text.count("I can't do that") == 1


def test_a_thousand_prompts_never_raise_and_never_write_without_a_verb() -> None:
    random = Random(7)
    verbs = [verb for verbs in WRITE_VERBS.values() for verb in verbs]
    pieces = [
        "deal", "Halden", "stage", "to", "is", "=", ":", "won", "41.6m", "1,200", "“quoted”", '"open', "please", "then",
        ";", ".", "?", "2026-03-01", HALDEN, "ana@example.com", "in", "EUR", "(", "[", "é", "\u200b", "of", "entity",
    ]  # fmt: skip
    for _ in range(1000):
        text = " ".join(random.choice([*pieces, *verbs[:: random.randint(1, 5)]]) for _ in range(random.randint(0, 14)))
        calls, move = play(text, tools=TOOLS)
        assert move.text, text
        if not {stem(word) for word in split_name(text)} & {stem(verb) for verb in verbs}:
            assert not {name for name, _ in calls} & {"updateDeal", "createDeal", "deleteDeal"}, text


def test_the_same_turn_gives_the_same_bytes_in_every_process() -> None:
    code = (
        "from tests.agents.offline_desk import *\n"
        "ask = 'Search deals Halden Tessera. Move the deal Halden Health to lost; list contacts'\n"
        "print(play(ask, prompt(row('limit=1', 'contacts'), row('say \"Checked.\"'))))"
    )
    command = [sys.executable, "-c", code]
    said = {
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1
    assert b"Checked." in said.pop()
