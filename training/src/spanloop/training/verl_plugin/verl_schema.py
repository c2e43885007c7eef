# pyright: basic
"""The keys of verl's configuration: defaults of its YAML files, types of its dataclasses.

Invariant: neither verl nor torch is imported, so that a command or the dashboard can check a job before it is queued.
The dataclasses that the files name (``_target_``) are read as source; they also have keys that the files leave out.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, cast

_TARGET: Final = "_target_"
_MISSING: Final = "???"
"""OmegaConf's mark of a value without a default."""


class UnknownKey(NamedTuple):
    """A key that verl does not have."""

    parent: str
    """The last table on the way that verl has."""


class DeclaredKey(NamedTuple):
    """A key of verl."""

    type_name: str
    """The Python name of the type, without the types of its elements; ``any`` accepts any value."""
    is_optional: bool
    default: Any


@cache
def default_config(name: str) -> Mapping[str, Any]:
    """Return verl's configuration ``name`` without any override; values without a default are ``???``."""
    from omegaconf import OmegaConf  # noqa: PLC0415 - installed with verl

    from .verl_config import compose  # noqa: PLC0415 - Hydra is installed with verl

    container: Any = OmegaConf.to_container(compose(name, []), resolve=True)
    return cast("Mapping[str, Any]", container)


def find_key(config: Mapping[str, Any], key: str) -> DeclaredKey | UnknownKey | None:
    """Return how verl declares ``key``; None below a table that may have any key."""
    node: Any = config
    parts = key.split(".")
    for number, part in enumerate(parts):
        if node is None or node == {}:
            return None
        fields = _dataclass_fields(node[_TARGET]) if isinstance(node, dict) and _TARGET in node else {}
        is_last = number == len(parts) - 1
        if isinstance(node, dict) and part in node:
            if is_last:
                return _declared(node[part], fields.get(part))
            node = node[part]
        elif part in fields:
            # a field that the files leave out; what it holds is not known
            return _declared(None, fields[part]) if is_last else None
        else:
            return UnknownKey(".".join(parts[:number]))
    return None


def _declared(default: Any, annotation: str | None) -> DeclaredKey:
    """Return the type of a key: the dataclass's, else that of the default."""
    if annotation is not None:
        is_optional = annotation.startswith("Optional[") or "None" in annotation or default is None
        inner = annotation.removeprefix("Optional[").split("[")[0].split("|")[0].strip(" ]").lower()
        return DeclaredKey(inner, is_optional, default)
    if default is None or default == _MISSING:
        return DeclaredKey("any", is_optional=True, default=default)
    return DeclaredKey(type(default).__name__, is_optional=False, default=default)


@cache
def _dataclass_fields(target: str) -> Mapping[str, str]:
    """Return the annotations of the fields of a dataclass of verl, by name, inherited ones included."""
    module, _, name = target.rpartition(".")
    return _fields_of_class(_classes(module), name)


def _fields_of_class(classes: Mapping[str, ast.ClassDef], name: str) -> dict[str, str]:
    found = classes.get(name)
    if found is None:
        return {}
    fields: dict[str, str] = {}
    for base in found.bases:
        if isinstance(base, ast.Name):
            fields |= _fields_of_class(classes, base.id)
    for node in found.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
            fields[node.target.id] = ast.unparse(node.annotation)
    return fields


@cache
def _classes(module: str) -> Mapping[str, ast.ClassDef]:
    """Return the classes in the source of ``module``, or of the modules of a package, by name."""
    from .verl_config import verl_folder  # noqa: PLC0415 - Hydra is installed with verl

    place = verl_folder().joinpath(*module.split(".")[1:])
    paths = sorted(place.glob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    nodes = (node for path in paths if path.exists() for node in ast.parse(path.read_text()).body)
    return {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}


def leaf_keys(config: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of all values that are no table."""
    for name, value in config.items():
        if name == _TARGET:
            continue
        if isinstance(value, dict) and value:
            yield from leaf_keys(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"
