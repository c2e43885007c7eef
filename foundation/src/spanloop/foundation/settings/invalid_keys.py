"""Describe what pydantic refuses in a user's file: each problem with its place, an unknown key with the nearest one."""

import difflib
from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

_CUTOFF: Final = 0.6
"""Similarity from which on a key is suggested."""


def problems_of_file(model: type[BaseModel], error: ValidationError) -> str:
    """Return the problems of a file, which is an instance of ``model``, in one line that ends with a full stop."""
    text = "; ".join(_problem(model, problem) for problem in error.errors())
    return text if text.endswith("?") else f"{text}."


def nearest_key(name: str, names: Iterable[str]) -> str:
    """Return ``Did you mean …?`` with the name that is most like ``name``; empty without one."""
    nearest = difflib.get_close_matches(name, list(names), n=1, cutoff=_CUTOFF)
    return f"Did you mean {nearest[0]}?" if nearest else ""


def _problem(model: type[BaseModel], problem: Any) -> str:
    place: tuple[int | str, ...] = problem["loc"]
    where = ".".join(map(str, place))
    if problem["type"] != "extra_forbidden":
        return f"{where}: {str(problem['msg']).removeprefix('Value error, ')}".removeprefix(": ")
    section = _section_at(model, place[:-1])
    hint = nearest_key(str(place[-1]), section.model_fields) if section is not None else ""
    return f"{where}: there is no such key. {hint}".strip() if hint else f"{where}: there is no such key"


def _section_at(model: type[BaseModel], place: tuple[int | str, ...]) -> type[BaseModel] | None:
    """Return the class of the section at a place of the file; None where the place is in none."""
    found: Any = model
    for part in place:
        if isinstance(found, type) and issubclass(found, BaseModel):
            field = found.model_fields.get(str(part))
            found = None if field is None else _without_none(field.annotation)
        elif get_origin(found) in {dict, tuple, list}:
            arguments = get_args(found)
            found = arguments[1] if get_origin(found) is dict else arguments[0]
        else:
            return None
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


def _without_none(annotation: Any) -> Any:
    """Return the type of an optional value."""
    if get_origin(annotation) in {Union, UnionType}:
        return next((each for each in get_args(annotation) if each is not NoneType), None)
    return annotation
