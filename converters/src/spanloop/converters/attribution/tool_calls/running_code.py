"""Tools that run what the policy wrote: what fails in them is the policy's own text, not a tool that was asked for."""

import re
from typing import Final

from spanloop.messages import ToolCall

_RUNS_CODE: Final = re.compile(
    r"python|code|interpreter|execut|shell|bash|terminal|jupyter|notebook|\bsql\b|_sql|sql_|query_db|run_query",
    re.IGNORECASE,
)
_CODE_ARGUMENT: Final = re.compile(r'"(?:code|script|source|command|cmd|sql|program)"\s*:')


def runs_code(call: ToolCall) -> bool:
    """Whether a tool was asked to run code or a query that the policy wrote."""
    return _CODE_ARGUMENT.search(call.arguments) is not None and _RUNS_CODE.search(call.name) is not None
