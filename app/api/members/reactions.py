"""Reactions to conversation turns, and two reports on them."""

from typing import Annotated, Any, Literal
from uuid import UUID

from flask import g
from pydantic import BeforeValidator, Field

from app.api.kit.fields import MAX_LIMIT, Answer, Body, Moment
from app.api.kit.route import route
from app.api.members import bp
from app.errors import Invalid, NotFound
from app.formats.rfc3339 import read_moment
from app.formats.strict_json import check_text
from app.ingest.fields import PastMoment
from app.learning.reactions import LogEntry, Reaction, UserType, print_log, reaction_entry
from app.services.feedback import reactions
from app.services.feedback.reactions import Conversation, ReactedTurn
from app.services.sessions import transcript as session_transcript

ReactionName = Literal["ok", "not_ok", "neutral"]
ROOT = "/conversations/<tenant>/<project>"


AnyMoment = Annotated[Moment, BeforeValidator(read_moment)]


class ReactionBody(Body):
    """A person's reaction to a turn."""

    reaction: ReactionName | None = Field(description="Null removes the reaction.")
    text: str | None = Field(None, max_length=4096, description="The person's own words.")
    ts: PastMoment | None = Field(None, description="When the feedback was given. Defaults to now.")


class ReactionTold(Answer):
    """A reaction as it was sent."""

    turn_id: str
    text: str | None
    confidence: float
    ts: Moment
    reaction: ReactionName
    origin: Literal["user", "machine"]


class ReactionMeta(Answer):
    rn: str
    turn_id: str
    track_id: str = Field(description="The conversation's project.")
    user_type: UserType | None = Field(
        description="`privileged` for owners and admins; null for machines and where authors are hidden."
    )
    kind: Literal["turn.log.reaction"] = "turn.log.reaction"


class ReactionArtifact(Answer):
    """A reaction with its resource name, conversation and agent."""

    id: UUID
    rn: str
    reaction: ReactionTold
    meta: ReactionMeta
    conversation_id: str
    bundle_id: str | None = Field(description="The agent's slug.")
    tags: list[str]


class ReactionAnswer(Answer):
    """Your current reaction to the turn. All fields are null once you removed it."""

    conversation_id: str
    turn_id: str
    id: UUID | None
    rn: str | None
    reaction: ReactionTold | None
    meta: ReactionMeta | None
    bundle_id: str | None = Field(description="The agent's slug.")
    tags: list[str] | None


class TurnsBody(Body):
    """Which turns to return."""

    turn_ids: list[Annotated[str, Field(max_length=256)]] | None = Field(
        None, max_length=1000, description="Only these turns. Null returns all."
    )
    days: int = Field(365, ge=1, le=3650, description="Reactions of the last N days.")
    include_turn_log: bool = Field(False, description="Adds messages and tool calls for the newest 50 turns.")


class SaidInTurn(Answer):
    message_id: UUID
    text: str
    ts: Moment


class FeedbackTold(ReactionTold):
    """A reaction in a report."""

    rn: str


class TurnLogEntry(Answer):
    """A message, a tool call with its result, or a reaction (its name is `ok`, `not_ok` or `neutral`)."""

    type: Literal["user", "assistant", "system", "tool_call", "feedback"]
    ts: Moment = Field(validation_alias="at")
    text: str | None
    name: str | None
    arguments: Any
    output: Any
    is_error: bool | None


class TurnLog(Answer):
    """A turn, oldest entry first. `text` has the same as plain text."""

    turn_id: str
    text: str
    entries: list[TurnLogEntry]
    feedbacks: list[FeedbackTold]


class TurnWithFeedbacks(Answer):
    turn_id: str
    turn_log: TurnLog | None = Field(description="Null unless `include_turn_log`.")
    assistant: SaidInTurn | None
    user: SaidInTurn | None
    feedbacks: list[FeedbackTold]
    reactions: list[ReactionArtifact]


class TurnsWithFeedbacks(Answer):
    """Turns with reactions, oldest first."""

    user_id: UUID
    conversation_id: str
    turns: list[TurnWithFeedbacks]


class PeriodBody(Body):
    """The period, both ends included."""

    start: AnyMoment
    end: AnyMoment
    include_turns: bool = False
    limit: int = Field(MAX_LIMIT, description="Conversations per page, 1 to 100.")
    cursor: str | None = Field(None, max_length=1000, description="`next_cursor` of the previous page.")


class Window(Answer):
    start: Moment
    end: Moment


class FeedbackCounts(Answer):
    total: int
    user: int
    machine: int
    ok: int
    not_ok: int
    neutral: int


