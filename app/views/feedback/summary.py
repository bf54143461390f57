"""What a feedback row says, in one line: a person's words in quotes, the product's own words without."""

from dataclasses import dataclass

from app.learning.signals import weight_of
from app.services.feedback.failures import FailureGroup
from app.services.feedback.lists import FeedbackRow
from app.views.format import percent, value_line, with_version

SIGNAL_WORDS = {
    "helpful": "marked helpful",
    "not_helpful": "marked not helpful",
    "inaccurate": "marked inaccurate",
    "unsafe": "marked unsafe",
    "edit": "rewrote the answer",
    "regenerate": "asked for another answer",
}
MAX_EDIT_LENGTH = 300
MAX_TITLE_LENGTH = 60
RATING_WORDS = {"positive": "liked it", "negative": "did not like it", "neutral": "no opinion"}


@dataclass(frozen=True)
class Summary:
    """`lead` our words, `quote` theirs, `tail` a figure that matters beside them."""

    lead: str = ""
    quote: str = ""
    tail: str = ""

    @property
    def line(self) -> str:
        quoted = f"“{self.quote}”" if self.quote else ""
        return " ".join(part for part in (self.lead, quoted) if part)


def summarise(row: FeedbackRow) -> Summary:
    """The row as one line. Only people's words are quoted; the reason of a failure is the machine's."""
    comment = " ".join((row.comment or "").split())
    if row.signal == "edit":
        # An edit's comment is the whole answer that was wanted, which the page of the row shows.
        comment = value_line(comment, MAX_EDIT_LENGTH)
    failed = row.kind in {"session_failure", "replay_failure"}
    return Summary(_lead(row, comment), "" if failed else comment, _tail(row))


def group_title(group: FailureGroup) -> str:
    """`pe-analyst v4: 7 goldens fail`."""
    which = with_version(group.set_name or "A deleted run", group.version)
    return f"{which}: {group.total:,} golden{' fails' if group.total == 1 else 's fail'}"


def _lead(row: FeedbackRow, comment: str) -> str:
    colon = ":" if comment else ""
    if row.kind == "session_failure":
        return f"failed: {comment or 'no reason recorded'}"
    if row.kind == "replay_failure":
        golden = f"“{value_line(row.golden_title, MAX_TITLE_LENGTH)}”" if row.golden_title else "A deleted golden"
        return f"{golden} fails: {comment.removeprefix('Replay fails: ') or 'differs from its golden'}"
    if row.kind in {"response_rejection", "extraction_rejection"}:
        return f"{row.field_name or 'response'} rejected{colon}"
    if row.kind == "tool_observation":
        return f"{row.tool_slug or 'tool'}{colon}"
    if row.signal == "edit" and comment:
        return "rewrote the answer:"
    if comment:
        return ""
    return f"{SIGNAL_WORDS.get(row.signal) or RATING_WORDS[row.rating]}, no comment"


def _tail(row: FeedbackRow) -> str:
    if row.origin == "machine":
        return f"{percent(row.confidence)} confidence"
    if row.signal == "edit" and row.edit_distance is not None:
        return f"{row.edit_distance}% changed"
    weight = weight_of(row.signal)
    return f"weight {weight:g}" if weight < 1 else ""
