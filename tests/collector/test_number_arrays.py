"""Arrays of numbers become the JSON that value by value would give, and nothing else does."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue

from spanloop.collector.number_arrays import numbers_json
from spanloop.collector.values import text

INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 200_000) | st.sampled_from([0, 10, 24, 127, 128, 1290])
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
MANY = 64


def array(*values: AnyValue) -> ArrayValue:
    return ArrayValue(values=values)


@settings(max_examples=200, deadline=None)
@given(st.lists(INTEGERS, min_size=MANY, max_size=MANY + 40))
def test_integers(numbers: list[int]) -> None:
    found = numbers_json(array(*(AnyValue(int_value=number) for number in numbers)))
    assert found is not None
    assert found == json.dumps(numbers, separators=(",", ":"))


@settings(max_examples=100, deadline=None)
@given(st.lists(DOUBLES, min_size=MANY, max_size=MANY + 40))
def test_doubles(numbers: list[float]) -> None:
    found = numbers_json(array(*(AnyValue(double_value=number) for number in numbers)))
    assert found is not None
    assert list(map(repr, json.loads(found))) == list(map(repr, numbers))


ODD = (
    AnyValue(), AnyValue(string_value="7"), AnyValue(string_value="\x18\x07"), AnyValue(bool_value=True),
    AnyValue(bytes_value=b"\x18\x07\x0a\x02\x18\x07"), AnyValue(array_value=array(AnyValue(int_value=7))),
    AnyValue(double_value=float("nan")), AnyValue(double_value=float("inf")),
)  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("number", [AnyValue(int_value=7), AnyValue(double_value=0.5)], ids=["int", "double"])
@pytest.mark.parametrize("at", [0, 30, MANY])
def test_one_value_of_another_kind_and_it_is_left_to_others(odd: AnyValue, number: AnyValue, at: int) -> None:
    values = [number] * MANY
    values.insert(at, odd)
    assert numbers_json(array(*values)) is None
    assert len(json.loads(text(AnyValue(array_value=array(*values))))) == MANY + 1


def test_few_values_are_left_to_others() -> None:
    assert numbers_json(array()) is None
    assert numbers_json(array(AnyValue(int_value=1))) is None
    assert text(AnyValue(array_value=array(AnyValue(int_value=1), AnyValue(double_value=1)))) == "[1,1.0]"
