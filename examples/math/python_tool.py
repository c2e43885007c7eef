"""The agent's tool, and the items that its dialogs begin with."""

import ast
import json
import math
from collections.abc import Iterator
from typing import Final

from agents import function_tool
from agents.items import TResponseInputItem

INSTRUCTIONS: Final = "You solve math problems. Call python."
QUESTION: Final = "Question: {}"
ERROR: Final = "Error: "
"""How the output of a failed call begins."""
_LONGEST_CODE: Final = 60


@function_tool(failure_error_function=lambda _, error: f"{ERROR}{error}")
def python(code: str) -> str:
    """Value of a Python expression."""
    return evaluate(code)


def evaluate(code: str) -> str:
    """Return the value of an arithmetic expression.

    Raises:
        ValueError: ``code`` is no expression of numbers, + - * / and brackets, or it divides by zero.
    """
    if len(code) > _LONGEST_CODE:
        raise ValueError(f"the code is longer than {_LONGEST_CODE} characters")
    try:
        value = _value(ast.parse(code.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, OverflowError) as error:
        raise ValueError(str(error)) from error
    if not math.isfinite(value):
        raise ValueError("the value is not finite")
    return f"{value:.10g}"


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _value(left) + _value(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _value(left) - _value(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _value(left) * _value(right)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _value(left) / _value(right)
        case _:
            raise ValueError("only numbers, + - * / and brackets are understood")


def question_item(question: str) -> TResponseInputItem:
    """Return the item that asks."""
    return {"role": "user", "content": QUESTION.format(question)}


def _call(code: str, call_id: str) -> TResponseInputItem:
    return {"type": "function_call", "call_id": call_id, "name": python.name, "arguments": json.dumps({"code": code})}


_SOLVED: Final = {
    "What is 9 times 45?": "9 * 45",
    "Kim buys 4 bags of 25 nuts and eats 10. How many nuts are left?": "4 * 25 - 10",
    "Add 50 and 8, then multiply by 2.": "(50 + 8) * 2",
    "Kim has 84 nuts for 4 people. How many nuts does each person have?": "84 / 4",
}


def _examples() -> Iterator[TResponseInputItem]:
    # openai-agents drops all but one of the items with one call id
    for number, (question, code) in enumerate(_SOLVED.items()):
        call_id = f"example_{number}"
        yield question_item(question)
        yield _call(code, call_id)
        yield {"type": "function_call_output", "call_id": call_id, "output": evaluate(code)}


EXAMPLES: Final = list(_examples())
"""Example calls, which stand before every question."""
