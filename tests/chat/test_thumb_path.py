"""How far a thumb travels through the code."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

from flask import Flask

from tests.chat.test_pages import Talk, talk  # noqa: F401 - a fixture

ROOT = Path(__file__).resolve().parents[2]
MAX_MODULES = 24
# Every page passes through these.
FRAME = (
    "app/security/", "app/views/layout/", "app/api/kit/limits", "app/api/ops/metrics", "app/db/", "app/models/",
    "app/config", "app/errors", "app/actor",
)  # fmt: skip


def test_a_thumb_touches_few_modules_and_never_goes_back_up(app: Flask, talk: Talk) -> None:  # noqa: F811 - the fixture
    talk.thumb("helpful", htmx=True)
    modules: set[str] = set()
    climbs: set[tuple[str, str]] = set()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        name = module_of(frame)
        if event != "call" or name is None:
            return
        modules.add(name)
        caller = frame.f_back
        if caller and name.startswith("app/views/") and (module_of(caller) or "").startswith("app/services/"):
            climbs.add((str(module_of(caller)), name))

    sys.setprofile(watch)
    try:
        answer = talk.thumb("not_helpful", htmx=True)
    finally:
        sys.setprofile(None)

    assert answer.status_code == 200
    touched = sorted(name for name in modules if not name.startswith(FRAME))
    assert not climbs
    assert len(touched) <= MAX_MODULES, touched


def module_of(frame: FrameType) -> str | None:
    """Return the module of a frame as a path; None for what is not the product's Python."""
    path = Path(frame.f_code.co_filename)
    if path.suffix != ".py" or not path.is_relative_to(ROOT / "app"):
        return None
    return path.relative_to(ROOT).as_posix().removesuffix(".py")
