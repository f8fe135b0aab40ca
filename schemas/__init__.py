"""The rules of schemas: Avro, JSON Schema and Protobuf, each with the library that knows it (the extra `schemas`)."""
