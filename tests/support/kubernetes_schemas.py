"""Schemas of Kubernetes objects, reduced to the fields that a template in launch/ uses.

A whole CustomResourceDefinition takes up to 1.3 MB, most of it for fields of a pod. What is kept of it are types, names
and limits of the fields that are there: a field about which the whole schema was never asked is refused. A template
with further fields is held against the whole schema again, which is the CustomResourceDefinition of its project or, for
kinds of Kubernetes itself, a file in the package ``kubernetes-validate``. With tests/ on PYTHONPATH:

    python -m support.kubernetes_schemas launch/jobset.yaml FROM SCHEMA > tests/data/kubernetes/jobset.json

FROM tells where the schema comes from: project, release or commit, and licence. A template with several objects takes
several schemas.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

__all__ = ["reduced", "schema_of"]

_KEPT = ("type", "enum", "required", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
_INT_OR_STRING = {"type": ["integer", "string"]}


def reduced(schema: dict[str, Any], values: list[Any], definitions: dict[str, Any], where: str = "") -> dict[str, Any]:
    """Reduce a schema to what values use of it.

    Args:
        schema: OpenAPI v3 or JSON Schema.
        values: that are to be validated by it.
        definitions: schemas to which it refers.
        where: the place in the object, for errors.

    Returns:
        A JSON Schema.

    Raises:
        ValueError: a field that the schema does not have.
    """
    if "$ref" in schema:
        return reduced(definitions[schema["$ref"].rpartition("/")[2]], values, definitions, where)
    if schema.get("x-kubernetes-int-or-string") or "oneOf" in schema:
        return _INT_OR_STRING
    left = {key: schema[key] for key in _KEPT if key in schema}
    objects = [value for value in values if isinstance(value, dict)]
    more = schema.get("additionalProperties")
    if fields := schema.get("properties"):
        used = sorted({name for value in objects for name in value})
        if unknown := [name for name in used if name not in fields]:
            raise ValueError(f"{where or 'the object'} has no {', '.join(unknown)}")
        left["properties"] = {
            name: reduced(fields[name], [v[name] for v in objects if name in v], definitions, f"{where}.{name}")
            for name in used
        }
        left["additionalProperties"] = False
    elif isinstance(more, dict):
        left["additionalProperties"] = reduced(more, [v for o in objects for v in o.values()], definitions, where)
    if "items" in schema:
        items = [item for value in values if isinstance(value, list) for item in value]
        left["items"] = reduced(schema["items"], items, definitions, f"{where}[]")
    return left


def schema_of(document: dict[str, Any], path: Path) -> dict[str, Any] | None:
    """Return the reduced schema of an object; None if the file defines another kind.

    Args:
        document: the object.
        path: a CustomResourceDefinition, or a JSON Schema whose name begins with the kind.
    """
    kind, (group, _, version) = document["kind"], document["apiVersion"].rpartition("/")
    if path.suffix == ".json":
        names = [kind, *group.split("."), version] if group else [kind, version]
        if path.stem != "-".join(names).lower():
            return None
        definitions = json.loads((path.parent / "_definitions.json").read_text(encoding="utf-8"))["$defs"]
        return reduced(json.loads(path.read_text(encoding="utf-8")), [document], definitions)
    spec = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
    if (spec["group"], spec["names"]["kind"]) != (group, kind):
        return None
    (whole,) = [v["schema"]["openAPIV3Schema"] for v in spec["versions"] if v["name"] == version and v["served"]]
    left = reduced(whole, [document], {})
    left["properties"] |= {"apiVersion": {"const": document["apiVersion"]}, "kind": {"const": kind}}
    return left


def main(template: str, origin: str, *paths: str) -> None:
    """Print the reduced schemas of all objects of a template."""
    schemas = {}
    for document in yaml.safe_load_all(Path(template).read_text(encoding="utf-8")):
        (schema,) = [found for path in paths if (found := schema_of(document, Path(path))) is not None]
        schemas[document["kind"]] = {"$comment": origin, **schema}
    print(json.dumps(schemas, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
