"""A NUL in a form or an address is the sender's mistake, not ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

PATHS = ("/admin/agent-review/feedback?q=a%00b", "/admin/agent-review/knowledge?agent=%00", "/chat?q=%00")


def test_a_nul_in_an_address_or_a_form_is_a_400(workspace: Any, sign_in: Callable[..., Any]) -> None:
    client = sign_in(workspace.actor("admin"))
    for path in PATHS:
        assert client.get(path).status_code == 400, path
    form = {"csrf_token": client.csrf, "type": "lesson", "content": "a\x00b"}
    assert client.post("/admin/agent-review/knowledge", data=form).status_code in {400, 404, 405}
    assert client.post("/theme", data={"csrf_token": client.csrf, "theme": "da\x00rk"}).status_code == 400


@pytest.mark.parametrize("scope", ["context", "admin"])
def test_a_nul_over_the_api_is_a_400(workspace: Any, api: Callable[..., Any], scope: str) -> None:
    assert api(workspace.actor("admin"), scope, "feedback").get("/api/feedback?agent_id=%00").status_code == 400
