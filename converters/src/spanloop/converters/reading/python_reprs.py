"""Objects that an instrumentor wrote as Python's repr: ``Call(name='f', arguments='{}')``, ``{'a': None}``.

Invariant: nothing is run; only literals, and calls of a class by keywords, which become their keywords. What is more
than that is no value, and nothing here raises.
"""

import ast
import re
from typing import Final, cast

from spanloop.foundation.surrogates import replace_in_json
from spanloop.messages.json_values import as_fields, as_list

_MAX_LENGTH: Final = 1_000_000
_BEGINS: Final = re.compile(r"\s*(?:[A-Z]\w*\(|[\[{])", re.ASCII)


def value_of_repr(text: str) -> object:
    """The dict or list that ``text`` is the repr of, pydantic's models as dicts; None when it is no such thing."""
    if len(text) > _MAX_LENGTH or not _BEGINS.match(text):
        return None
    try:
        value = _value(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return replace_in_json(value) if as_fields(value) or as_list(value) else None


def _value(node: ast.expr) -> object:
    if isinstance(node, ast.Call):
        if node.args or not all(keyword.arg for keyword in node.keywords):
            raise ValueError("expected keywords only")
        return {str(keyword.arg): _value(keyword.value) for keyword in node.keywords}
    if isinstance(node, ast.Dict):
        if not all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in node.keys):
            raise ValueError("expected text keys")
        keys = [str(cast("ast.Constant", key).value) for key in node.keys]
        return {key: _value(value) for key, value in zip(keys, node.values, strict=True)}
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(item) for item in node.elts]
    literal = cast("object", ast.literal_eval(node))
    if literal is None or isinstance(literal, (str, int, float, bool)):
        return literal
    raise ValueError("expected what JSON can carry")