class TurnInPeriod(Answer):
    turn_id: str
    ts: Moment
    feedbacks: list[FeedbackTold]


class ConversationInPeriod(Answer):
    conversation_id: str
    last_activity_at: Moment
    started_at: Moment | None
    feedback_counts: FeedbackCounts
    turns: list[TurnInPeriod] | None = Field(description="Null unless `include_turns`.")


class ConversationsInPeriod(Answer):
    """Conversations with reactions, last active first."""

    tenant: str
    project: str
    window: Window
    items: list[ConversationInPeriod]
    next_cursor: str | None


@route(bp, "POST", f"{ROOT}/<conversation_id>/turns/<turn_id>/feedback", access=("member", "feedback"), idempotent=True)
def react(tenant: str, project: str, conversation_id: str, turn_id: str, body: ReactionBody) -> ReactionAnswer:
    """React to a turn. Each person has one reaction per turn. A new one replaces it, null removes it. Use Upshot's
    conversation ID or yours."""
    conversation = find_conversation(tenant, project, conversation_id, turn_id)
    given = reactions.set_reaction(conversation, turn_id, body.reaction, actor=g.actor, text=body.text, at=body.ts)
    answer = dict.fromkeys(ReactionAnswer.model_fields) | (artifact(given, conversation) if given else {})
    return ReactionAnswer.model_validate(answer | {"conversation_id": conversation_id, "turn_id": turn_id})


@route(bp, "POST", f"{ROOT}/<conversation_id>/turns-with-feedbacks", access=("member", "feedback"))
def turns(tenant: str, project: str, conversation_id: str, body: TurnsBody) -> TurnsWithFeedbacks:
    """List a conversation's turns with reactions. Members get their own reactions, admin keys get everyone's."""
    conversation = find_conversation(tenant, project, conversation_id)
    for turn_id in body.turn_ids or []:
        check_text(turn_id)
    found = reactions.turns_with_feedback(conversation, body.turn_ids, body.days, actor=g.actor)
    wanted = [turn.turn_id for turn in found] if body.include_turn_log else []
    logs = session_transcript.read_turn_logs(conversation, wanted, actor=g.actor) if wanted else {}
    answers = []
    for turn in found:
        log = turn_log(turn, logs[turn.turn_id]) if turn.turn_id in logs else None
        artifacts = [artifact(reaction, conversation) for reaction in turn.feedbacks]
        answers.append(TurnWithFeedbacks.model_validate(vars(turn) | {"turn_log": log, "reactions": artifacts}))
    return TurnsWithFeedbacks(user_id=g.actor.id, conversation_id=conversation_id, turns=answers)


@route(bp, "POST", f"{ROOT}/feedback/conversations-in-period", access=("member", "feedback"))
def in_period(tenant: str, project: str, body: PeriodBody) -> ConversationsInPeriod:
    """List conversations with reactions in a period. Counts by origin and by reaction, where total = user + machine
    = ok + not_ok + neutral. Members get their own reactions, admin keys get everyone's. `ts` decides whether a
    reaction falls into the period."""
    check_place(tenant, project)
    found, following = reactions.conversations_in_period(g.person.workspace_slug, project, **dict(body), actor=g.actor)
    return ConversationsInPeriod.model_validate(
        {"tenant": tenant, "project": project, "window": body, "items": found, "next_cursor": following}
    )


def check_place(*names: str) -> None:
    """The tenant in the address must be the credential's own; whatever else is not even looked for."""
    try:
        for name in names:
            check_text(name)
    except Invalid:
        raise NotFound(reactions.NOT_FOUND) from None
    if names[0] not in (g.person.workspace_slug, str(g.actor.tenant_id)):
        raise NotFound(reactions.NOT_FOUND)


def find_conversation(tenant: str, project: str, conversation_id: str, *more: str) -> Conversation:
    check_place(tenant, project, conversation_id, *more)
    slug = g.person.workspace_slug
    return reactions.find_conversation(conversation_id, tenant=slug, project=project, actor=g.actor)


def artifact(reaction: Reaction, conversation: Conversation) -> dict[str, Any]:
    return {
        "id": reaction.id,
        "rn": reaction.rn,
        "reaction": reaction,
        "meta": reaction,
        "conversation_id": reaction.conversation_id,
        "bundle_id": conversation.agent,
        "tags": reaction.tags,
    }


def turn_log(turn: ReactedTurn, happened: list[LogEntry]) -> dict[str, Any]:
    entries = [*happened, *(reaction_entry(reaction) for reaction in turn.feedbacks)]
    return {"turn_id": turn.turn_id, "text": print_log(entries), "entries": entries, "feedbacks": turn.feedbacks}
