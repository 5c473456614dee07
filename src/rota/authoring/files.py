"""Definitions in files: YAML or JSON, one or several in a file, with the line of a fault where it is known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from rota.domain.errors import FieldError, InvalidInput
from rota.domain.spec import WorkflowSpec
from rota.domain.spec_parse import MAX_DEFINITION_BYTES, parse_workflow

SUFFIXES = (".yaml", ".yml", ".json")
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Definition:
    """One definition of a file: as it was written, and as it was understood."""

    path: Path
    document: dict[str, Any]
    spec: WorkflowSpec


def find_files(place: Path) -> list[Path]:
    """The definition files at a path: itself, or all below a folder. Hidden ones are left out."""
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise InvalidInput.of([FieldError(str(place), "is neither a file nor a folder")])
    return sorted(
        path
        for path in place.rglob("*")
        if path.suffix in SUFFIXES
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(place).parts)
    )


def read_definitions(path: Path, *, now: datetime) -> list[Definition]:
    """The definitions in a file. One InvalidInput names every fault as `file:line: field`."""
    text = _read_text(path)
    found: list[Definition] = []
    errors: list[FieldError] = []
    for node, document in _parse(path, text):
        try:
            found.append(Definition(path, document, parse_workflow(document, now=now)))
        except InvalidInput as error:
            errors += _place_faults(path, node, error)
    if errors:
        raise InvalidInput.of(errors)
    if not found:
        raise InvalidInput.of([FieldError(str(path), "holds no definition")])
    return found


def _read_text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInput.of([FieldError(str(path), f"cannot be read: {error.strerror}")]) from error
    if len(content) > MAX_DEFINITION_BYTES:
        raise InvalidInput.of([FieldError(str(path), f"is larger than {MAX_DEFINITION_BYTES:,} bytes; split it")])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidInput.of([FieldError(f"{path}:{line}", "is not UTF-8 text")]) from error


def _parse(path: Path, text: str) -> list[tuple[yaml.Node, Any]]:
    """Each document with its syntax tree, which knows the lines. JSON is read as the YAML that it is."""
    documents: list[tuple[yaml.Node, Any]] = []
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            document = loader.construct_document(node)
            if node is not None and document is not None:
                documents.append((node, document))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        raise InvalidInput.of([FieldError(place, error.problem or "is not YAML")]) from error
    except yaml.reader.ReaderError as error:
        place = f"{path}:{text.count(chr(10), 0, error.position) + 1}"
        raise InvalidInput.of(
            [FieldError(place, f"the character U+{ord(text[error.position]):04X} is not allowed")]
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput.of([FieldError(str(path), f"cannot be read as YAML: {error}")]) from error
    return documents


def _place_faults(path: Path, node: yaml.Node, error: InvalidInput) -> Sequence[FieldError]:
    faults = error.errors or (FieldError("", error.detail),)
    return [
        FieldError(": ".join(filter(None, (f"{path}:{_find_line(node, fault.field)}", fault.field))), fault.reason)
        for fault in faults
    ]


def _find_line(node: yaml.Node, field: str) -> int:
    """The line of a field such as `tasks[2].depends_on`, or of the nearest thing around it."""
    line = node.start_mark.line
    for name, index in _STEP.findall(field):
        inner = _find_inner(node, name, index)
        if inner is None:
            break
        line, node = inner
    return int(line) + 1


def _find_inner(node: yaml.Node, name: str, index: str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == name:
                return key.start_mark.line, value
    if isinstance(node, yaml.SequenceNode) and index and int(index) < len(node.value):
        item = node.value[int(index)]
        return item.start_mark.line, item
    return None


class _Loader(yaml.SafeLoader):
    """Plain data only. A key that is given twice is a fault, and no date is turned into anything but its text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _value in node.value:
            if key.tag != "tag:yaml.org,2002:merge" and key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
            seen.add(key.value if isinstance(key.value, str) else id(key))
        return super().construct_mapping(node, deep=deep)


# `2026-03-29` and `on` stay what was written: the definition's own reader decides what they mean.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] not in ("timestamp", "bool")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
