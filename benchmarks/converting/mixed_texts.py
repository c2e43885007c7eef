"""Words, tools and tokens of the production mix: plain values that need nothing but Python."""

import zlib
from dataclasses import dataclass
from random import Random
from typing import Any, Final

LENGTHS: Final = (40, 80, 120, 200, 320, 500, 800, 1250, 2000)
"""Characters of a text; 335 on average by ``_SHARES``."""
_SHARES: Final = (12, 16, 16, 16, 14, 11, 8, 5, 2)
_CHARACTERS_A_TOKEN: Final = 4

_WORDS: Final = (
    "order parcel invoice customer account delivery address street Monday Thursday weekend payment card voucher sum "
    "total item blue wool jacket size medium return label printed warehouse shelf north van route driver note signed "
    "morning the a an of in on and then with for is was has been will may three twelve 240 17.50 2026-11-20 #4711 "
    'https://shop.example/orders/4711 naïve café Größe 配送 "quoted" C:\\data\\list.csv it\'s\n- \n\n {id} <b>bold</b>'
)
_CORPUS: Final = " ".join(Random("corpus").choices(_WORDS.split(" "), k=60_000))
_VOCABULARY: Final = tuple(Random("tokens").choices(range(150_000), k=200_000))


def text(random: Random) -> str:
    """Words of one of the lengths."""
    length = random.choices(LENGTHS, _SHARES)[0]
    start = random.randrange(len(_CORPUS) - length)
    return _CORPUS[start : start + length]


def tokens(content: str) -> tuple[int, ...]:
    """Token ids of a text: made up, the same each time."""
    start = zlib.crc32(content.encode()) % (len(_VOCABULARY) // 2)
    return _VOCABULARY[start : start + 4 + len(content) // _CHARACTERS_A_TOKEN]


@dataclass(frozen=True)
class Tool:
    """A tool that an agent is offered."""

    name: str
    description: str
    types: dict[str, str]
    """Argument → JSON type."""

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the arguments, of which each is required."""
        properties = {name: {"type": kind, "description": f"The {name}."} for name, kind in self.types.items()}
        return {"type": "object", "properties": properties, "required": list(self.types)}

    def arguments(self, random: Random) -> dict[str, object]:
        """Valid arguments."""
        return {name: _value(kind, random) for name, kind in self.types.items()}


def _value(kind: str, random: Random) -> object:
    if kind == "string":
        return text(random)[:40]
    if kind == "boolean":
        return random.random() < 0.5
    return random.randrange(10_000) if kind == "integer" else random.randrange(100_000) / 100


@dataclass(frozen=True)
class Agent:
    """An agent and the service that runs it."""

    name: str
    service: str
    instructions: str
    tools: tuple[Tool, ...]


_TOOLS: Final = (
    Tool("search_orders", "Find orders by words, newest first.", {"query": "string", "limit": "integer"}),
    Tool("get_customer", "Everything known of a customer.", {"customer_id": "string"}),
    Tool("refund", "Pay money back.", {"order_id": "string", "amount": "number", "reason": "string"}),
    Tool("track_parcel", "Where a parcel is.", {"parcel_id": "string"}),
    Tool("run_sql", "Run a query against the warehouse.", {"sql": "string"}),
    Tool("list_files", "Names of the files in a folder.", {"path": "string", "recursive": "boolean"}),
    Tool("read_file", "Lines of a text file.", {"path": "string", "first_line": "integer"}),
    Tool("send_mail", "Send a mail.", {"to": "string", "subject": "string", "body": "string"}),
    Tool("book_slot", "Book a time in a calendar.", {"day": "string", "hour": "integer"}),
    Tool("web_search", "Search the web.", {"query": "string"}),
)


def _agent(number: int, name: str, service: str) -> Agent:
    instructions = f"You are {name}, an assistant of {service}. " + _CORPUS[number * 1_000 :][: 400 + 200 * number]
    return Agent(name, service, instructions, (*_TOOLS, *_TOOLS)[2 * number :][: 4 + number % 3])


AGENTS: Final = tuple(
    _agent(number, name, service)
    for number, (name, service) in enumerate(
        (("clerk", "shop"), ("tracker", "logistics"), ("analyst", "warehouse"), ("coder", "ci"), ("planner", "office"))
    )
)
