"""Promises about the code itself: who may import whom, what is loaded late, what is documented."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from app.config import documented

ROOT = Path(__file__).resolve().parents[2]
# Each room and the rooms it may use. Everything may use the modules that stand directly in `app/`.
BELOW = {
    "learning": set(),
    "evals": {"learning"},
    "models": {"db"},
    "db": set(),
    "services": {"models", "learning", "db", "evals"},
    "tools": {"services", "models", "learning", "db", "evals"},
    "agents": {"tools", "services", "models", "learning", "db", "evals"},
    "jobs": {"agents", "services", "models", "learning", "db", "evals"},
    "demo": {"services", "models", "learning", "db", "evals", "agents"},
    "api": {"services", "models", "learning", "db", "tools", "evals"},
    "views": {"services", "models", "learning", "db", "api", "evals"},
    "server": {"services", "db", "agents", "jobs", "demo", "cli"},
    "cli": {"server", "services", "models", "learning", "db", "demo", "tools", "agents", "jobs", "evals"},
}
# Comparing the database with the models needs both.
EXEMPT = {"app/db/drift.py"}
PURE = {"learning", "evals"}
FORBIDDEN_IN_PURE = {"flask", "sqlalchemy", "psycopg", "flask_sqlalchemy"}
HEAVY = ("plotly", "apscheduler", "alembic", "argon2", "numpy", "pydantic_ai", "mcp", "bs4", "markdown_it")


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


def test_imports_point_down() -> None:
    wrong = []
    for room, allowed in BELOW.items():
        for path in (ROOT / "app" / room).rglob("*.py"):
            for name in imports(path):
                parts = name.split(".")
                if parts[0] != "app" or len(parts) < 2 or not (ROOT / "app" / parts[1]).is_dir():
                    continue
                if parts[1] != room and parts[1] not in allowed and str(path.relative_to(ROOT)) not in EXEMPT:
                    wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_every_room_is_on_the_list() -> None:
    rooms = {path.name for path in (ROOT / "app").iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert rooms == set(BELOW)


def test_services_do_not_know_flask_and_pure_rooms_know_nothing() -> None:
    wrong = []
    for path in (ROOT / "app" / "services").rglob("*.py"):
        wrong += [f"{path.name}: {name}" for name in imports(path) if name.split(".")[0] == "flask"]
    for room in PURE:
        for path in (ROOT / "app" / room).rglob("*.py"):
            wrong += [f"{path.name}: {name}" for name in imports(path) if name.split(".")[0] in FORBIDDEN_IN_PURE]
    assert not wrong


def test_heavy_libraries_are_loaded_on_first_use() -> None:
    code = (
        "import sys, importlib, app, app.cli, app.server.run\n"
        "for name in (*app.VIEWS, *app.APIS): importlib.import_module(name)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_only_the_settings_read_the_environment() -> None:
    readers = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "app").rglob("*.py")
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
