"""Run every test, the linters and the core tests on PostgreSQL 15 beside each other.

A few tests that failed are run once more, one after the other: some tests kill processes and wait for the outcome, and
on a busy machine they may run out of time. A test that fails alone as well has failed.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO

# pytest-xdist adds the group to the name of a test, which has to go before it can be run by name.
FAILED = re.compile(r"(?:FAILED|ERROR) (tests/\S+\.py::.+?)(?:@\w+)?(?: - .*)?$")
# More failures than this have another cause than a busy machine.
MAX_RETRIES = 6
# What `make test-quick` leaves out: browsers, processes that are started and killed, the recorded demo.
SLOW_FOLDERS = ("tests/browser", "tests/faults", "tests/demo")
# They yield to the tests, some of which watch the time.
BESIDE = (
    ["nice", "-n", "5", "make", "lint"],
    ["nice", "-n", "5", sys.executable, "-m", "scripts.test_oldest_postgres", "-n", "0"],
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="no browser, servers, exhaustive walks or linters")
    arguments, for_pytest = parser.parse_known_args()
    # SIGTERM must end the processes beside us too, so it leaves through the context managers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    prepare_environment()
    if arguments.quick:
        ignored = [f"--ignore={folder}" for folder in SLOW_FOLDERS]
        return run_tests([*ignored, "-m", "not process and not exhaustive", *for_pytest])
    with ExitStack() as stack:
        beside = [stack.enter_context(started(command)) for command in BESIDE]
        codes = [run_tests(for_pytest), *(finish(process, output) for process, output in beside)]
    return next((code for code in codes if code), 0)


def prepare_environment() -> None:
    # Tests wait for browsers and processes half of their time, so one more than there are cores keeps these busy.
    os.environ.setdefault("PYTEST_XDIST_AUTO_NUM_WORKERS", str((os.cpu_count() or 1) + 1))
    # Container images like to set this. Dozens of processes would then compile the same modules.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def run_tests(arguments: list[str]) -> int:
    """Run pytest, and then once more what failed, if that is little. Give pytest's exit code."""
    pytest = [sys.executable, "-m", "pytest", *arguments]
    code, failed = run(pytest)
    if code != 1 or not 1 <= len(failed) <= MAX_RETRIES:
        return code
    print(f"\nOnce more, alone: {', '.join(failed)}", flush=True)
    return run([*pytest, "-n", "0", *failed])[0]


def run(command: list[str]) -> tuple[int, list[str]]:
    """Show what a run prints; give its exit code and the tests that failed."""
    failed: dict[str, None] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        try:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                if found := FAILED.match(line.strip()):
                    failed[found[1]] = None
        except BaseException:
            process.terminate()
            raise
    return process.returncode, list(failed)


@contextmanager
def started(command: list[str]) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """Start a command whose output waits in a file, and end it with the block at the latest."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True)
        try:
            yield process, output
        finally:
            process.terminate()
            process.wait()


def finish(process: subprocess.Popen[str], output: IO[str]) -> int:
    """Wait for a command, show what it printed and give its exit code."""
    code = process.wait()
    output.seek(0)
    print(output.read(), end="", flush=True)
    return abs(code)


if __name__ == "__main__":
    sys.exit(main())
