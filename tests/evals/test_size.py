"""Hostile sessions end soon and say that they were not read to their end."""

from __future__ import annotations

from bench.verdicts import hostile


def test_hostile_pairs_of_ten_megabytes_are_truncated_in_time() -> None:
    # Two seconds are promised; a machine that runs the other tests beside this one may take a little longer.
    assert hostile() < 4
