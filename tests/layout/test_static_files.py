"""Static files: compressed for those who take it, kept for a year under the stamp of their content."""

from __future__ import annotations

import gzip
from pathlib import Path

from flask import Flask, url_for

CHARTS = "vendor/plotly-cartesian.min.js"


def test_large_files_are_sent_compressed(app: Flask) -> None:
    client, whole = app.test_client(), (Path(str(app.static_folder)) / CHARTS).read_bytes()
    packed = client.get(f"/static/{CHARTS}", headers={"Accept-Encoding": "gzip, br"})
    assert (packed.headers["Content-Encoding"], packed.mimetype) == ("gzip", "text/javascript")
    assert "Accept-Encoding" in packed.headers["Vary"]
    assert len(packed.data) < len(whole) / 2
    assert gzip.decompress(packed.data) == whole
    plain = client.get(f"/static/{CHARTS}")
    assert "Content-Encoding" not in plain.headers
    assert "Accept-Encoding" in plain.headers["Vary"]
    assert plain.data == whole
    assert plain.headers["ETag"] != packed.headers["ETag"]
    again = {"Accept-Encoding": "gzip", "If-None-Match": packed.headers["ETag"]}
    assert client.get(f"/static/{CHARTS}", headers=again).status_code == 304


def test_only_the_right_stamp_is_kept_for_long(app: Flask) -> None:
    client = app.test_client()
    with app.test_request_context():
        stamped = url_for("static", filename="upshot.css")
    ages = [
        client.get(path).cache_control.max_age for path in (stamped, "/static/upshot.css?v=other", "/static/app.js")
    ]
    assert ages == [365 * 24 * 3600, 3600, 3600]
    assert client.get("/static/no-such-file.js?v=0").status_code == 404
    assert client.get("/static/../__init__.py").status_code == 404
