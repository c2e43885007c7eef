"""Arrays of numbers become the JSON that value by value would give, and nothing else does."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue

from spanloop.collector.otlp.attribute_values import text
from spanloop.collector.otlp.number_arrays import number_texts, numbers_json
from spanloop.collector.otlp.wire import MalformedError, encode_field, parse, serialize

INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 200_000) | st.sampled_from([0, 10, 24, 127, 128, 1290])
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
MANY = 64


def array(*values: AnyValue) -> ArrayValue:
    return ArrayValue(values=values)


@settings(max_examples=200, deadline=None)
@given(st.lists(INTEGERS, min_size=MANY, max_size=MANY + 40))
def test_integers(numbers: list[int]) -> None:
    encoded = numbers_json(array(*(AnyValue(int_value=number) for number in numbers)))
    assert encoded is not None
    assert encoded == json.dumps(numbers, separators=(",", ":"))


@settings(max_examples=100, deadline=None)
@given(st.lists(DOUBLES, min_size=MANY, max_size=MANY + 40))
def test_doubles(numbers: list[float]) -> None:
    encoded = numbers_json(array(*(AnyValue(double_value=number) for number in numbers)))
    assert encoded is not None
    assert list(map(repr, json.loads(encoded))) == list(map(repr, numbers))


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


ANY_NUMBERS = st.one_of(
    st.lists(INTEGERS.map(lambda number: AnyValue(int_value=number)), max_size=30),
    st.lists(st.floats().map(lambda number: AnyValue(double_value=number)), max_size=30),
    st.lists(
        st.builds(AnyValue, int_value=INTEGERS) | st.builds(AnyValue, double_value=st.floats()) | st.sampled_from(ODD),
        max_size=30,
    ),
).map(lambda values: serialize(array(*values)))
OVERLONG = (
    encode_field(1, b"\x18\x85\x00") * 40,  # 5, in two bytes
    encode_field(1, b"\x18" + b"\x85" + b"\x80" * 8 + b"\x00") * 20,  # in ten
    encode_field(1, b"\x18" + b"\xff" * 9 + b"\x01") * 20,  # -1
    encode_field(1, b"\x18" + b"\xff" * 9 + b"\x7f") * 20,  # more than 64 bits
    encode_field(1, b"\x18\x05\x18\x06") * 40,  # twice: the last one counts
    encode_field(1, b"\x18\x05\xa0\x06\x01") * 40,  # and a field without a name
    b"\x0a\x82\x00\x18\x05" * 40,  # a length in two bytes
    encode_field(1, b"\x18\x05") * 40 + b"\xa0\x06\x01",
    encode_field(1, b"\x18\x05") * 40 + b"\x0a\x05\x18",  # cut off, so that the next array would go on with it
    b"\x0a\x02\x18\x0a" * 40,
    b"\x18\x0a\x02" * 40,
    b"\x0a",
    bytes(200),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(ANY_NUMBERS | st.sampled_from(OVERLONG) | st.binary(max_size=40), max_size=6))
def test_many_at_once_are_what_each_is_by_itself(arrays: list[bytes]) -> None:
    for raw, encoded in zip(arrays, number_texts(arrays), strict=True):
        assert number_texts([raw]) == [encoded]
        if encoded is not None:
            each = json.loads(text(AnyValue(array_value=parse(ArrayValue, raw))))
            assert list(map(repr, json.loads(encoded))) == list(map(repr, each))


def test_more_than_are_read_at_once() -> None:
    arrays = [serialize(array(*(AnyValue(int_value=at) for at in range(size)))) for size in (60_000, 1, 90_000, 300)]
    assert number_texts(arrays) == [
        json.dumps(list(range(size)), separators=(",", ":")) for size in (60_000, 1, 90_000, 300)
    ]


def test_what_is_no_array_is_left_to_others() -> None:
    with pytest.raises(MalformedError):
        parse(ArrayValue, OVERLONG[-5])
    assert number_texts([OVERLONG[-5], OVERLONG[0]]) == [None, json.dumps([5] * 40, separators=(",", ":"))]
