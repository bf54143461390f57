"""Eval runs as files: JUnit for builds, CSV for spreadsheets, JSON for programs."""

import csv
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from io import StringIO
from typing import Any
from xml.etree import ElementTree

# Characters that XML cannot hold, not even escaped.
UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
# Spreadsheets take a cell that begins so for a formula.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
CSV_COLUMNS = (
    "golden_id", "golden", "verdict", "overall_accuracy", "reason", "change", "before", "before_accuracy", "baseline",
    "trials", "replay_session_id", "rubric", "rubric_dimensions",
)  # fmt: skip


def junit_xml(name: str, results: Mapping[str, Mapping[str, Any]], titles: Mapping[str, str], seconds: float) -> str:
    """One test case for each golden. What could not be judged is an error, never a pass."""
    suite = ElementTree.Element("testsuite", name=xml_safe(name), tests=str(len(results)), time=f"{seconds:.3f}")
    for golden_id, result in results.items():
        title = xml_safe(titles.get(golden_id, golden_id))
        case = ElementTree.SubElement(suite, "testcase", classname=xml_safe(name), name=title)
        _add_rubric(case, result.get("rubric") or {})
        if result["verdict"] == "pass":
            continue
        message = xml_safe(f"{result['verdict']}: {result.get('reason') or 'not judged'}")
        kind = "failure" if result["verdict"] in ("fail", "flaky") else "error"
        texts = [str(each.get("text", "")) for each in result.get("divergences") or []]
        judged = [f"{label}: {found}" for label, found in judged_dimensions(result.get("rubric") or {})]
        lines = [f"golden {golden_id}", f"replay {result.get('replay_session_id')}", *texts, *judged]
        ElementTree.SubElement(case, kind, message=message).text = xml_safe("\n".join(lines))
    for kind in ("failure", "error"):
        suite.set(f"{kind}s", str(len(suite.findall(f"testcase/{kind}"))))
    ElementTree.indent(suite)
    written: bytes = ElementTree.tostring(suite, "utf-8", xml_declaration=True)
    return f"{written.decode()}\n"


def _add_rubric(case: ElementTree.Element, rubric: Mapping[str, Any]) -> None:
    if rubric:
        properties = ElementTree.SubElement(case, "properties")
        told = [("rubric", str(rubric["status"]))]
        told += [(f"rubric {label}", found) for label, found in judged_dimensions(rubric)]
        for name, value in told:
            ElementTree.SubElement(properties, "property", name=xml_safe(name), value=xml_safe(value))


def judged_dimensions(rubric: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Each dimension with its verdict and score, `fail 2 of 5`, in the order of the criteria set."""
    found = sorted((rubric.get("dimensions") or {}).values(), key=lambda one: one.get("position", 0))
    return [
        (one["label"], f"{_verdict(one)} {one['score']:g} of {5 if one['kind'] == 'rating' else 1}") for one in found
    ]


def _verdict(dimension: Mapping[str, Any]) -> str:
    return ("pass" if dimension["passed"] else "fail") + (", overruled," if "overruled" in dimension else "")


def xml_safe(text: str) -> str:
    return UNWRITABLE.sub("\ufffd", text)


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows with `CSV_COLUMNS`. The byte order mark makes spreadsheets read UTF-8."""
    written = StringIO()
    writer = csv.writer(written, lineterminator="\r\n")
    writer.writerow(CSV_COLUMNS)
    writer.writerows([safe_cell(row.get(name)) for name in CSV_COLUMNS] for row in rows)
    return f"\ufeff{written.getvalue()}"


def safe_cell(value: Any) -> str:
    """A cell that no spreadsheet takes for a formula."""
    text = "" if value is None else str(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(FORMULA_STARTS) else text


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=_as_plain) + "\n"


def _as_plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value)
