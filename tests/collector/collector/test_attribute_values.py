"""Attribute values as text: what the OpenTelemetry exporter would store."""

import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from spanloop.collector.otlp.attribute_values import attributes, format_double, text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (AnyValue(string_value="a\nb"), "a\nb"),
        (AnyValue(string_value=""), ""),
        (AnyValue(), ""),
        (AnyValue(int_value=-(2**63)), "-9223372036854775808"),
        (AnyValue(bool_value=False), "false"),
        (AnyValue(bool_value=True), "true"),
        (AnyValue(double_value=0.7), "0.7"),
        (AnyValue(bytes_value=b"\x00\xff"), "AP8="),
        (AnyValue(array_value=ArrayValue()), "[]"),
        (AnyValue(kvlist_value=KeyValueList()), "{}"),
        (AnyValue(array_value=ArrayValue(values=[AnyValue(string_value="stop"), AnyValue()])), '["stop",null]'),
        (
            AnyValue(
                kvlist_value=KeyValueList(
                    values=[
                        KeyValue(key="é", value=AnyValue(double_value=math.nan)),
                        KeyValue(key="b", value=AnyValue(array_value=ArrayValue(values=[AnyValue(bool_value=True)]))),
                        KeyValue(key="c", value=AnyValue(bytes_value=b"\x00\xff")),
                    ]
                )
            ),
            '{"é":"NaN","b":[true],"c":"AP8="}',
        ),
    ],
)
def test_text(value: AnyValue, expected: str) -> None:
    assert text(value) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1.0, "1"),
        (-0.0, "-0"),
        (100000.0, "100000"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (1e-5, "0.00001"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (2.5e-9, "2.5e-9"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
    ],
)
def test_doubles_look_as_go_prints_them(number: float, expected: str) -> None:
    assert format_double(number) == expected


@given(st.floats())
def test_doubles_read_back_exactly(number: float) -> None:
    again = float(format_double(number))
    assert struct.pack("d", again) == struct.pack("d", number) or (math.isnan(again) and math.isnan(number))


def test_the_last_of_two_values_for_one_key_counts() -> None:
    pairs = [KeyValue(key="k", value=AnyValue(string_value=value)) for value in ("first", "last")]
    assert attributes(pairs) == {"k": "last"}


def any_values() -> st.SearchStrategy[AnyValue]:
    scalars = st.one_of(
        st.builds(AnyValue, string_value=st.text()),
        st.builds(AnyValue, int_value=st.integers(-(2**63), 2**63 - 1)),
        st.builds(AnyValue, bool_value=st.booleans()),
        st.builds(AnyValue, double_value=st.floats()),
        st.builds(AnyValue, bytes_value=st.binary()),
    )
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3).map(lambda values: AnyValue(array_value=ArrayValue(values=values))),
        max_leaves=8,
    )


@given(any_values())
def test_every_array_is_json(value: AnyValue) -> None:
    encoded = text(AnyValue(array_value=ArrayValue(values=[value])))
    assert len(json.loads(encoded, parse_constant=pytest.fail)) == 1
