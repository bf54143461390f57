"""Checks new messages for judgements of earlier answers, in batches and beside the requests that store them."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b
from uuid import UUID

from sqlalchemy.exc import SQLAlchemyError

from app.actor import Actor
from app.agents.gate import ask_model
from app.config import Settings
from app.db import acting_as, transaction
from app.formats.agent_config import OFFLINE
from app.learning.gate.classify import Verdict, classify
from app.learning.gate.reading import Turn
from app.learning.gate.targets import choose_target, rank_turns
from app.services.feedback import machine
from app.services.feedback.machine import ClaimedChat, Detection, Located, NewMessage
from app.services.workspaces import identity
from app.services.workspaces.store import get_settings

log = logging.getLogger("upshot")
CHATS_AT_ONCE = 50
# How many unclear messages a model is asked about at once, and in an hour, in each workspace.
MAX_QUESTIONS, QUESTIONS_AN_HOUR = 8, 120


@dataclass
class Allowance:
    """How many messages of a workspace this process may still check or ask about; it grows back over some time."""

    left: float
    at: float
    seconds: float = 60.0

    def take(self, wanted: int, rate: int) -> int:
        now = time.monotonic()
        self.left = min(float(rate), self.left + (now - self.at) * rate / self.seconds)
        self.at = now
        granted = min(wanted, int(self.left))
        self.left -= granted
        return granted


@dataclass(frozen=True)
class ReadMessage:
    """A message with the turns it was read after, what the gate says, and its turn where that is known already."""

    message: NewMessage
    turns: Sequence[Turn]
    verdict: Verdict
    located: Located | None


@dataclass
class MachineFeedback:
    """Checks messages in all workspaces. Any number of processes may: each claims chats of its own."""

    settings: Settings
    allowances: dict[UUID, Allowance] = field(default_factory=dict)
    questions: dict[UUID, Allowance] = field(default_factory=dict)

    def check_messages(self) -> int:
        """Check what waits, workspace by workspace. Returns how many rows were written."""
        if not self.settings.machine_feedback_rate:
            return 0
        with transaction():
            waiting = machine.waiting_workspaces()
        written = 0
        for tenant_id in waiting:
            try:
                with acting_as(identity.product_in(tenant_id)), transaction():
                    system = identity.system_user(tenant_id)
                written += self._check_workspace(system)
            except SQLAlchemyError as trouble:
                log.warning("messages of workspace %s are checked later: %s", tenant_id, trouble)
        return written

    def _check_workspace(self, system: Actor) -> int:
        written, full = 0, True
        while full:
            chats, enabled = self._claim(system)
            full = len(chats) == CHATS_AT_ONCE
            wanted = self._sample(system.tenant_id, chats) if enabled else set()
            read = [self._read(one, system) for chat in chats for one in chat.messages if one.id in wanted]
            found = self._detect([one for one in read if one is not None], system)
            for chat in chats:
                here = [one for one in found if one.message.chat_id == chat.id]
                with acting_as(system), transaction():
                    written += machine.store_checked(chat, here, actor=system)
        return written

    def _claim(self, system: Actor) -> tuple[list[ClaimedChat], bool]:
        lease = timedelta(seconds=self.settings.lease_seconds)
        with acting_as(system), transaction():
            enabled = get_settings(system).machine_feedback
            return machine.claim_chats(CHATS_AT_ONCE, lease, actor=system), enabled

    def _sample(self, tenant_id: UUID, chats: Sequence[ClaimedChat]) -> set[UUID]:
        """The messages to check: all of them, or as many as the rate allows, picked by the hash of their ids."""
        new = [message for chat in chats for message in chat.messages]
        rate = self.settings.machine_feedback_rate
        allowance = self.allowances.setdefault(tenant_id, Allowance(float(rate), time.monotonic()))
        granted = allowance.take(len(new), rate)
        if granted < len(new):
            log.info("machine feedback: %s of %s messages are checked, the rest is over the rate", granted, len(new))
        by_hash = sorted(new, key=lambda message: blake2b(message.id.bytes, digest_size=8).digest())
        return {message.id for message in by_hash[:granted]}

    def _read(self, message: NewMessage, system: Actor) -> ReadMessage | None:
        """Read one message. The first of a conversation is read as if it followed the turn that it is nearest to."""
        turns, located = message.turns, None
        if not turns:
            located = self._locate(message, system)
            if located is None:
                return None
            turns = [located.turn.turn]
        return ReadMessage(message, turns, classify(message.content, turns), located)

    def _detect(self, read: Sequence[ReadMessage], system: Actor) -> list[Detection]:
        """The judgements in the messages, each with its turn. No transaction is open while they are decided."""
        decided = [(one, one.verdict, None) for one in read if one.verdict.counts]
        found = []
        for one, verdict, by in [*decided, *self._ask(read, system)]:
            located = one.located or self._locate(one.message, system)
            if located is None:
                log.info("machine feedback: message %s judges no known turn", one.message.id)
            else:
                found.append(Detection(one.message, verdict, located, by))
        return found

    def _ask(self, read: Sequence[ReadMessage], system: Actor) -> list[tuple[ReadMessage, Verdict, str | None]]:
        """What the server's model is sure of among the unclear messages. Without a model they are left out."""
        unclear = [one for one in read if one.verdict.is_unclear]
        if not unclear or self.settings.model == OFFLINE:
            return []
        asked = self.questions.setdefault(system.tenant_id, Allowance(QUESTIONS_AN_HOUR, time.monotonic(), 3600))
        some = unclear[: asked.take(min(len(unclear), MAX_QUESTIONS), QUESTIONS_AN_HOUR)]
        verdicts = ask_model([(one.message.content, one.turns) for one in some], self.settings)
        answered = zip(some, verdicts, strict=True)
        return [(one, verdict, self.settings.model) for one, verdict in answered if verdict and verdict.counts]

    def _locate(self, message: NewMessage, system: Actor) -> Located | None:
        with acting_as(system), transaction():
            turns = machine.turns_of_person(message)
        ages = [turn.age_in_days(message.created_at) for turn in turns]
        read = [turn.turn for turn in turns]
        ranked = rank_turns(message.content, read, ages)
        here = [place for place, turn in enumerate(turns) if turn.chat_id == message.chat_id]
        target = choose_target(message.content, ranked, read, here)
        return Located(turns[target.position], ranked, turns) if target else None
