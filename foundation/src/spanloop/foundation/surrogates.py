r"""JSON with unpaired surrogates, such as the ``\ud83d`` of an emoji that was cut in half.

An escape of JSON can hold half of a surrogate pair (RFC 8259, 8.2); UTF-8 cannot, and neither can a table, a tokenizer
or a process's argument. ClickHouse's JSON functions read no value at all from a text with such an escape.

Invariant: what `load_json` returns and `dump_json` writes can be encoded as UTF-8 and read by every JSON parser: an
unpaired surrogate is U+FFFD, as Unicode (3.9, D93b) and web browsers replace it. The JSON text that came in is changed
nowhere else, so a stored span keeps the escape.
"""

import json
from typing import Final

_ESCAPES: Final = ("\\ud", "\\uD")
_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def replace_surrogates(text: str) -> str:
    """Return the text with each unpaired surrogate as U+FFFD; a text without one is returned itself."""
    return text if is_utf8(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_utf8(text: str) -> bool:
    """Return whether UTF-8 can encode the text: whether it has no unpaired surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def may_escape_surrogates(text: str) -> bool:
    """Return whether the JSON text has an escape that may be a surrogate, paired or not, or holds an unpaired one."""
    return any(escape in text for escape in _ESCAPES) or not is_utf8(text)


def load_json(text: str) -> object:
    """Return the JSON value of the text, with unpaired surrogates replaced.

    Raises:
        ValueError: The text is not JSON.
        RecursionError: It is nested too deep.
    """
    value: object = json.loads(text)
    return replace_in_json(value) if may_escape_surrogates(text) else value


def replace_in_json(value: object) -> object:
    """Return a JSON value with unpaired surrogates replaced in its strings and keys; one without is returned itself."""
    text = _COMPACT.encode(value)
    return value if is_utf8(text) else json.loads(replace_surrogates(text))


def dump_json(value: object) -> str:
    """Return compact JSON that UTF-8 can encode, with unpaired surrogates replaced.

    Raises:
        TypeError: JSON has no form for the value.
        RecursionError: It is nested too deep.
    """
    return replace_surrogates(_COMPACT.encode(value))
