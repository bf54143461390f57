"""The results of a run as JUnit's XML, which every build server reads."""

import re
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from app.evals.verdict import FAIL, FLAKY, PASS

# Characters that XML cannot hold, not even escaped.
UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def junit_xml(name: str, results: Mapping[str, Mapping[str, Any]], titles: Mapping[str, str], seconds: float) -> str:
    """One test case for each golden. What could not be judged is an error, never a pass."""
    cases = [_case(name, golden_id, result, titles.get(golden_id, golden_id)) for golden_id, result in results.items()]
    verdicts = [result["verdict"] for result in results.values()]
    failures = sum(verdict in (FAIL, FLAKY) for verdict in verdicts)
    errors = sum(verdict not in (PASS, FAIL, FLAKY) for verdict in verdicts)
    head = (
        f'<testsuite name={_quoted(name)} tests="{len(cases)}" failures="{failures}" errors="{errors}"'
        f' time="{seconds:.3f}">'
    )
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *cases, "</testsuite>", ""])


def _case(name: str, golden_id: str, result: Mapping[str, Any], title: str) -> str:
    opening = f"  <testcase classname={_quoted(name)} name={_quoted(title)}"
    if result["verdict"] == PASS:
        return f"{opening}/>"
    kind = "failure" if result["verdict"] in (FAIL, FLAKY) else "error"
    lines = [str(each.get("text", "")) for each in result.get("divergences") or []]
    body = escape(
        _strip_unwritable("\n".join([f"golden {golden_id}", f"replay {result.get('replay_session_id')}", *lines]))
    )
    message = _quoted(f"{result['verdict']}: {result.get('reason') or 'not judged'}")
    return f"{opening}>\n    <{kind} message={message}>{body}</{kind}>\n  </testcase>"


def _quoted(text: str) -> str:
    return quoteattr(_strip_unwritable(text))


def _strip_unwritable(text: str) -> str:
    return UNWRITABLE.sub("\ufffd", text)
