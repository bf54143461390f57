"""Ids in text."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from app.formats.ids import parse_id

# The same in every test process, which must all collect the same tests.
SOME = UUID("6f8b1d0e-3a52-4c7d-9f10-2b8a4e5c6d71")


def test_an_id_is_read_in_either_case() -> None:
    value = uuid4()
    assert parse_id(str(value)) == parse_id(str(value).upper()) == value


@pytest.mark.parametrize("text", ["", "x", SOME.hex, f"{{{SOME}}}", f"{SOME}\n", None, 7, SOME.urn])
def test_anything_else_is_no_id(text: object) -> None:
    assert parse_id(text) is None
