"""Protection against requests forged by other sites: the origin, and a token in every form."""

from urllib.parse import urlsplit

from flask import current_app, g, request

from app import tokens
from app.errors import Forbidden
from app.security.cookies import cookie_name


def check_origin() -> None:
    """Refuse requests that a browser sent from another site.

    Our pages send no referrer, so browsers write `Origin: null` for our own forms too. That counts as ours only when
    `Sec-Fetch-Site`, which no page can set, says so.
    """
    site = request.headers.get("Sec-Fetch-Site")
    if site not in {None, "same-origin", "none"}:
        raise Forbidden("This request came from another site.")
    origin = request.headers.get("Origin")
    if origin == "null" and site == "same-origin":
        return
    if origin and urlsplit(origin).netloc != request.host:
        raise Forbidden("This request came from another site.")


def csrf_token() -> str:
    """The token for this browser, bound to its login cookie, or to its visit cookie before sign-in."""
    cookie = request.cookies.get(cookie_name()) if g.get("actor") else None
    if cookie is None:
        cookie = request.cookies.get(cookie_name("upshot_visit")) or g.get("new_visit")
    if cookie is None:
        cookie = g.new_visit = tokens.new_token()
    return tokens.sign(current_app.config["SECRET_KEY"], "csrf", cookie)


def check_csrf(*, public: bool) -> None:
    """Refuse changes without the token of the page that they come from."""
    if g.actor is None and not public:
        return  # Nobody is signed in, and the role check refuses that with a better message.
    unknown_visit = g.actor is None and not request.cookies.get(cookie_name("upshot_visit"))
    given = request.headers.get("X-CSRFToken") or request.form.get("csrf_token", "")
    if unknown_visit or not tokens.same(given, csrf_token()):
        raise Forbidden("This form has expired. Reload the page and try again.")
