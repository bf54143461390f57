"""Hostile text stays text."""

from __future__ import annotations

from bs4 import BeautifulSoup

from app.views.markdown import ATTRIBUTES, MAX_LENGTH, TAGS, render

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![pixel](https://evil.example/p.png)",
    "[click](javascript:alert(1))",
    "[click](JaVaScRiPt:alert(1))",
    "[click](data:text/html;base64,PHNjcmlwdD4=)",
    "[click](vbscript:x)",
    "[a]: javascript:alert(1)\n\n[a]",
    "<javascript:alert(1)>",
    "<a href='https://x.example' onclick='x()'>y</a>",
    '[x](https://x.example "\\" onmouseover=alert(1) x=\\"")',
    "<svg/onload=alert(1)>",
    "<iframe srcdoc='<script>1</script>'>",
    "<style>body{display:none}</style>",
    "<form action=/workspace method=post><button>x</button></form>",
    "```\n</code></pre><script>alert(1)</script>\n```",
    "`</code><script>alert(1)</script>`",
    "| <b onclick=x()>a</b> | b |\n|---|---|\n| <script>1</script> | 2 |",
    "# <img src=x onerror=alert(1)>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "\x00<scr\x00ipt>alert(1)</script>",
]


def test_hostile_text_gives_only_allowed_tags_and_attributes() -> None:
    for text in HOSTILE:
        for tag in BeautifulSoup(render(text), "html.parser").find_all(True):
            assert tag.name in TAGS, text
            assert set(tag.attrs) <= ATTRIBUTES.get(tag.name, set()) | {"rel"}, text
            address = str(tag.get("href", "https:"))
            assert address.startswith(("https:", "http:", "mailto:")), text


def test_a_picture_never_loads() -> None:
    assert "<img" not in render("![a pixel](https://evil.example/p.png) and ![b][c]\n\n[c]: https://evil.example/q.png")


def test_what_an_agent_may_write() -> None:
    html = BeautifulSoup(
        render(
            "# Comps\n\nKestrel is at **9.6×** [LTM](https://acme.example/k).\n\n- one\n- two\n\n| a |\n|---|\n| 1 |\n"
        ),
        "html.parser",
    )

    assert html.find("h1") is None
    assert html.select_one("h3").text == "Comps"
    assert html.select_one("strong").text == "9.6×"
    assert html.select_one("a")["rel"] == ["noopener", "noreferrer", "nofollow"]
    assert [item.text for item in html.select("ul li")] == ["one", "two"]
    assert html.select_one("td").text == "1"


def test_nothing_and_too_much() -> None:
    assert render(None) == ""
    assert render("") == ""
    assert len(render("a" * (MAX_LENGTH * 2))) < MAX_LENGTH + 100
