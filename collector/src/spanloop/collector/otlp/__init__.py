"""The OTLP wire format: protobuf parsing, JSON decoding, and the encoding that ClickHouse can read.

`schema` states the part of OTLP's schema that spanloop reads; the parsers and the SQL are generated from it.
"""
