"""What can go wrong, in words a person can act on. Services raise these; the edge turns them into a page, a form with
messages, or `application/problem+json`."""

from typing import Any, Self


class Unusable(Exception):
    """The product cannot start or a command cannot run as things are. One sentence that says what to do; exit 1."""


class Problem(Exception):
    """A request that cannot be done. `status` is the HTTP status, the text says what to change."""

    status, title = 400, "This request cannot be done"

    def __init__(self, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extra = extra


class Invalid(Problem):
    """Input that does not fit. `fields` maps a field's name to the sentence that belongs under it."""

    status, title = 400, "The input isn’t valid"

    def __init__(self, detail: str, fields: dict[str, str] | None = None, **extra: Any) -> None:
        super().__init__(detail, **extra)
        self.fields = fields or {}

    @classmethod
    def of(cls, fields: dict[str, str]) -> Self:
        """Name the first wrong field in the sentence, and carry them all."""
        name, sentence = next(iter(fields.items()))
        return cls(f"{name}: {sentence}", fields)

    @classmethod
    def at(cls, field: str, sentence: str) -> Self:
        """One sentence that is clear without the field's name, and belongs under it."""
        return cls(sentence, {field: sentence})


class SignInNeeded(Problem):
    status, title = 401, "Sign in first"


class Forbidden(Problem):
    status, title = 403, "Not allowed"


class NotFound(Problem):
    """Unknown, or another workspace's: the two look the same."""

    status, title = 404, "Not found"


class Refused(Problem):
    """Well-formed and allowed, but not in the state that things are in."""

    status, title = 409, "Not possible now"


class Stale(Refused):
    """Someone else changed it first. `current` is what it says now."""

    title = "Someone else changed it first"

    def __init__(self, detail: str, current: Any = None) -> None:
        super().__init__(detail, current=current)
        self.current = current


class Unprocessable(Problem):
    """Well-formed, but there is nothing in it that could be worked with."""

    status, title = 422, "Nothing to work with"


class Throttled(Problem):
    status, title = 429, "Too many attempts"

    def __init__(self, detail: str, retry_after: int) -> None:
        super().__init__(detail)
        self.retry_after = retry_after
