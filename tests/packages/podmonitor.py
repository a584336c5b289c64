"""podmonitor.py CRD FILE: each PodMonitor of FILE fits the schema of the Prometheus operator, with no field that it lacks."""

import sys

import jsonschema
import yaml


def closed(schema):
    """The schema with no properties but its own, as the API server prunes them."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(part) for key, part in schema.items()}
    if isinstance(made.get("properties"), dict):
        made.setdefault("additionalProperties", False)
    return made


def main(crd, file):
    with open(crd, encoding="utf-8") as text:
        version = yaml.safe_load(text)["spec"]["versions"][0]
    schema = closed(version["schema"]["openAPIV3Schema"])
    # Its own types are those of every object.
    schema["properties"]["metadata"] = {"type": "object"}
    with open(file, encoding="utf-8") as text:
        objects = [one for one in yaml.safe_load_all(text) if one["kind"] == "PodMonitor"]
    for one in objects:
        jsonschema.validate(one, schema)
        print(one["metadata"]["name"], "passed for the operator")


main(*sys.argv[1:])
