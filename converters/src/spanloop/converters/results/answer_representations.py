"""Values inside the text of a tool's answer: JSON, Python representations, code fences, SOAP and other XML.

Invariant: text in no known representation is None, nothing is run, and nothing here raises.
"""

import ast
import re
from itertools import pairwise
from typing import Final
from xml.etree import ElementTree as ET

from spanloop.messages import parse_json_or_none

from ..errors.failure_patterns import MOST_TEXT
from ..reading.python_reprs import value_of_repr

_FENCE: Final = re.compile(r"(```+|~~~+)[^\n`]*\n(.*?)(?:\n\1\s*\Z|\Z)", re.DOTALL)
"""A code block that is the whole text; its end may be cut off."""

_CUT_ERROR: Final = re.compile(
    r"""[\[{\s]*["'](?:error|errors|exception|isError|is_error|errorMessage)["']\s*:\s*(?=["'{\[\w])"""
    r"""(?!null|none|false|0\b|""|''|\[\s*\]|\{\s*\})""",
    re.IGNORECASE,
)
"""The beginning of an error object whose end is missing."""

_OBJECT: Final = re.compile(r"[A-Za-z_]\w*[(=]", re.ASCII)
_CLASS: Final = re.compile(r"(\w+)\(", re.ASCII)
_FIELD: Final = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_ERROR_NAME: Final = re.compile(
    r"(?:\w*(?:tool|use|call)_)?(?:error|exception|fault|failure)(?:s|response|report|message)?", re.IGNORECASE
)
_ENDS_AS_ERROR: Final = re.compile(r"\w*(?:Error|Exception|Failure)", re.ASCII)
_XML_SIGN: Final = re.compile(r"error|exception|fault|fail|false", re.IGNORECASE)
_FAULT: Final = re.compile(r"<(?:\w+:)?Fault[\s>]")
_PAGE: Final = re.compile(r"<(?:!doctype html|html)", re.IGNORECASE)
_ERROR_PAGE: Final = re.compile(r"<title>\s*((?:HTTP )?[45]\d\d\b[^<]*)</title>", re.IGNORECASE)
_LONGEST_ERROR_PAGE: Final = 4_000
"""Characters; a page that is longer is what was asked for."""


def represented(text: str) -> object:
    """The value that ``text`` represents: an object, a list, or the text within; None where it is plain text."""
    text = text.strip()
    first = text[:1]
    if first in {"{", "["}:
        return _bracketed(text)
    if first in {"`", "~"}:
        fence = _FENCE.match(text)
        return fence[2] if fence else None
    if first == "<":
        return _xml(text)
    if first in {'"', "'"} or text.startswith(("b'", 'b"')):
        return _quoted(text)
    return _python(text) if _OBJECT.match(text) else None


def _bracketed(text: str) -> object:
    decoded = parse_json_or_none(text)
    if decoded is None and len(text) <= MOST_TEXT:
        decoded = value_of_repr(text)
    if decoded is None and (cut := _CUT_ERROR.match(text)):
        return {"error": text[cut.end() :][:MOST_TEXT]}
    return decoded


def _quoted(text: str) -> object:
    """JSON text, or Python's representation of text or bytes."""
    decoded = parse_json_or_none(text)
    if decoded is None and len(text) <= MOST_TEXT and text[-1] == text[1 if text[0] == "b" else 0] and len(text) > 1:
        try:
            decoded = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    if isinstance(decoded, bytes):
        return decoded.decode("utf-8", "replace")
    return decoded if isinstance(decoded, str) else None


def _python(text: str) -> object:
    """Python's representation of an object: ``Name(a=…, b=…)``, or ``a=… b=…`` as pydantic writes models."""
    if len(text) > MOST_TEXT:
        return None
    if (named := _CLASS.match(text)) and text.endswith(")"):
        if _ENDS_AS_ERROR.fullmatch(named[1]):
            return {"error": text}
        return value_of_repr(text)
    if _FIELD.match(text):
        fields = _split_fields(text)
        return value_of_repr(f"Model({', '.join(fields)})") if all(map(_FIELD.match, fields)) else None
    return None


def _split_fields(text: str) -> list[str]:
    """``a=… b=…`` at the spaces outside of quotes and brackets."""
    places, depth, quote, is_escaped = [-1], 0, "", False
    for place, character in enumerate(text):
        if quote:
            if is_escaped:
                is_escaped = False
            elif character == "\\":
                is_escaped = True
            elif character == quote:
                quote = ""
        elif character in "\"'":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == " " and depth == 0:
            places.append(place)
    return [text[begin + 1 : end] for begin, end in pairwise([*places, len(text)])]


def _xml(text: str) -> object:
    if _PAGE.match(text):
        page = _ERROR_PAGE.search(text) if len(text) <= _LONGEST_ERROR_PAGE else None
        return page[1] if page else None
    if not _XML_SIGN.search(text, 0, MOST_TEXT):
        return None
    if len(text) <= MOST_TEXT and "<!" not in text:
        try:
            root = ET.fromstring(text)  # noqa: S314 - short, and without a document type no entity is defined
        except (ET.ParseError, ValueError, RecursionError):
            pass
        else:
            return _element(root) if _key(root) != "error" else {"error": _element(root)}
    fault = _FAULT.search(text, 0, MOST_TEXT)
    return {"error": text[fault.start() : MOST_TEXT]} if fault else None


def _element(element: ET.Element) -> object:
    fields: dict[str, object] = {_local_name(name): value for name, value in element.attrib.items()}
    for child in element:
        key, value = _key(child), _element(child)
        earlier = fields.get(key)
        fields[key] = value if earlier is None else [*(earlier if isinstance(earlier, list) else [earlier]), value]
    text = (element.text or "").strip()
    if not fields:
        return {"true": True, "false": False}.get(text.lower(), text)
    return fields | ({"text": text} if text and "text" not in fields else {})


def _key(element: ET.Element) -> str:
    name = _local_name(element.tag)
    return "error" if _ERROR_NAME.fullmatch(name) else name


def _local_name(name: str) -> str:
    name = name.rpartition("}")[2]
    return name[:1].lower() + name[1:]


__all__ = ["represented"]
