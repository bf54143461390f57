"""How the product speaks: short hints, buttons that begin with a verb, no banned phrase, one meaning for each term."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from app.formats.glossary import GLOSSARY

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES, STATIC, DOCS = ROOT / "app/templates", ROOT / "app/static", ROOT / "docs"
MAX_HINT_WORDS = 12

BANNED = re.compile(
    r"\b(?:whoever|somebody|what was said|stands|goes on|is there|fares|by hand|(?:your|their|his|her|whose) rights|"
    r"(?:does|do|did|would|could) not fit|no longer fits?|what became of|taken? out of use)\b",
    re.IGNORECASE,
)
# The one chain of the standard itself, "… on records changed; on the answer …", is no mistake.
CHAIN = re.compile(r"(?<!records changed)(?<=[a-z]); [a-z]")


def words(text: str) -> set[str]:
    return set(text.split())


VERBS = words(
    "Accept Activate Add Analyse Apply Approve Archive Ask Assess Assign Attach Back Cancel Change Check "
    "Choose Clear Close Comment Compare Continue Copy Create Deactivate Delete Discard Dismiss Edit Enter "
    "Export Fail Filter Flag Follow Go Invite Join Judge Keep Leave Load Make Mark Mask Merge Move Open "
    "Overrule Pass Pick Pin Preview Promote Prove Publish Queue Read Reject Reload Remove Rename Reopen "
    "Replace Replay Request Reset Restore Retire Retry Return Review Revoke Run Save Schedule Search Select "
    "Send Set Share Show Sign Skip Start Stop Suggest Swap Switch Try Turn Unassign Undo Unpin Update Upload "
    "Use View Withdraw"
)
# Links that look like buttons lead to these places, and these turn pages.
PLACES = words(
    "Artifacts Charts Columns Conversations Criteria Drafts Evals Feedback Knowledge Matrix Overruled Patterns "
    "Runs Scorecard Sessions Trend Views Weekly Your"
)
PAGING = words("First Next Newer Older Previous")
# What a visitor of an answer does with it, the state of a button, and the rows of a menu.
OTHERS = words("CSV Dark JSON JUnit Light More Stopping System Running Criterion Dimension Undone Helpful Not")


@cache
def templates() -> dict[str, str]:
    """Every template without its comments, by its path."""
    found = {}
    for path in sorted(TEMPLATES.rglob("*.html")):
        text = re.sub(r"\{#.*?#\}", "", path.read_text(), flags=re.S)
        found[str(path.relative_to(ROOT))] = text
    return found


def quoted(expression: str) -> Iterator[str]:
    """The texts in an expression of a template."""
    for one in re.finditer(r'"([^"]*)"|\'([^\']*)\'', expression):
        yield one[1] if one[1] is not None else one[2]


def texts_of(template: str) -> Iterator[str]:
    """What a template says: between its tags, in their attributes for people, and in its expressions."""
    for expression in re.findall(r"\{\{.*?\}\}|\{%.*?%\}", template, re.S):
        yield from (text for text in quoted(expression) if " " in text)
    yield from re.findall(r'\b(?:title|placeholder|aria-label)="([^"{]*)', template)
    bare = re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "\x00", template, flags=re.S)
    for text in re.sub(r"<[^>]*>", "\x01", bare).split("\x01"):
        yield " ".join(text.replace("\x00", " ").split())


def hints_of(template: str) -> Iterator[str]:
    for expression in re.findall(r'\bhint=((?:"[^"]*"|[^,()]|\([^()]*\))*)', template):
        yield from quoted(expression)
    for text in re.findall(r'class="form-hint"[^>]*>(.*?)</(?:p|div)>', template, re.S):
        yield from re.split(r"\{%.*?%\}", re.sub(r"<[^>]*>", " ", text))


def buttons_of(template: str) -> Iterator[str]:
    """The words on the buttons of a template, each alternative of an expression by itself."""
    spans: list[str] = []

    def put_away(found: re.Match[str]) -> str:
        spans.append(found[0])
        return f"\x02{len(spans) - 1}\x03"

    # Expressions may have the signs of tags in them, so they wait outside while the tags are read.
    flat = re.sub(r"\{\{.*?\}\}|\{%.*?%\}", put_away, template, flags=re.S)
    found = re.findall(r"<button\b[^>]*>(.*?)</button>", flat, re.S)
    found += re.findall(r'<(?:a|summary)\b[^>]*class="btn\b[^>]*>(.*?)</(?:a|summary)>', flat, re.S)
    for inside in found:
        inside = re.sub(r"<(kbd|span|b|i)\b.*?</\1>", "", inside, flags=re.S)
        inside = re.sub(r"\x02(\d+)\x03", lambda one: spans[int(one[1])], inside)
        inside = re.sub(r"\{\{ ?(?:icon|face|art)\([^{}]*\) ?\}\}|\{%.*?%\}", "", inside, flags=re.S)
        whole = re.fullmatch(r"\s*\{\{([^{}]*)\}\}\s*", inside)
        words = list(quoted(whole[1])) if whole else [inside.split("{{", maxsplit=1)[0]]
        # Keys and states in an expression are written small; what a button says is not.
        yield from (word.strip() for word in words if re.match(r"\s*[A-Z]", word))
    for call in re.findall(r"\bpost_button\(\s*((?:\"[^\"]*\"|[^,\"])*)", template):
        yield from (text for text in quoted(call) if text)


def wrong_hint(text: str) -> bool:
    return len(re.sub(r"\{\{.*?\}\}", "one", text, flags=re.S).split()) > MAX_HINT_WORDS


def wrong_button(text: str) -> bool:
    first = re.split(r"[\s…]", text)[0]
    return first not in VERBS | PLACES | PAGING | OTHERS or text.endswith((".", ":"))


def banned(text: str) -> str:
    found = BANNED.search(text)
    return found[0] if found else ""


def sentences_of(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module that people may read: not its docstrings, SQL or expressions."""
    tree = ast.parse(path.read_text())
    documented = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in documented else None
        if isinstance(text, str) and " " in text and "\\b" not in text and "\n" not in text:
            yield node.lineno, text


