"""Write constraints.txt: one pinned version of every package, for each platform, without the address of any index."""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.tools import CACHE, ENCODER, ROOT, SetupError, quietly

UV_VENV = CACHE / "uv"
UV = "uv==0.13.7"
OPTIONS = (
    "--universal --python-version 3.11 --all-extras --upgrade "
    "--no-header --no-annotate --no-emit-index-url --no-emit-find-links"
)


def main() -> int:
    python = str(UV_VENV / "bin" / "python")
    compile_command = [python, "-m", "uv", "pip", "compile", "pyproject.toml", *OPTIONS.split()]
    try:
        quietly([sys.executable, "-m", "venv", str(UV_VENV)], "This Python cannot make a virtual environment.")
        quietly([python, "-m", "pip", "install", "--quiet", UV], f"{UV} could not be installed.")
        quietly(
            [*compile_command, "-o", "constraints.txt"], "uv could not pin the packages; the lines above are its own."
        )
        pin_encoder(ROOT / "constraints.txt")
    except SetupError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


def pin_encoder(constraints: Path) -> None:
    """Add the package that pyproject.toml does not name, since its dependencies are not wanted."""
    lines = constraints.read_text("utf-8").splitlines()
    constraints.write_text("\n".join(sorted({*lines, ENCODER}, key=lambda line: line.split("==")[0])) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
