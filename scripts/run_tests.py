"""Run every test beside each other, then those few that failed once more, one after the other.

Some tests kill processes and wait for what comes of it; on a machine with too much to do they may run out of time. A
test that fails alone as well has failed. Whatever needed a second try is named.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

FAILED = re.compile(r"(?:FAILED|ERROR) (tests/\S+\.py::.+?)(?: - .*)?$")
# More than this is no matter of time.
MOST = 6


def main() -> int:
    # Tests wait for browsers and processes half of their time, so one more than there are cores keeps these busy.
    os.environ.setdefault("PYTEST_XDIST_AUTO_NUM_WORKERS", str((os.cpu_count() or 1) + 1))
    pytest = [sys.executable, "-m", "pytest", *sys.argv[1:]]
    code, failed = run(pytest)
    if code != 1 or not 1 <= len(failed) <= MOST:
        return code
    print(f"\nOnce more, alone: {', '.join(failed)}", flush=True)
    return run([*pytest, "-n", "0", *failed])[0]


def run(command: list[str]) -> tuple[int, list[str]]:
    """Show what a run prints; its exit code and the tests that failed."""
    failed: dict[str, None] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            if found := FAILED.match(line.strip()):
                failed[found[1]] = None
    return process.returncode, list(failed)


if __name__ == "__main__":
    sys.exit(main())
