"""Class and owner of a tool's error by its words alone: no span of the tool's, and the tool never worked."""

import pytest

from .converters_world import OPENING, World, answers, asks, text, trace_id

TRACE = trace_id("t")
WORDINGS = (
    ("timeout", "environment", "Request to https://api.x/y timed out after 30s"),
    ("timeout", "environment", "asyncio.exceptions.TimeoutError"),
    ("timeout", "environment", "TimeoutError"),
    ("timeout", "environment", "Error: Timeout of 10000ms exceeded"),
    (
        "timeout",
        "environment",
        "ReadTimeoutError: HTTPSConnectionPool(host='x', port=443): Read timed out. (read timeout=10)",
    ),
    ("timeout", "environment", "Tool call timed out."),
    ("timeout", "environment", "The search_flights tool timed out. Please try again later."),
    ("timeout", "environment", "Error: the server took too long to respond"),
    ("timeout", "environment", "504 Gateway Timeout"),
    ("timeout", "environment", '{"error": {"code": 504, "message": "Gateway timeout"}}'),
    ("timeout", "environment", "Operation timed out"),
    ("timeout", "environment", "The request timed out while waiting for a response."),
    ("rate_limit", "environment", "429 Too Many Requests"),
    ("rate_limit", "environment", "Error: Rate limit exceeded. Please retry after 20 seconds."),
    ("rate_limit", "environment", '{"status": 429, "message": "slow down"}'),
    ("rate_limit", "environment", '{"error": "rate_limit_exceeded"}'),
    ("rate_limit", "environment", "API rate limit reached"),
    ("rate_limit", "environment", "HTTP 429"),
    ("rate_limit", "environment", "Too many requests, please slow down."),
    ("rate_limit", "environment", "Error 429: quota exceeded"),
    ("server_error", "environment", "HTTP 500 Internal Server Error"),
    ("server_error", "environment", "500 Internal Server Error"),
    ("server_error", "environment", "Internal Server Error"),
    ("server_error", "environment", '{"status_code": 503, "detail": "Service Unavailable"}'),
    ("server_error", "environment", "Service temporarily unavailable. Please try again later."),
    ("server_error", "environment", "The service is currently unavailable."),
    ("server_error", "environment", "upstream error: 502 Bad Gateway"),
    ("server_error", "environment", "Error: backend returned status 500"),
    ("server_error", "environment", "Error: database service is down"),
    ("connection_error", "environment", "ConnectionResetError: [Errno 104] Connection reset by peer"),
    ("connection_error", "environment", "Could not connect to the reservation server"),
    ("connection_error", "environment", "Error: connect ECONNREFUSED 10.0.0.1:443"),
    ("connection_error", "environment", "Network is unreachable"),
    ("connection_error", "environment", "Error: Network error"),
    ("connection_error", "environment", "DNS resolution failed"),
    ("connection_error", "environment", "Failed to establish a new connection"),
    ("connection_error", "environment", "Error: unable to reach server"),
    ("permission_denied", "environment", "403 Forbidden"),
    ("permission_denied", "environment", "Permission denied"),
    ("permission_denied", "environment", "Error: Access denied"),
    ("permission_denied", "environment", "401 Unauthorized"),
    ("permission_denied", "environment", "Error: Unauthorized"),
    ("permission_denied", "environment", "Error: API key expired"),
    ("permission_denied", "environment", '{"error": "invalid_api_key"}'),
    ("permission_denied", "environment", "Error: not authorized to access this resource"),
    ("tool_error", "tool", "An error occurred while executing the tool"),
    ("tool_error", "tool", "The tool failed"),
    ("tool_error", "tool", "Tool execution failed: KeyError('currency')"),
    ("tool_error", "tool", "Error: 'NoneType' object is not subscriptable"),
    ("tool_error", "tool", "ZeroDivisionError: division by zero"),
    ("tool_error", "tool", '{"success": false}'),
    ("tool_error", "tool", "RuntimeError: database is locked"),
    ("tool_error", "tool", "Unexpected error"),
    ("tool_error", "tool", "psycopg2.OperationalError: too many clients already"),
    ("tool_error", "tool", "Something went wrong. Please try again."),
    ("invalid_arguments", "policy", "Error: missing required argument: query"),
    ("invalid_arguments", "policy", "Missing required parameter 'query'"),
    ("invalid_arguments", "policy", "TypeError: search() missing 1 required positional argument: 'query'"),
    ("invalid_arguments", "policy", "Invalid arguments: query must be a string"),
    ("invalid_arguments", "policy", "ValidationError: 1 validation error for search"),
    ("invalid_arguments", "policy", "Error: invalid parameter 'query'"),
    ("invalid_arguments", "policy", "Error: 'query' is a required property"),
    ("invalid_arguments", "policy", "400 Bad Request: query is required"),
    ("invalid_arguments", "policy", "Invalid value for query: c1"),
    ("invalid_arguments", "policy", "Error: query must not be empty"),
    ("invalid_arguments", "policy", "Error: unexpected argument 'q'"),
    ("invalid_arguments", "policy", "Error: search() got an unexpected keyword argument 'q'"),
    ("invalid_arguments", "policy", "Error: c1 not found"),
    ("invalid_arguments", "policy", '{"error": "query \'c1\' does not exist"}'),
    ("refused_action", "policy", "Error: seat already taken, cannot be booked"),
    ("refused_action", "policy", "Error: Insufficient balance"),
    ("refused_action", "policy", "Error: reservation is not eligible for refund"),
    ("refused_action", "policy", "Error: amount exceeds the limit of 100"),
    ("refused_action", "policy", "Error: basic economy tickets cannot be modified"),
    ("refused_action", "policy", "The operation cannot be completed: insufficient funds"),
)


@pytest.mark.parametrize("number", range(len(WORDINGS)))
def test_words_of_a_tools_error_tell_whose_fault_it_is(number: int) -> None:
    error_class, owner, said = WORDINGS[number]
    world, asked = World(), asks("c1")
    world.call(OPENING, asked, trace=TRACE)
    world.call([*OPENING, asked, answers("c1", said)], text("assistant", "I could not do it."), trace=TRACE)
    world.score(0.0, trace_id=TRACE)
    failures = world.convert().failures
    assert failures.select("error_class", "fault_owner", "is_recovered").rows() == [(error_class, owner, False)], said
