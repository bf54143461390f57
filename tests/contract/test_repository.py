"""Promises about the repository itself: what is in it, what is not, and what its commands are called."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from scripts import build_assets
from scripts.tools import SetupError

ROOT = Path(__file__).resolve().parents[2]
TARGETS = (
    "help", "run", "test", "test-quick", "lint", "bench", "faults", "clean", "setup", "setup-test", "constraints",
)  # fmt: skip
MADE = {".git", ".venv", ".cache", "node_modules", "vendor", "var", "build", "test-results", "__pycache__"}
MADE |= {".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "upshot.egg-info"}

# Written as patterns, so that this file does not contain what it forbids.
REGISTRY = re.compile(r"registry\.npm|pythonhosted\.org|pypi\.org|jsdelivr\.net|unpkg\.com|cdnjs\.")
LOCAL_PATH = re.compile(r"(?<![\w.~/$}-])/(?:work|root|home|Users)/\w")
INLINE = {
    "a style attribute": re.compile(r"<[^>]*\sstyle\s*=", re.IGNORECASE),
    "a style element": re.compile(r"<style\b", re.IGNORECASE),
    "an event attribute": re.compile(r"<[^>]*\son[a-z]+\s*=", re.IGNORECASE),
    "hx-on": re.compile(r"\bhx-on\b"),
    "a value that htmx would evaluate": re.compile(r"=\s*[\"'](?:js|javascript):", re.IGNORECASE),
}
SCRIPT = re.compile(r"<script\b([^>]*)>(.*?)</script>", re.IGNORECASE | re.DOTALL)
# htmx 4 ignores these without a word.
OLD_HTMX = re.compile(r"\bhx-(?:ext|vars|params|prompt|disinherit|inherit|request|disabled-elt|history(?!-elt))\s*=")
UNESCAPED = re.compile(r"\|\s*safe\b|\bMarkup\(|autoescape\s+false")
ICON = re.compile(r"(?:\bicon(?:\(\s*|\s*=\s*)[\"']|icons\.svg#)([a-z][a-z0-9-]*)\b")


@cache
def files() -> tuple[Path, ...]:
    """Every file that is or would be committed; every file that make did not build, where there is no git."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        said = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True).stdout.decode()
        names = [Path(name) for name in said.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = [path.relative_to(ROOT) for path in walk(ROOT)]
    return tuple(sorted(name for name in names if (ROOT / name).is_file()))


def walk(top: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name not in MADE]
        yield from (Path(folder) / name for name in names)


def texts(*suffixes: str, under: str = "") -> Iterator[tuple[str, str]]:
    """Name and text of each file under a folder; with no suffix given, of every text file."""
    for path in files():
        name = path.as_posix()
        if name.startswith(under) and (not suffixes or path.suffix in suffixes):
            content = (ROOT / path).read_bytes()
            if b"\0" not in content:
                yield name, content.decode("utf-8", "replace")


def templates() -> Iterator[tuple[str, str]]:
    """The markup of each template, without what Jinja takes away."""
    for name, text in texts(".html", ".jinja", ".svg", ".xml", under="app/templates/"):
        yield name, re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", "", text, flags=re.DOTALL)


def pyproject() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def package_name(requirement: str) -> str:
    """The normalised name at the beginning of a requirement."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement).group()).lower()


def test_no_third_party_asset_is_in_git():
    offenders = [p.as_posix() for p in files() if ".min." in p.name or {"vendor", "node_modules", ".venv"} & {*p.parts}]
    assert offenders == []


@pytest.mark.parametrize(("what", "pattern"), [("registry host", REGISTRY), ("local path", LOCAL_PATH)])
def test_no_text_names_a_registry_or_a_path_of_one_machine(what, pattern):
    offenders = [f"{name}: {found.group()}" for name, text in texts() if (found := pattern.search(text))]
    assert offenders == [], what


def test_npm_packages_are_pinned_and_checked_without_an_address():
    package = json.loads((ROOT / "package.json").read_text("utf-8"))
    locked = json.loads((ROOT / "package-lock.json").read_text("utf-8"))["packages"]
    wanted = package["dependencies"] | package["devDependencies"]
    assert package["private"] is True
    assert {name: locked[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    for name, entry in locked.items():
        assert "resolved" not in entry, name
        assert not name or "integrity" in entry, name


def test_constraints_pin_every_dependency():
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[\w.]+(?: ; .+)?", line)] == []
    project = pyproject()["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    assert {package_name(each) for each in wanted} - {package_name(line) for line in lines} == set()


def test_make_has_the_promised_targets_and_help_lists_them():
    said = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert tuple(sorted(re.findall(r"^  make (\S+) +\S", said, re.MULTILINE))) == tuple(sorted(TARGETS))
    makefile = (ROOT / "Makefile").read_text("utf-8")
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert set(phony.group(1).split()) == set(TARGETS)


def test_ci_runs_make_test():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text("utf-8").splitlines()[-1] == "make test"


def test_templates_hold_no_code_and_no_style():
    offenders = []
    for name, markup in templates():
        offenders += [f"{name}: {what}" for what, pattern in INLINE.items() if pattern.search(markup)]
        for attributes, body in SCRIPT.findall(markup):
            if body.strip() and "application/json" not in attributes:
                offenders.append(f"{name}: a script with code")
    assert offenders == []


def test_templates_use_no_attribute_that_htmx_4_dropped():
    offenders = [f"{name}: {found.group()}" for name, markup in templates() if (found := OLD_HTMX.search(markup))]
    assert offenders == []


def test_only_the_markdown_module_may_pass_html_through():
    offenders = [
        f"{name}: {found.group()}"
        for name, text in texts(".py", ".html", ".jinja", ".xml", under="app/")
        if name != "app/views/markdown.py" and (found := UNESCAPED.search(text))
    ]
    assert offenders == []


def test_every_icon_in_use_is_in_the_sprite():
    names = (ROOT / "scripts" / "icons.txt").read_text("utf-8").split()
    assert names == sorted(set(names))
    used = {icon for _, text in texts(".py", ".html", ".js", under="app/") for icon in ICON.findall(text)}
    assert used - {*names} == set()
    sprite = (build_assets.VENDOR / "icons.svg").read_text("utf-8")
    assert re.findall(r'<symbol id="([^"]+)"', sprite) == names


def test_an_unknown_icon_stops_the_build_with_a_sentence():
    with pytest.raises(SetupError, match=r"names the icon 'no-such-thing'"):
        build_assets.sprite(["check", "no-such-thing"])


def test_the_manifest_names_every_built_file_and_its_content():
    manifest = json.loads(build_assets.MANIFEST.read_text("utf-8"))
    assert set(manifest["files"]) == set(build_assets.BUILT)
    for name, version in manifest["files"].items():
        assert build_assets.fingerprint(build_assets.VENDOR / name).startswith(version)
    assert "sourceMappingURL" not in (build_assets.VENDOR / "htmx.min.js").read_text("utf-8")


def test_npm_is_only_trusted_when_it_answers(tmp_path):
    for program in (tmp_path / "absent", Path(shutil.which("false")), Path(shutil.which("echo"))):
        assert build_assets.npm_major(program) == 0, program


def test_setup_refuses_a_browser_that_does_not_start(monkeypatch):
    from scripts import setup

    monkeypatch.setenv("UPSHOT_CHROMIUM", str(ROOT / "Makefile"))
    with pytest.raises(SetupError, match="UPSHOT_CHROMIUM"):
        setup.prepare_browser()
    monkeypatch.delenv("UPSHOT_CHROMIUM")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SetupError, match="Install it, or set UPSHOT_CHROMIUM"):
        setup.prepare_browser()
