"""Run every measurement, or those named: `python -m bench start search`."""

from __future__ import annotations

import json
import sys
from importlib import import_module

ALL = ("start", "binding", "search", "tabs", "feedback_post", "ingest")


def main() -> None:
    results = {name: import_module(f"bench.{name}").measure() for name in sys.argv[1:] or ALL}
    print(json.dumps(results, indent=2))


main()
