"""The templates for Kubernetes have only fields that their projects' schemas have, with values of the right type."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.kubernetes_schemas import reduced, schema_of

ROOT = Path(__file__).parents[3]
SCHEMAS = ROOT / "tests" / "data" / "kubernetes"


def faults(document: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    from jsonschema import Draft7Validator

    return [f"{error.json_path}: {error.message}" for error in Draft7Validator(schema).iter_errors(document)]


def objects(name: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each object of a template, with its schema."""
    schemas = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    documents = yaml.safe_load_all((ROOT / "launch" / f"{name}.yaml").read_text(encoding="utf-8"))
    return [(document, schemas[document["kind"]]) for document in documents]


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "launch").glob("*.yaml")))
def test_a_template_is_valid(name: str) -> None:
    for document, schema in objects(name):
        assert faults(document, schema) == []


WRONG: dict[str, Callable[[dict[str, Any]], object]] = {
    "a field in the wrong place": lambda job: job.update(restartPolicy="Never"),
    "a value of another type": lambda job: job.update(completions="2"),
    "a missing field": lambda job: job["template"]["spec"].pop("containers"),
    "a misspelt field": lambda job: job["template"]["spec"]["containers"][0].update(volumeMount=[]),
    "a quantity that is none": lambda job: job["template"]["spec"]["containers"][0]["resources"].update(
        limits={"a": []}
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_one_is_not(wrong: str) -> None:
    ((document, schema),) = objects("jobset")
    WRONG[wrong](document["spec"]["replicatedJobs"][0]["template"]["spec"])
    assert len(faults(document, schema)) == 1


def test_what_is_kept_of_a_schema(tmp_path: Path) -> None:
    (tmp_path / "crd.yaml").write_text(
        """
spec:
  group: a.io
  names: {kind: Thing}
  versions:
    - name: v1
      served: true
      schema:
        openAPIV3Schema:
          type: object
          description: long
          properties:
            apiVersion: {type: string}
            kind: {type: string}
            spec:
              type: object
              required: [size]
              properties:
                size: {type: integer, minimum: 1, description: long}
                other: {type: string}
                port: {x-kubernetes-int-or-string: true}
                labels: {type: object, additionalProperties: {type: string}}
"""
    )
    thing = {"apiVersion": "a.io/v1", "kind": "Thing", "spec": {"size": 2, "port": "http", "labels": {"a": "b"}}}
    schema = schema_of(thing, tmp_path / "crd.yaml")
    assert schema == {
        "type": "object",
        "properties": {
            "apiVersion": {"const": "a.io/v1"},
            "kind": {"const": "Thing"},
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 1},
                    "port": {"type": ["integer", "string"]},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                },
                "additionalProperties": False,
            },
        },
        "additionalProperties": False,
    }
    assert schema_of(thing | {"kind": "Others"}, tmp_path / "crd.yaml") is None
    with pytest.raises(ValueError, match=r"\.spec has no sizes$"):
        schema_of(thing | {"spec": {"sizes": 2}}, tmp_path / "crd.yaml")


def test_definitions_are_followed() -> None:
    schema = {"properties": {"a": {"items": {"$ref": "file.json#/definitions/A"}}}}
    left = reduced(schema, [{"a": [{"b": 1}]}], {"A": {"properties": {"b": {"type": "integer"}}}})
    of_a = {"properties": {"b": {"type": "integer"}}, "additionalProperties": False}
    assert left == {"properties": {"a": {"items": of_a}}, "additionalProperties": False}
