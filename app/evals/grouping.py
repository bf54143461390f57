"""Group complaints about the same request of the same agent."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True)
class Complaint:
    """Negative feedback on a session, with what was first asked there."""

    feedback_id: UUID
    session_id: UUID
    agent_id: UUID
    agent_slug: str
    created_at: datetime
    prompt: str
    person_id: UUID | None = None
    agent_version: int | None = None
    promotable: bool = False
    failed: bool = False
    agent_runs: bool = False


@dataclass(frozen=True)
class Candidate:
    """A request that went wrong. The representative session is that of the latest complaint, or of the latest whose
    session can be golden; `promotable` says whether it can. Where all sessions failed and the agent runs here, the
    request can run again; `rerun` is the session that does so now."""

    prompt: str
    agent_id: UUID
    agent_slug: str
    occurrence_count: int
    feedback_ids: list[UUID]
    representative_session_id: UUID
    last_feedback_at: datetime
    session_ids: frozenset[UUID] = frozenset()
    people: int = 0
    agent_version: int | None = None
    promotable: bool = False
    can_run_again: bool = False
    rerun: UUID | None = None

    @property
    def key(self) -> tuple[int, float, str]:
        """Its place in the list: more complaints first, then the latest."""
        return -self.occurrence_count, -self.last_feedback_at.timestamp(), str(self.feedback_ids[0])


def normalize_prompt(prompt: str) -> str:
    """A prompt without differences in case and white space."""
    return " ".join(prompt.split()).lower()


def group_complaints(complaints: Sequence[Complaint]) -> list[Candidate]:
    """One candidate for each request and agent: those with most complaints first, then the latest."""
    groups: dict[tuple[UUID, str], list[Complaint]] = {}
    for complaint in complaints:
        if complaint.prompt.strip():
            groups.setdefault((complaint.agent_id, normalize_prompt(complaint.prompt)), []).append(complaint)
    found = [_candidate(group) for group in groups.values()]
    return sorted(found, key=lambda one: one.key)


def _candidate(group: list[Complaint]) -> Candidate:
    ordered = sorted(group, key=lambda complaint: (complaint.created_at, complaint.feedback_id), reverse=True)
    latest = ordered[0]
    shown = next((complaint for complaint in ordered if complaint.promotable), latest)
    return Candidate(
        prompt=latest.prompt.strip(),
        agent_id=latest.agent_id,
        agent_slug=latest.agent_slug,
        occurrence_count=len(ordered),
        feedback_ids=[complaint.feedback_id for complaint in ordered],
        representative_session_id=shown.session_id,
        last_feedback_at=latest.created_at,
        session_ids=frozenset(complaint.session_id for complaint in ordered),
        people=len({complaint.person_id for complaint in ordered}),
        agent_version=shown.agent_version,
        promotable=shown.promotable,
        can_run_again=latest.agent_runs and all(complaint.failed for complaint in ordered),
    )
