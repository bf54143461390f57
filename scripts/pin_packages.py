"""Write constraints.txt: one pinned version of every package, for each platform, without the address of any index."""

from __future__ import annotations

import sys

from scripts.tools import CACHE, SetupError, quietly

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
    except SetupError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
