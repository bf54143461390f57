"""Run every measurement, or those named: `python -m bench start search`."""

from __future__ import annotations

import json
import sys
from importlib import import_module

ALL = (
    "start", "binding", "search", "tabs", "pages", "charts", "feedback_post", "ingest", "executor", "evals", "judge",
    "prompt", "proposals", "verdicts", "review", "connections", "mixed", "memory", "gate", "chat_message",
)  # fmt: skip


def main() -> None:
    results = {}
    for name in sys.argv[1:] or ALL:
        results[name] = import_module(f"bench.{name}").measure()
        print(f"{name}: {json.dumps(results[name])}", file=sys.stderr, flush=True)
    print(json.dumps(results, indent=2))


main()
