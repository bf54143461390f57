"""Ids in text."""

from __future__ import annotations

from uuid import uuid4

import pytest

from app.formats.ids import parse_id


def test_an_id_is_read_in_either_case() -> None:
    value = uuid4()
    assert parse_id(str(value)) == parse_id(str(value).upper()) == value


@pytest.mark.parametrize("text", ["", "x", uuid4().hex, f"{{{uuid4()}}}", f"{uuid4()}\n", None, 7, uuid4().urn])
def test_anything_else_is_no_id(text: object) -> None:
    assert parse_id(text) is None
