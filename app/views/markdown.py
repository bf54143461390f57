"""The one place where text from outside becomes HTML.

What agents, tools and people wrote is hostile. Raw HTML in it is escaped by the parser, and what the parser made is
cut down to an allow-list: no images (a remote pixel tells who reads), no attributes but a link's address and a code
block's language, no address that is not a web or mail address. No other module marks a string as safe.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from markupsafe import Markup

from app.text.hidden_characters import visible

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

MAX_LENGTH = 100_000
TAGS = frozenset(
    {"a", "blockquote", "br", "code", "del", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s"}
    | {"strong", "table", "tbody", "td", "th", "thead", "tr", "ul"}
)
ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}
SCHEMES = frozenset({"http", "https", "mailto"})


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    return parser.disable("image")


def render(text: str | None) -> Markup:
    """Markdown as safe HTML. Headings start at level 3, for a page has its own first and second."""
    import nh3

    html = _parser().render(visible((text or "")[:MAX_LENGTH]))
    for level in (1, 2):
        html = html.replace(f"<h{level}>", f"<h{level + 2}>").replace(f"</h{level}>", f"</h{level + 2}>")
    clean = nh3.clean(
        html,
        tags=set(TAGS),
        attributes={tag: set(names) for tag, names in ATTRIBUTES.items()},
        url_schemes=set(SCHEMES),
        link_rel="noopener noreferrer nofollow",
    )
    return Markup(clean)  # noqa: S704 - the line above is the sanitiser
