"""Protobuf files as text and in base64, and records of them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

pytest.importorskip("proto_schema_parser", reason="Protobuf needs the extra: pip install -e '.[schemas]'")

from minibroker.schemas.schema import SchemaError, parse

TEXT = """\
syntax = "proto3";
package a.b;
import "google/protobuf/timestamp.proto";
option java_package = "x.y";

message User {
  string name = 1;
  optional int32 age = 2 [json_name = "AGE", deprecated = true];
  repeated .a.b.User.Inner inner = 3;
  map<string, int64> m = 4;
  oneof pick {
    string s = 5;
    .a.b.User.Inner i = 6;
  }
  reserved 10 to 12, 15;
  reserved "foo";
  message Inner {
    .a.b.User.Kind kind = 1;
    .google.protobuf.Timestamp at = 2;
  }
  enum Kind {
    option allow_alias = true;
    UNKNOWN = 0;
    A = 1;
    B = 1 [deprecated = true];
    reserved 7 to max;
  }
}

service S {
  rpc Get (.a.b.User) returns (stream .a.b.User);
}
"""
OLD_TEXT = """\
syntax = "proto2";

message M {
  required string name = 1 [default = "x\\"y"];
  optional group Part = 2 {
    optional int32 n = 1 [default = 5];
  }
  extensions 100 to max;
}
extend .M {
  optional bool more = 100;
}
"""


def test_a_file_comes_back_from_its_text() -> None:
    for text in (TEXT, OLD_TEXT):
        schema: Any = parse("PROTOBUF", text, {})
        sent = parse("PROTOBUF", schema.serialized(), {})

        assert schema.text == text.strip()
        assert sent.text == text
        assert sent.identity == schema.identity


def test_files_are_the_same_whatever_their_comments_and_names_of_types() -> None:
    schema = parse("PROTOBUF", TEXT, {})
    other = TEXT.replace(".a.b.User.", "").replace(".google", "google").replace("string name", "// n\nstring  name")

    assert parse("PROTOBUF", other, {}).identity == schema.identity
    moved = TEXT.replace("  string name = 1;\n", "").replace("  reserved 10", "  string name = 1;\n  reserved 10")
    assert parse("PROTOBUF", moved, {}).identity != schema.identity
    assert parse("PROTOBUF", moved, {}).normalized() == schema.normalized()


def test_a_file_imports_those_that_it_refers_to() -> None:
    text = 'syntax = "proto3"; import "other.proto"; message M { other.N n = 1; }'
    other = 'syntax = "proto3"; package other; message N { int32 x = 1; }'

    schema = parse("PROTOBUF", text, {"other.proto": other})

    assert schema.decode(memoryview(schema.encode({"n": {"x": 3}}))) == {"n": {"x": 3}}
    with pytest.raises(SchemaError, match=r"Depends on file 'other\.proto'"):
        parse("PROTOBUF", text, {})


def test_a_record_names_its_message_in_the_file() -> None:
    schema = parse("PROTOBUF", TEXT, {})
    value = {"name": "n", "age": 3, "m": {"k": "5"}, "s": "q", "inner": [{"kind": "A", "at": "2020-01-01T00:00:00Z"}]}

    assert schema.encode(value)[:1] == b"\0"  # the first message
    assert schema.decode(memoryview(schema.encode(value))) == value
    # The first message inside the first one; entries of maps do not count.
    assert schema.decode(memoryview(b"\x04\x00\x00" + b"\x08\x01")) == {"kind": "A"}
    for wrong in (b"", b"\x04\x00", b"\x02\x10", b"\x00\xff"):
        with pytest.raises(SchemaError):
            schema.decode(memoryview(wrong))
    with pytest.raises(SchemaError, match="nothing"):
        schema.encode({"nothing": 1})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message {", "line 1:8 mismatched input"),
        ("", "it has no message"),
        ('syntax = "proto3"; message M { Foo a = 1; }', "couldn't resolve name 'Foo'"),
        ('syntax = "proto3"; message M { string a = 1; string b = 1; }', "duplicate"),
        (base64.b64encode(b"\x0a\x05abc").decode(), "line 1"),
    ],
)
def test_a_text_that_is_no_file_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        parse("PROTOBUF", text, {})
