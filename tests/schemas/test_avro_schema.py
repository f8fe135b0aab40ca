"""The text of Avro schemas, and records of them."""

from __future__ import annotations

import pytest

pytest.importorskip("avro", reason="Avro needs the extra: pip install -e '.[schemas]'")

from minibroker.schemas.schema import SchemaError, parse

# A schema, and the text that `Schema.toString` of Java's avro 1.12 makes of it.
TEXTS = {
    "string": '"string"',
    '{"type": "string"}': '"string"',
    '{"logicalType": "date", "type": "int"}': '{"type":"int","logicalType":"date"}',
    '["null", {"type": "array", "items": {"type": "long"}}]': '["null",{"type":"array","items":"long"}]',
    '{"fields": [], "namespace": "a.b", "name": "R", "type": "record", "aliases": ["Q"], "x": 1, "doc": "d"}': (
        '{"type":"record","name":"R","namespace":"a.b","doc":"d","fields":[],"x":1,"aliases":["Q"]}'
    ),
    '{"type": "record", "name": "a.R", "fields": [{"type": {"type": "fixed", "size": 2, "name": "a.F"}, "name": "f"},'
    ' {"name": "g", "type": "a.F", "order": "ascending"}, {"name": "h", "type": ["null", "a.R"], "default": null}]}': (
        '{"type":"record","name":"R","namespace":"a","fields":[{"name":"f","type":{"type":"fixed","name":"F","size":2}},'
        '{"name":"g","type":"F"},{"name":"h","type":["null","R"],"default":null}]}'
    ),
}


@pytest.mark.parametrize("given", TEXTS)
def test_the_text_is_that_of_java(given: str) -> None:
    assert parse("AVRO", given, {}).text == TEXTS[given]


def test_a_record_is_encoded_of_json_and_decoded_to_it() -> None:
    schema = parse(
        "AVRO",
        '{"type":"record","name":"R","fields":[{"name":"n","type":["null","double","string"],"default":null},'
        '{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":4}},'
        '{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},'
        '{"name":"m","type":{"type":"map","values":{"type":"array","items":"U"}},"default":{}}]}',
        {"U": '{"type":"enum","name":"U","symbols":["A","B"]}'},
    )
    value = {"n": "x", "d": "\u00ff", "at": 5, "m": {"k": ["B"]}}

    assert schema.decode(memoryview(schema.encode(value))) == value
    assert schema.decode(memoryview(schema.encode({"d": "", "at": 1}))) == {"n": None, "d": "", "at": 1, "m": {}}
    for wrong, reason in (({"d": ""}, "at"), ({"d": "", "at": "x"}, "at"), ({**value, "z": 1}, "no field z")):
        with pytest.raises(SchemaError, match=reason):
            schema.encode(wrong)
    with pytest.raises(SchemaError, match="not of this Avro schema"):
        schema.decode(memoryview(b"\x09"))
