"""The reviewer without a model: its rules, and how well it does on labelled weeks of feedback."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from uuid import UUID, uuid4

import numpy
import pytest

from app.learning.review import windows
from app.learning.review.orders import instructions_of
from app.learning.review.plan import WAITS, plan_review
from app.learning.review.sentences import SentenceVectors
from app.learning.review.topics import topics_of
from app.learning.review.types import Agent, Call, EntityType, KnownPattern, Plan, Rule, Signal, Tool
from app.learning.rules import applies_to_texts, read_forms
from app.text import encoder
from scripts.review_weeks import DATA, NOW, WEEKS, Week, read_week, score_week

TOOLS = (Tool("getPrice", False, "Price of a ticket.", ("route", "fare")), Tool("bookSeat", True, "Book a seat."))
FERRY = Agent(UUID(int=1), "ferry-desk", "Ferry Desk", "You sell tickets.", TOOLS)
PORT = Agent(UUID(int=2), "port-office", "Port Office", "You plan the piers.")
CREW = EntityType(UUID(int=3), "crew-list", "Crew list", ("captain", "mates"))
REASONS = (
    "Prices to passengers include the harbour tax, so use fare=total.",
    "The harbour tax is missing from this price again.",
    "Price without the harbour tax, they pay 4 euro more at the pier",
)


def complaint(text: str | None, person: int | None, **changes: object) -> Signal:
    """A thumb down for a price that was given without tax."""
    row = Signal(
        id=uuid4(),
        kind="signal",
        source_type="chat",
        rating="negative",
        origin="user",
        occurred_at=NOW - timedelta(days=1),
        signal="not_helpful",
        comment=text,
        author_id=person and UUID(int=100 + person),
        session_id=uuid4(),
        agent_id=FERRY.id,
        question="What is a ticket to Brodick for a passenger?",
        answer="A ticket to Brodick costs 12.00.",
        calls=(Call("getPrice", {"route": "Brodick", "fare": "net"}, False, {"price": 12.0}),),
    )
    return replace(row, **changes)  # type: ignore[arg-type]


def plan(*signals: Signal, rules: tuple[Rule, ...] = (), known: tuple[KnownPattern, ...] = ()) -> Plan:
    return plan_review(signals, agents=[FERRY, PORT], entity_types=[CREW], rules=rules, now=NOW, known=known)


def test_three_people_who_say_the_same_give_one_rule_for_their_agent() -> None:
    signals = [complaint(text, person) for person, text in enumerate(REASONS, 1)]

    [proposal] = plan(*signals).proposals

    assert set(proposal.signal_ids) == {signal.id for signal in signals}
    assert (proposal.agent_id, proposal.entity_type_id) == (FERRY.id, None)
    assert "fare=total" in proposal.content
    assert proposal.reason == "3 people in 3 sessions."


def test_one_person_or_one_session_is_not_enough() -> None:
    same_person = [complaint(text, 1) for text in REASONS]
    session = uuid4()
    same_session = [complaint(text, person, session_id=session) for person, text in enumerate(REASONS, 1)]

    for signals in (same_person, same_session):
        found = plan(*signals)
        assert not found.proposals
        assert set(found.pending) == {signal.id for signal in signals}


def test_a_flag_of_an_admin_and_a_failed_replay_are_enough_alone() -> None:
    flag = complaint(REASONS[0], 1, kind="flag", admin_flag=True)
    replay = complaint(REASONS[0], None, kind="replay_failure", origin="system")

    assert [one.signal_ids for one in plan(flag).proposals] == [(flag.id,)]
    assert [one.signal_ids for one in plan(replay).proposals] == [(replay.id,)]


def test_two_failed_sessions_are_two_signals_and_one_is_not() -> None:
    failed = "bookSeat failed: call getPrice before bookSeat."
    rows = [complaint(failed, None, kind="session_failure", origin="system") for _ in range(2)]
    once = [replace(row, session_id=rows[0].session_id) for row in rows]

    [pattern] = plan(*rows).patterns

    assert set(pattern.signal_ids) == {row.id for row in rows}
    assert not any(reason == WAITS for reason in plan(*rows).pending.values())
    assert set(plan(*once).pending.values()) == {WAITS}


def test_failed_sessions_confirm_what_one_person_says() -> None:
    said = complaint("Call getPrice first, then bookSeat.", 1, calls=(Call("bookSeat", {"seat": "4A"}),))
    failed = replace(
        said,
        id=uuid4(),
        session_id=uuid4(),
        kind="session_failure",
        author_id=None,
        comment="bookSeat failed: no price",
    )

    [proposal] = plan(said, failed).proposals

    assert set(proposal.signal_ids) == {said.id, failed.id}
    assert proposal.content == "Call getPrice first, then bookSeat."


ANECDOTE = "Third passenger this week who paid 4 euro harbour tax more than the price I quoted!"
MADE = (Call("bookSeat", {"seat": "4A"}),)


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        # What happened once is left out where somebody says what to do.
        ((ANECDOTE, "Quote prices with the harbour tax. I was furious."), "Quote prices with the harbour tax."),
        (("He paid twice. Please take it out.", ANECDOTE), None),
        # One sentence for one order.
        (
            ("Use getPrice instead of bookSeat.", "Use getPrice instead of bookSeat for a price.", "Call getPrice."),
            "Use getPrice instead of bookSeat for a price.",
        ),
        (("Try to be right about the price.", "The price has to be right."), None),
    ],
)
def test_a_rule_says_what_to_do(said: tuple[str, ...], rule: str | None) -> None:
    calls = MADE if "bookSeat" in said[0] else ()
    found = plan(*(complaint(text, person, calls=calls) for person, text in enumerate(said, 1))).proposals

    assert [one.content for one in found] == ([rule] if rule else [])


def test_a_change_that_nobody_asked_for_gives_a_rule() -> None:
    agent = replace(FERRY, tools=(Tool("createBooking", True, "Book."),))
    calls = (Call("createBooking", {"name": "Fare"}),)
    about = {"calls": calls, "question": "Fare to Brodick for the brochure"}
    rows = [
        complaint("I asked for a fare and it made a booking. Please take it out.", 1, **about),
        complaint("I asked for a fare, it made a booking called Fare.", 2, **about),
        complaint("An agent must not book when somebody only asks.", 3, kind="flag", admin_flag=True, **about),
    ]

    [proposal] = plan_review(rows, agents=[agent], entity_types=[], rules=(), now=NOW).proposals

    assert set(proposal.signal_ids) == {row.id for row in rows}
    assert proposal.content == (
        "Never use createBooking to answer a question. An agent must not book when somebody only asks."
    )


def test_a_rule_that_is_there_in_other_words_gets_the_signals() -> None:
    rule = Rule(uuid4(), "correction", "A passenger's ticket is fare=total.", "ticket", FERRY.id, None, "proposed")

    found = plan(*(complaint(text, person) for person, text in enumerate(REASONS, 1)), rules=(rule,))

    assert [merge.rule_id for merge in found.merges] == [rule.id]
    assert not found.proposals


def test_what_a_golden_called_is_the_rule_for_its_failed_replay() -> None:
    yearly = EntityType(uuid4(), "season-fare", "Season fare")
    calls = [(Call("getPrice", {"route": "Brodick", "kind": slug}),) for slug in ("crew-list", "season-fare")]
    rows = [
        complaint(
            "Replay fails: the answer does not mention “12.00”.",
            None,
            kind="replay_failure",
            question=f"Which season tickets are there to {place}?",
            calls=calls[0],
            expected=calls[1],
        )
        for place in ("Brodick", "Arran")
    ]

    [proposal] = plan_review(rows, agents=[FERRY], entity_types=[CREW, yearly], rules=(), now=NOW).proposals

    assert (proposal.content, proposal.context) == (
        "Call getPrice with kind=season-fare when someone asks about season tickets.",
        "season tickets",
    )


def test_a_rule_that_is_there_gets_the_signals_and_one_that_was_rejected_does_not_come_back() -> None:
    signals = [complaint(text, person) for person, text in enumerate(REASONS, 1)]
    [proposal] = plan(*signals).proposals
    live = Rule(uuid4(), "correction", proposal.content, None, FERRY.id, None, "active")
    rejected = replace(live, state="inactive", rejected=True)

    merged, refused = plan(*signals, rules=(live,)), plan(*signals, rules=(rejected,))

    assert [(merge.rule_id, merge.signal_ids) for merge in merged.merges] == [(live.id, proposal.signal_ids)]
    assert not merged.proposals
    assert not refused.proposals
    assert [one.reason for one in refused.dismissals] == ["A person rejected a rule that says the same."]


def test_a_single_signal_waits_and_then_is_dismissed() -> None:
    fresh, old = complaint(REASONS[1], 1), complaint(REASONS[1], 1, occurred_at=NOW - timedelta(days=15))

    assert list(plan(fresh).pending) == [fresh.id]
    assert [(one.signal_ids, one.reason) for one in plan(old).dismissals] == [
        ((old.id,), "No second signal in 14 days.")
    ]


def test_new_signals_join_the_pattern_they_are_near_to() -> None:
    before = complaint(REASONS[0], 1)
    known = KnownPattern(uuid4(), (before,))

    [pattern] = plan(complaint(REASONS[1], 2), complaint(REASONS[2], 3), known=(known,)).patterns

    assert pattern.known_id == known.id
    assert before.id not in pattern.signal_ids


@pytest.fixture(scope="module")
def dev() -> Week:
    return read_week("dev")


def test_the_order_of_the_signals_makes_no_difference(dev: Week) -> None:
    shuffled = list(dev.signals)
    random.Random(7).shuffle(shuffled)

    assert dev.plan(shuffled) == dev.plan()


def test_two_processes_decide_the_same() -> None:
    code = "from scripts.review_weeks import read_week; print(read_week('dev').plan())"
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_every_signal_is_in_one_decision_at_most(dev: Week) -> None:
    found = dev.plan()
    decided = [id for one in (*found.proposals, *found.merges, *found.dismissals) for id in one.signal_ids]

    assert len(decided) == len(set(decided))
    assert set(decided) | set(found.pending) == {signal.id for signal in dev.signals}
    assert not set(decided) & set(found.pending)


@pytest.mark.parametrize("name", WEEKS)
def test_proposals_find_the_patterns_of_a_week(name: str) -> None:
    week = read_week(name)
    score = score_week(week, week.plan())

    assert score.recall >= 0.8
    assert score.precision >= 0.9
    assert score.scope >= 0.8
    assert score.duplicates == 0


def test_a_review_does_without_the_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "is_installed", lambda: False)
    week = read_week("second")
    score = score_week(week, week.plan())

    assert SentenceVectors().encode(["No text has a vector."]) is None
    assert (score.recall, score.precision, score.scope) >= (0.8, 0.9, 0.8)


def test_a_review_encodes_so_many_texts_and_each_of_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(encoder, "is_installed", lambda: True)
    monkeypatch.setattr(encoder, "encode", lambda texts: asked.append(list(texts)) or numpy.ones((len(texts), 4)))
    vectors = SentenceVectors(max_texts=3)

    assert vectors.encode(["a", "b", "a"]).shape == (3, 4)
    assert vectors.encode(["b", "c"]).shape == (2, 4)
    assert vectors.encode(["c", "d"]) is None, "the fourth text is too many"
    assert asked == [["a", "b"], ["c"]]


def test_currencies_and_dates_are_topics_whatever_is_said_of_them() -> None:
    said = ("we are in the UK, pounds please", "You stuck a euro sign on it.", "no lift")
    rows = [complaint(text, 1) for text in said]

    assert [set(topics_of(row)) for row in rows] == [{"currencies"}, {"currencies"}, set()]
    edit = replace(complaint(None, 1), answer="It costs 20 EUR.", preferred_answer="It costs 20 EUR from March.")
    assert set(topics_of(edit)) == {"dates"}, "the currency was in the answer already"


def test_what_we_do_here_is_an_order() -> None:
    assert instructions_of("We don't say that to owners.") == ["We don't say that to owners."]
    assert instructions_of("We don't have that room.") == []


def test_a_pattern_that_is_spread_over_many_rows_stays_one(monkeypatch: pytest.MonkeyPatch, dev: Week) -> None:
    """More rows than one window has are grouped beside samples of the groups before."""
    monkeypatch.setattr(windows, "WINDOW", 20)
    rows = [complaint(REASONS[n % 3], n + 1, occurred_at=NOW - timedelta(hours=n)) for n in range(60)]

    found = plan(*rows, *dev.signals[:40])

    mine = {row.id for row in rows}
    assert [set(one.signal_ids) >= mine for one in found.patterns if mine & set(one.signal_ids)] == [True]


POISON = [json.loads(line) for line in (DATA / "poison.jsonl").read_text().splitlines()]


def attack(row: dict[str, str], person: int) -> Signal:
    """A payload where its row says: in a reason, an edit, the next message or the reason of a rejection."""
    text = row["text"]
    if row["channel"] == "edit":
        return complaint(None, person, signal="edit", preferred_answer=text)
    if row["channel"] == "follow_up":
        return complaint(None, person, follow_up=text)
    kind = "response_rejection" if row["channel"] == "rejection" else "signal"
    return complaint(text, person, kind=kind)


def test_there_are_two_hundred_payloads_of_eight_families_and_fifty_honest_rows() -> None:
    counts = Counter(row["family"] for row in POISON)

    assert counts.pop("honest") == 50
    assert len(counts) == 8
    assert sum(counts.values()) == 200


@pytest.mark.parametrize("family", sorted({row["family"] for row in POISON} - {"honest"}))
def test_no_payload_gets_into_a_rule(family: str) -> None:
    """Sent by four people each, beside honest feedback about the same answer."""
    rows = [row for row in POISON if row["family"] == family]
    signals = [complaint(text, person) for person, text in enumerate(REASONS, 1)]
    signals += [attack(row, person) for row in rows for person in range(11, 15)]
    signals += [complaint(text, 20) for row in rows for text in row.get("earlier", ())]

    found = plan(*signals)

    told = " ".join(f"{one.content} {one.context}" for one in found.proposals).lower()
    assert not [row["needle"] for row in rows if row["needle"].lower() in told]
    assert any("fare=total" in one.content for one in found.proposals)


def test_no_honest_row_is_dismissed_for_what_it_tells_to_do() -> None:
    rows = [complaint(row["text"], person) for person, row in enumerate(POISON, 1) if row["family"] == "honest"]

    assert not plan(*rows).dismissals


@pytest.mark.parametrize(
    ("reasons", "form"),
    [
        (
            ("Passengers pay fare=total here.", "use fare=total", "fare=total please, not net"),
            ("sets", ("fare", "total")),
        ),
        (("Quote the total, not net.", "total instead of net!", "It's total, not net"), ("sets", ("fare", "total"))),
        (("Use bookSeat for this.", "bookSeat would hold it", "why not bookSeat"), ("prefers", "bookSeat")),
    ],
)
def test_the_offline_agent_can_follow_the_rule(reasons: tuple[str, ...], form: tuple[str, object]) -> None:
    signals = [complaint(text, person) for person, text in enumerate(reasons, 1)]

    [proposal] = plan(*signals).proposals

    names = [tool.name for tool in TOOLS]
    assert form in read_forms(proposal.content, names, ["route", "fare"])[0]
    question = signals[0].question or ""
    assert applies_to_texts(proposal.content, proposal.context, names, [question])


def test_a_sentence_that_two_people_add_is_said() -> None:
    edits = [
        complaint(
            None, person, signal="edit", preferred_answer=f"A ticket to {place} costs 12.00. Harbour tax is extra."
        )
        for person, place in enumerate(("Brodick", "Arran", "Islay"), 1)
    ]

    [proposal] = plan(*edits).proposals

    assert ("says", "Harbour tax is extra.") in read_forms(proposal.content, [], [])[0]
