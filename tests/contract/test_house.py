"""Promises about the code itself: who may import whom, what is loaded late, what is documented."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from app.config import documented

ROOT = Path(__file__).resolve().parents[2]
APP = ROOT / "app"
# Packages of `app/` and what each may import. Modules directly in `app/` may be used by everyone.
LOW = {"text", "formats", "learning", "evals", "artifacts", "ingest"}
STORES = {"db", "models", "services", *LOW}
BELOW = {
    "text": set(),
    "formats": {"text"},
    "learning": {"text", "formats"},
    "evals": {"text", "formats", "learning"},
    "artifacts": {"text", "formats", "learning", "evals"},
    "ingest": {"text", "formats"},
    "db": set(),
    "models": {"db"},
    "services": STORES,
    "security": STORES,
    "tools": STORES,
    "agents": {"tools", *STORES},
    "jobs": {"agents", *STORES},
    "demo": {"agents", "tools", *STORES},
    "api": {"security", "tools", *STORES},
    "views": {"security", *STORES},
    "server": {"services", "db", "agents", "jobs", "demo", "cli", "security", "api"},
    "cli": {"server", "demo", "tools", "agents", "jobs", *STORES},
}
# Inside services a package may import only what stands before it.
SERVICES = (
    "privacy", "audit_entry", "audit", "idempotency", "workspaces", "lists", "webhooks", "feedback", "knowledge",
    "agents", "chats", "sessions", "entities", "ingest", "evals", "review", "runtime", "tasks", "analytics",
)  # fmt: skip
TOP_LEVEL = {"__init__", "actor", "config", "errors", "logs", "tokens"}
MAX_MODULES = 20
EXEMPT = {
    # Comparing the database with the models needs both.
    ("app.db.migrate", "app.models"),
    # Pages describe tools and never run them.
    ("app.views.agents.form", "app.tools.describe"),
    ("app.views.agents.pages", "app.tools.describe"),
}
PURE = LOW
FORBIDDEN_IN_PURE = {"flask", "sqlalchemy", "psycopg", "flask_sqlalchemy"}
HEAVY = ("plotly", "apscheduler", "alembic", "argon2", "numpy", "pydantic_ai", "mcp", "bs4", "markdown_it")


@cache
def modules() -> dict[str, Path]:
    """Every module of the product by its dotted name."""
    found = {}
    for path in APP.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(path: Path) -> set[str]:
    """Every module that a file imports, wherever in it; what only the type checker reads does not count."""
    found: set[str] = set()
    tree = ast.parse(path.read_text())
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@cache
def edges() -> frozenset[tuple[str, str]]:
    """Which of our modules imports which other one."""
    known = modules()
    return frozenset(
        (name, target)
        for name, path in known.items()
        for imported in imports(path)
        for target in [imported if imported in known else imported.rpartition(".")[0]]
        if target in known and target != name
    )


def part(name: str, place: int) -> str:
    return (name.split(".") + [""] * place)[place]


def test_imports_point_down() -> None:
    wrong = [
        f"{name} imports {target}"
        for name, target in edges()
        if part(name, 1) in BELOW
        and part(target, 1) in BELOW
        and part(target, 1) not in {part(name, 1), *BELOW[part(name, 1)]}
        and (name, target) not in EXEMPT
    ]
    assert not wrong, "\n".join(sorted(wrong))


def test_services_import_only_what_comes_before_them() -> None:
    inside = [(a, b) for a, b in edges() if part(a, 1) == part(b, 1) == "services" and part(a, 2) and part(b, 2)]
    wrong = [f"{a} imports {b}" for a, b in inside if SERVICES.index(part(b, 2)) > SERVICES.index(part(a, 2))]
    assert not wrong, "\n".join(sorted(wrong))


def test_no_import_cycles() -> None:
    """A package's `__init__` may be imported by its own modules as long as it imports none of them."""
    after: dict[str, set[str]] = {}
    for name, target in edges():
        after.setdefault(name, set()).add(target)
    assert not list(cycles(after))


def cycles(after: dict[str, set[str]]) -> Iterator[list[str]]:
    """Modules that remain when those that import nothing (left) are taken away again and again."""
    left = {name: set(targets) for name, targets in after.items()}
    while True:
        free = {name for targets in left.values() for name in targets} - left.keys()
        free |= {name for name, targets in left.items() if not targets}
        if not free:
            break
        left = {name: targets - free for name, targets in left.items() if name not in free}
    if left:
        yield sorted(left)


def test_every_package_is_on_the_list_and_nothing_is_stray() -> None:
    packages = {path.name for path in APP.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert packages == set(BELOW)
    assert {path.stem for path in APP.glob("*.py")} == TOP_LEVEL
    services = {path.stem for path in (APP / "services").iterdir() if not path.name.startswith("__")}
    assert services == set(SERVICES)
    assert {path.stem for path in (APP / "api").glob("*.py")} == {"__init__"}


def test_no_folder_holds_too_many_modules() -> None:
    folders = {path.parent for path in modules().values()}
    sizes = {str(folder.relative_to(ROOT)): len({*folder.glob("*.py")}) - 1 for folder in folders}
    assert not {name: size for name, size in sizes.items() if size > MAX_MODULES}


def test_services_do_not_know_flask_and_pure_packages_know_nothing() -> None:
    wrong = []
    for path in (APP / "services").rglob("*.py"):
        wrong += [f"{path.name}: {name}" for name in imports(path) if name.split(".")[0] == "flask"]
    for package in PURE:
        for path in (APP / package).rglob("*.py"):
            wrong += [f"{path.name}: {name}" for name in imports(path) if name.split(".")[0] in FORBIDDEN_IN_PURE]
    assert not wrong


def test_heavy_libraries_are_loaded_on_first_use() -> None:
    code = (
        "import sys, app, app.cli, app.server.run\n"
        "from flask import Flask\n"
        "flask = Flask('app')\n"
        "flask.config.update(SETTINGS=app.Settings())\n"
        "app.add_routes(flask)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_only_the_settings_read_the_environment() -> None:
    readers = [
        str(path.relative_to(ROOT))
        for path in APP.rglob("*.py")
        if re.search(r"os\.(environ|getenv)", path.read_text()) and path.name != "config.py"
    ]
    # The embedded server's commands get our environment without PostgreSQL's own variables.
    assert readers in ([], ["app/db/embedded/server.py"], ["app/db/embedded/places.py"])


def test_every_setting_is_documented() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    for name, default, about in documented():
        shown = f"`{default}`" if default else ""
        assert re.search(rf"\| `{name}` \| {re.escape(shown)} ?\| {re.escape(about)} \|", page), name
    named = set(re.findall(r"^\| `(UPSHOT_[A-Z_]+)` \|", page, re.M))
    assert named == {name for name, _, _ in documented()}


def test_documents_point_at_files_that_exist() -> None:
    broken = []
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not target.startswith(("http://", "https://")) and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken
