"""The description of the API is valid OpenAPI 3.1 and leaves nothing out."""

from __future__ import annotations

import json
import re

from flask import Flask
from openapi_spec_validator import OpenAPIV31SpecValidator

from app.api.kit.problems import ABOUT
from app.api.ops.openapi import describe
from tests.conftest import soup


def test_the_description_is_valid_and_public(app: Flask) -> None:
    response = app.test_client().get("/api/openapi.json")
    assert response.status_code == 200
    assert response.mimetype == "application/json"
    document = json.loads(response.data)
    assert document["openapi"] == "3.1.0"
    OpenAPIV31SpecValidator(document).validate()


def test_every_json_route_is_described_with_its_models(app: Flask) -> None:
    document = describe(app)
    described = {(method.upper(), path) for path, told in document["paths"].items() for method in told}
    for rule in app.url_map.iter_rules():
        if rule.rule.startswith(("/api/", "/healthz", "/readyz", "/metrics")) and not rule.rule.startswith("/api/docs"):
            path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)
            for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}:
                assert (method, path) in described, (method, path)


def test_operations_have_names_of_their_own_and_sentences(app: Flask) -> None:
    operations = [told for methods in describe(app)["paths"].values() for told in methods.values()]
    names = [told["operationId"] for told in operations]
    assert len(names) == len(set(names))
    for told in operations:
        assert told["summary"]
        assert told["description"]


def test_bodies_say_that_they_take_no_other_field(app: Flask) -> None:
    document = describe(app)
    for methods in document["paths"].values():
        for told in methods.values():
            if "application/json" in told.get("requestBody", {}).get("content", {}):
                name = told["requestBody"]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
                assert document["components"]["schemas"][name]["additionalProperties"] is False


def test_the_pages_show_every_operation_and_every_problem(app: Flask) -> None:
    client = app.test_client()
    index = soup(client.get("/api/docs"))
    pages = {link["href"]: soup(client.get(link["href"])) for link in index.select("h2 a")}
    groups = {page.h1.get_text(): page for page in pages.values()}
    for path, methods in describe(app)["paths"].items():
        for told in methods.values():
            section = groups[told["tags"][0]].find(id=told["operationId"])
            assert section is not None, told["operationId"]
            assert path in section.get_text()
            assert index.select(f'a[href$="#{told["operationId"]}"]')
    for status in ABOUT:
        assert index.find(id=f"problem-{status}") is not None
    for page in (index, *pages.values()):
        assert not page.select("[style], script:not([src]), style")
    assert client.get("/api/docs/nothing").status_code == 404


def test_the_search_finds_operations_by_words_and_by_fields(app: Flask) -> None:
    client = app.test_client()
    found = [link["href"] for link in soup(client.get("/api/docs?q=Revoke+golden")).select("nav li a")]
    assert found == ["/api/docs/evals#delete_api_admin_evals_golden_one"]
    by_field = soup(client.get("/api/docs?q=chat+idempotency-key")).select("nav li a")
    assert by_field
    assert {link["href"].split("#")[0] for link in by_field} < {
        link["href"] for link in soup(client.get("/api/docs")).select("h2 a")
    }
    assert "0 found" in soup(client.get("/api/docs?q=zebra")).get_text()
