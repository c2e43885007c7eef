"""Words of a failure that tell of none: denied, counted as none, or quoted from what somebody wrote.

Invariant: a text that begins with such words and goes on about a failure of its own is left to the patterns.
"""

import re
from typing import Final

_NONE: Final = r"(?:0+|none|null|nil|no|false|zero|n/a|kein\w*|ningun[oa]?|nenhum\w*|aucun\w*|нет|无|なし)"
_NEGATED: Final = re.compile(
    r"(?:\b(?:no|without|zero|0)\s+"
    r"|\b(?:not|never|nor|none of \w+|nie|nunca|jamais)\s+(?:\w+\s+)?)$",
    re.IGNORECASE,
)
"""Right before the words."""
_COUNTED: Final = re.compile(
    rf"(?:[^\W\d]| ){{0,30}}\s*[:=\uff1a]\s*{_NONE}(?:\s+(?:times?|entries|events?|incidents?|mal|veces|fois))?"
    r"\s*(?:$|[.,;)\n。])",
    re.IGNORECASE,
)
"""Right behind the words."""
_RECORD: Final = re.compile(
    r"\W{0,3}(?:(?:support )?ticket|bug|subject|title|topic|headline|article|post|thread|e-?mail|comment|faq|jira"
    r"|betreff|titel|asunto|título|objet|titre|тема|主题|标题|工单|件名|タイトル)\s*(?:(?:#\s*)?[\w-]*\d[\w-]*)?\s*"
    r"(?:\([^()\n]{0,30}\))?\s*[:\uff1a\"“「]"
    r"|\W{0,3}(?:issue|incident|case|result)\s*#?\s*[\w-]*\d[\w-]*\b",
    re.IGNORECASE,
)
"""The beginning of a record that somebody wrote, with its number or its label."""
_REPORTED: Final = re.compile(
    r"\b(?:customer|user|client|article|guide|page|ticket|issue|message from|report(?:s|ed)?|says?|said|asked|wrote"
    r"|mentions?|titled|explains?|called|how to|kunde|nutzer|cliente|usuario)\b",
    re.IGNORECASE,
)
_FAILS: Final = re.compile(
    r"error|fail|exception|rais|return|could ?n|can ?not|fehl|erreur|fallo|错误|失败|エラー", re.IGNORECASE
)
_QUOTES: Final = {
    "'": "'",
    '"': '"',
    "`": "`",
    "“": "”",
    "„": "“",
    "«": "»",
    "「": "」",
    "『": "』",
    "\u2018": "\u2019",
}
_FIRST_WORD: Final = 3
_NEAR: Final = 40
"""Characters around the words that are looked at."""


def is_mention(text: str, start: int, end: int) -> bool:
    """Whether the words of a failure at ``text[start:end]`` are denied, counted as none, or quoted."""
    behind = end - 1 if text[end - 1 : end] in {":", "\uff1a"} else end
    before, after = text[max(0, start - _NEAR) : start], text[behind : behind + _NEAR]
    # Several languages begin a complaint by "no": "No queda espacio".
    if (start > _FIRST_WORD and _NEGATED.search(before)) or _COUNTED.match(after):
        return True
    return start > 0 and (_RECORD.match(text[:start]) is not None or _is_quoted(text, start, end))


def _is_quoted(text: str, start: int, end: int) -> bool:
    """Whether the words stand in quotes within a sentence that reports them."""
    for opening, closing in _QUOTES.items():
        place = text.rfind(opening, 0, start)
        if place <= 0 or closing in text[place + 1 : start] or text.find(closing, end) < 0:
            continue
        sentence = text[:place]
        if sentence[-1].isalnum() or not any(map(str.isalpha, sentence)):  # an apostrophe, or the quote begins the text
            continue
        return _REPORTED.search(sentence) is not None or _FAILS.search(sentence) is None
    return False
