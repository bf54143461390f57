"""The results of a run as JUnit's XML, which every build server reads."""

import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from app.evals.verdict import FAIL, FLAKY, PASS

# Characters that XML cannot hold, not even escaped.
UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def junit_xml(name: str, results: Mapping[str, Mapping[str, Any]], titles: Mapping[str, str], seconds: float) -> str:
    """One test case for each golden. What could not be judged is an error, never a pass."""
    suite = ElementTree.Element("testsuite", name=_writable(name), tests=str(len(results)), time=f"{seconds:.3f}")
    for golden_id, result in results.items():
        title = _writable(titles.get(golden_id, golden_id))
        case = ElementTree.SubElement(suite, "testcase", classname=_writable(name), name=title)
        if result["verdict"] == PASS:
            continue
        message = _writable(f"{result['verdict']}: {result.get('reason') or 'not judged'}")
        kind = "failure" if result["verdict"] in (FAIL, FLAKY) else "error"
        texts = [str(each.get("text", "")) for each in result.get("divergences") or []]
        lines = [f"golden {golden_id}", f"replay {result.get('replay_session_id')}", *texts]
        ElementTree.SubElement(case, kind, message=message).text = _writable("\n".join(lines))
    for kind in ("failure", "error"):
        suite.set(f"{kind}s", str(len(suite.findall(f"testcase/{kind}"))))
    ElementTree.indent(suite)
    written: bytes = ElementTree.tostring(suite, "utf-8", xml_declaration=True)
    return f"{written.decode()}\n"


def _writable(text: str) -> str:
    return UNWRITABLE.sub("\ufffd", text)
