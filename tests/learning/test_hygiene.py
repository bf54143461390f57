"""The checks of knowledge rows, against labelled data and on the demo's own rows."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import date
from pathlib import Path
from uuid import uuid4

import pytest

from app.learning.hygiene import checks
from app.learning.hygiene.checks import CHECKS, Finding, Named, Row, World, check_alone, last_day
from app.learning.hygiene.prompt_talk import find_prompt_talk
from app.text.hidden_characters import hidden_signs, strip_hidden
from app.tools import tools_of
from scripts.fit_hygiene import fitted, main
from scripts.hygiene_data import OF_PAIRS, OF_ROWS, check_row, id_of, lines, score_of

TODAY = date(2026, 11, 16)
DEMO = Path(__file__).resolve().parents[2] / "app/demo/data"


def test_there_is_enough_labelled_data_in_both_halves() -> None:
    pairs, rows = lines("pairs.jsonl"), lines("rows.jsonl")
    assert len(pairs) >= 100
    for split in ("dev", "held"):
        for label in OF_PAIRS:
            assert sum(pair["split"] == split and pair["label"] == label for pair in pairs) >= 12
        assert sum(pair["split"] == split and pair["label"] not in OF_PAIRS for pair in pairs) >= 12
        for check in OF_ROWS:
            labels = [row["label"] for row in rows if row["check"] == check and row["split"] == split]
            assert min(labels.count(True), labels.count(False)) >= 12, check
    assert len({json.dumps([row["check"], row["row"]], sort_keys=True) for row in rows}) == len(rows)
    assert len({json.dumps([pair["a"], pair["b"]], sort_keys=True) for pair in pairs}) == len(pairs)


@pytest.mark.parametrize("check", CHECKS)
def test_each_check_agrees_with_the_half_it_was_not_fitted_on(check: str) -> None:
    held = score_of(check, "held")
    assert held.f1 >= 0.85, held.wrong


def test_the_thresholds_are_those_that_the_other_half_gives() -> None:
    assert fitted("dev") == {
        "DUPLICATE_NEARNESS": checks.DUPLICATE_NEARNESS,
        "RELATED_NEARNESS": checks.RELATED_NEARNESS,
    }


def test_the_script_prints_a_line_for_each_check(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    printed = capsys.readouterr().out
    assert all(f"\n{check}" in printed for check in CHECKS)


def test_every_family_of_injections_is_found() -> None:
    payloads = lines("payloads.jsonl")
    assert len(payloads) >= 40
    assert len({payload["family"] for payload in payloads}) == 8
    missed = []
    for payload in payloads:
        found = {finding.check for finding in check_alone(Row(payload["content"]), World(), TODAY)}
        if not found & {"addresses the model", "hidden"}:
            missed.append(payload)
    assert not missed


def test_hidden_letters_do_not_hide_an_order_to_the_model() -> None:
    families = [payload for payload in lines("payloads.jsonl") if payload["family"] == "obfuscation"]
    read = [payload for payload in families if find_prompt_talk(payload["content"])]
    assert len(read) >= len(families) - 1


def test_good_rows_of_the_demo_are_left_alone() -> None:
    rows, world = demo()
    found = [finding for place, row in enumerate(rows) for finding in check_row(row, rows[:place], world, TODAY)]
    assert len(rows) >= 18
    assert len(found) <= math.ceil(len(rows) / 20), found


def demo() -> tuple[list[Row], World]:
    """The rows of the demo that nobody retired, as they are now, and what its workspace has."""
    agents, records, knowledge = (json.loads((DEMO / f"{name}.json").read_text()) for name in NAMES)
    tools: dict[str, frozenset[object]] = {}
    for agent in agents:
        for tool in tools_of(agent["versions"][-1]["config"]["tool_groups"]):
            tools[tool.name] = tools.get(tool.name, frozenset()) | {id_of(agent["slug"])}
    types = records["types"]
    world = World(
        [Named(id_of(agent["slug"]), agent["slug"], agent["name"]) for agent in agents],
        [Named(id_of(one["slug"]), one["slug"], one["name"]) for one in types],
        frozenset(name for one in types for name in one["fields"]),
        tools,
    )
    rows = []
    for given in knowledge:
        steps = given.get("then", [])
        if any("state" in step for step in steps):
            continue
        content = next((step["edit"]["content"] for step in reversed(steps) if "edit" in step), given["content"])
        where = (id_of(given.get("agent")), id_of(given.get("entity_type")))
        rows.append(Row(content, given.get("context"), id_of(given["key"]), *where))
    return rows, world


NAMES = ("agents", "entities", "knowledge")


def rule(content: str, **given: object) -> Row:
    return Row(content, id=uuid4(), **given)


def clash(a: Row, b: Row) -> Finding | None:
    found = [finding for finding in check_row(a, [b], World(), TODAY) if finding.other_id]
    assert len(found) <= 1
    return found[0] if found else None


def test_a_finding_quotes_the_words_and_says_what_to_do() -> None:
    two, four = rule("Reply to outages within 2 hours."), rule("Reply to outages within 4 hours.")
    found = clash(two, four)
    assert found
    assert (found.check, found.other_id) == ("contradiction", four.id)
    assert "“2 hours” here, “4 hours” there" in found.reason
    assert "Reply to outages within 4 hours." in found.reason
    assert "replace the other" in found.fix


def test_the_same_words_are_a_duplicate_whatever_their_case_and_spaces() -> None:
    one, other = Row("Use  EUR, always.", id=uuid4()), Row("use EUR always", id=uuid4())
    found = clash(one, other)
    assert found
    assert found.check == "duplicate"


def test_rows_that_no_agent_gets_together_do_not_clash() -> None:
    ours, theirs = uuid4(), uuid4()
    for key in ("agent_id", "entity_type_id"):
        one, other = (rule("Quote prices with VAT.", **{key: scope}) for scope in (ours, theirs))
        assert clash(one, other) is None
        assert clash(one, replace(other, **{key: None}))


def test_rules_for_other_occasions_do_not_contradict() -> None:
    one = rule("Round amounts to one decimal.", context="writing for the committee")
    other = rule("Round amounts to two decimals.", context="checking the accounts")
    assert clash(one, other) is None
    assert clash(one, replace(other, context="a paper for the committee"))


def test_a_row_is_not_compared_with_itself() -> None:
    row = rule("Use EUR.")
    assert clash(row, row) is None


def test_stripping_takes_what_nobody_sees_and_nothing_else() -> None:
    assert strip_hidden("Refunds\u200b need\u202e approval.\U000e0061") == "Refunds need approval."
    for text in ("👩‍💻 ✅ ⚠️", "می‌خواهم", "Line\none\ttwo", "ᠠ᠋", "Łódź"):
        assert strip_hidden(text) == text
        assert not hidden_signs(text)


def test_an_end_is_read_in_the_ways_people_write_it() -> None:
    days = {
        "until 2026-03-31": date(2026, 3, 31),
        "till 3rd of March 2026": date(2026, 3, 3),
        "through March 2026": date(2026, 3, 31),
        "ends on 5.1.2026": date(2026, 1, 5),
        "by Jan. 5, 2026": date(2026, 1, 5),
        "for Q1 2026 only": date(2026, 3, 31),
        "until the end of 2025": date(2025, 12, 31),
        "until 2026-02-31": None,
        "until Friday": None,
        "before 2024": None,
    }
    for text, day in days.items():
        found = last_day(f"Quote old prices {text}.")
        assert (found[0] if found else None) == day, text


def test_checks_end_on_any_text() -> None:
    for text in (
        "",
        "=",
        "a" * 2000,
        "a." * 1000,
        "not " * 500,
        "{" * 2000,
        "\u200d" * 2000,
        "🏴" * 600,
        "until " * 300,
    ):
        check_row(Row(text), [Row(text[::-1])], World(), TODAY)