def messages_of(path: Path, names: set[str]) -> Iterator[tuple[int, str]]:
    """The texts within the calls of these names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            owner = (
                node.func.value.id
                if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
                else ""
            )
            if called in names or owner in names:
                for inner in ast.walk(node):
                    text = inner.value if isinstance(inner, ast.Constant) else None
                    if isinstance(text, str) and text.count(" ") > 1:
                        yield inner.lineno, text


SPEAKING = ("services", "views", "formats", "security", "api/kit")
REFUSALS = {"Invalid", "NotFound", "Refused", "Forbidden", "Stale", "Unprocessable", "Throttled"}


def modules(*rooms: str) -> list[Path]:
    return [path for room in rooms for path in sorted((ROOT / "app" / room).rglob("*.py"))]


def prose_of(path: Path) -> str:
    """A document without its code."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.S | re.M))


def test_hints_are_short() -> None:
    wrong = [(name, hint) for name, text in templates().items() for hint in hints_of(text) if wrong_hint(hint)]
    assert not wrong
    assert sum(len(list(hints_of(text))) for text in templates().values()) > 20


def test_buttons_begin_with_a_verb() -> None:
    wrong = [(name, word) for name, text in templates().items() for word in buttons_of(text) if wrong_button(word)]
    assert not wrong
    assert sum(len(list(buttons_of(text))) for text in templates().values()) > 150


def test_no_template_has_a_banned_phrase() -> None:
    wrong = [(name, said) for name, text in templates().items() for one in texts_of(text) if (said := banned(one))]
    assert not wrong


def test_no_template_chains_sentences() -> None:
    assert not [(name, one) for name, text in templates().items() for one in texts_of(text) if CHAIN.search(one)]


def test_no_message_has_a_banned_phrase() -> None:
    found = [(path, line, text) for path in modules(*SPEAKING) for line, text in sentences_of(path)]
    assert len(found) > 500
    assert not [(path.name, line, text) for path, line, text in found if banned(text)]


def test_no_refusal_chains_sentences() -> None:
    found = [(path, *one) for path in modules("services", "views", "security") for one in messages_of(path, REFUSALS)]
    assert len(found) > 200
    assert not [(path.name, line, text) for path, line, text in found if CHAIN.search(text)]


def test_toasts_have_no_colon() -> None:
    found = [(path, *one) for path in modules("views") for one in messages_of(path, {"Toast", "flash", "leave"})]
    assert len(found) > 30
    assert not [(path.name, line, text) for path, line, text in found if re.search(r"[a-z]: ", text)]


def test_no_script_has_a_banned_phrase() -> None:
    wrong = []
    for path in sorted(STATIC.glob("*.js")):
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
        wrong += [(path.name, said) for one in quoted(text) if (said := banned(one))]
    assert not wrong


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda path: path.stem)
def test_no_document_has_a_banned_phrase(path: Path) -> None:
    assert BANNED.findall(prose_of(path)) == []


def test_the_glossary_of_the_docs_agrees_with_the_pages() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", (DOCS / "glossary.md").read_text(), re.M)
    assert dict(rows[1:]) == GLOSSARY


def test_pages_explain_the_terms() -> None:
    used = {name for text in templates().values() for name in re.findall(r'\bterm\("([^"]+)"', text)}
    assert (
        {"feedback", "knowledge", "session", "golden", "replay", "run", "trial run", "candidate"}
        <= used
        <= GLOSSARY.keys()
    )
    spoken = [text for text in templates().values() if "status_term(" in text]
    assert len(spoken) >= 3, "feedback and knowledge explain their states"


@pytest.mark.parametrize(
    ("template", "what"),
    [
        (
            '{{ field("a", "A", hint="One two three four five six seven eight nine ten eleven twelve thirteen") }}',
            "hint",
        ),
        ('<p class="form-hint">One two three four five six seven eight nine ten eleven twelve thirteen</p>', "hint"),
        ('<button class="btn">New agent</button>', "button"),
        ('<button class="btn">{{ "Save" if agent else "All done" }}</button>', "button"),
        ('<a class="btn btn-sm" href="{{ url }}">Save:</a>', "button"),
        ('{{ post_button("Gone", url) }}', "button"),
        ("<p>Ask <b>whoever</b> did it.</p>", "banned"),
        ('{{ "What was said" if rows else "" }}', "banned"),
        ('<input placeholder="Set by hand">', "banned"),
    ],
)
def test_a_seeded_violation_is_found(template: str, what: str) -> None:
    found = {
        "hint": any(wrong_hint(one) for one in hints_of(template)),
        "button": any(wrong_button(one) for one in buttons_of(template)),
        "banned": any(banned(one) for one in texts_of(template)),
    }
    assert [name for name, wrong in found.items() if wrong] == [what]


def test_a_seeded_message_is_found(tmp_path: Path) -> None:
    module = tmp_path / "seeded.py"
    module.write_text('def f():\n    """Somebody."""\n    raise Invalid("Somebody saved it; look again.")\n')
    assert [(line, banned(text)) for line, text in sentences_of(module)] == [(3, "Somebody")]
    assert [bool(CHAIN.search(text)) for _, text in messages_of(module, REFUSALS)] == [True]
