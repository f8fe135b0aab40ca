"""A .proto file as text and as a FileDescriptorProto, the form that Protobuf's own library knows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError
from proto_schema_parser import ast
from proto_schema_parser.parser import Parser

from minibroker.schemas.schema import SchemaError

Field = descriptor_pb2.FieldDescriptorProto
TYPES = {name.removeprefix("TYPE_").lower(): number for name, number in Field.Type.items()}
TYPE_NAMES = {number: name for name, number in TYPES.items()}
SCALARS = TYPES.keys() - {"message", "enum", "group"}
LABELS = {"OPTIONAL": Field.LABEL_OPTIONAL, "REQUIRED": Field.LABEL_REQUIRED, "REPEATED": Field.LABEL_REPEATED}
FIELDS = (ast.Field, ast.MapField, ast.Group)
PROTO2, PROTO3 = "proto2", "proto3"
FIELD_NUMBERS_END, ENUM_NUMBERS_END = 2**29, 2**31 - 1


class Strict:
    """Raises for each error that the parser would print, and read on."""

    def syntaxError(self, recognizer: Any, symbol: Any, line: int, column: int, message: str, error: Any) -> None:
        raise SchemaError(f"line {line}:{column} {message.partition(' expecting ')[0]}")

    def __getattr__(self, name: str) -> Any:
        return lambda *others: None  # ambiguities are no errors


def strict(recognizer: Any) -> None:
    recognizer.removeErrorListeners()
    recognizer.addErrorListener(Strict())


def read(text: str) -> Any:
    """Raises SchemaError. Names of types stay as they are written."""
    parsed = Parser(setup_lexer=strict, setup_parser=strict).parse(text)
    if not parsed.file_elements:
        raise SchemaError("it has no message")
    try:
        return file_of(parsed, parsed.syntax == PROTO3)
    except (ValueError, TypeError, KeyError, DecodeError) as error:  # the last for what is nested too deeply
        raise SchemaError(str(error)) from error


def file_of(parsed: ast.File, is_proto3: bool) -> Any:
    elements = parsed.file_elements
    imports = [each for each in elements if isinstance(each, ast.Import)]
    return descriptor_pb2.FileDescriptorProto(
        syntax=PROTO3 if is_proto3 else None,
        package=next((each.name for each in elements if isinstance(each, ast.Package)), None),
        dependency=[each.name for each in imports],
        public_dependency=[place for place, each in enumerate(imports) if each.public],
        options=options_from(descriptor_pb2.FileOptions, elements),
        message_type=[message_of(each, is_proto3) for each in elements if isinstance(each, ast.Message)],
        enum_type=[enum_of(each) for each in elements if isinstance(each, ast.Enum)],
        extension=extensions_of(elements),
        service=[service_of(each) for each in elements if isinstance(each, ast.Service)],
    )


def service_of(element: ast.Service) -> Any:
    return descriptor_pb2.ServiceDescriptorProto(
        name=element.name,
        method=[
            descriptor_pb2.MethodDescriptorProto(
                name=each.name,
                input_type=each.input_type.type,
                output_type=each.output_type.type,
                client_streaming=each.input_type.stream or None,
                server_streaming=each.output_type.stream or None,
            )
            for each in element.elements
            if isinstance(each, ast.Method)
        ],
    )


def message_of(element: Any, is_proto3: bool) -> Any:
    """The descriptor of a message, or of a group."""
    elements = element.elements
    oneofs = [each for each in elements if isinstance(each, ast.OneOf)]
    fields: list[Any] = []
    optional: list[str] = []
    for each in elements:
        if isinstance(each, FIELDS):
            is_optional = is_proto3 and getattr(each, "cardinality", None) == ast.FieldCardinality.OPTIONAL
            # The oneofs that stand for `optional` come behind the others.
            place = len(oneofs) + len(optional) if is_optional else None
            optional += [f"_{each.name}"] * is_optional
            fields.append(field_of(each, oneof_index=place, proto3_optional=is_optional or None))
        elif isinstance(each, ast.OneOf):
            inside = [inner for inner in each.elements if isinstance(inner, FIELDS)]
            fields += [field_of(inner, oneof_index=oneofs.index(each)) for inner in inside]
    inner_groups = [inner for each in (element, *oneofs) for inner in each.elements if isinstance(inner, ast.Group)]
    return descriptor_pb2.DescriptorProto(
        name=element.name,
        field=fields,
        oneof_decl=[
            descriptor_pb2.OneofDescriptorProto(name=name) for name in [*(each.name for each in oneofs), *optional]
        ],
        nested_type=[
            *(message_of(each, is_proto3) for each in elements if isinstance(each, ast.Message)),
            *(message_of(each, is_proto3) for each in inner_groups),
            *(entry_of(each) for each in elements if isinstance(each, ast.MapField)),
        ],
        enum_type=[enum_of(each) for each in elements if isinstance(each, ast.Enum)],
        extension=extensions_of(elements),
        options=options_from(descriptor_pb2.MessageOptions, elements),
        reserved_name=[name for each in elements if isinstance(each, ast.Reserved) for name in each.names],
        reserved_range=[
            descriptor_pb2.DescriptorProto.ReservedRange(start=start, end=end + 1)
            for start, end in ranges_of(elements, ast.Reserved, FIELD_NUMBERS_END - 1)
        ],
        extension_range=[
            descriptor_pb2.DescriptorProto.ExtensionRange(start=start, end=end + 1)
            for start, end in ranges_of(elements, ast.ExtensionRange, FIELD_NUMBERS_END - 1)
        ],
    )


def field_of(element: Any, **more: Any) -> Any:
    options = getattr(element, "options", [])
    named = {each.name: each.value for each in options}
    cardinality = getattr(element, "cardinality", None)
    label = Field.LABEL_OPTIONAL if cardinality is None else LABELS[cardinality.value]
    given = {"name": element.name, **type_of(getattr(element, "type", "")), **more}
    if isinstance(element, ast.MapField):
        label = Field.LABEL_REPEATED
        given |= {"type": Field.TYPE_MESSAGE, "type_name": entry_name(element.name)}
    elif isinstance(element, ast.Group):
        given |= {"name": element.name.lower(), "type": Field.TYPE_GROUP, "type_name": element.name}
    return Field(
        number=element.number,
        label=label,
        default_value=default_of(named["default"]) if "default" in named else None,
        json_name=named.get("json_name"),
        options=options_from(descriptor_pb2.FieldOptions, options),
        **given,
    )


def entry_name(field: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"


def entry_of(element: ast.MapField) -> Any:
    """The message type of a map field's entries."""
    types = {"key": element.key_type, "value": element.value_type}
    return descriptor_pb2.DescriptorProto(
        name=entry_name(element.name),
        options=descriptor_pb2.MessageOptions(map_entry=True),
        field=[
            Field(name=name, number=number, label=Field.LABEL_OPTIONAL, **type_of(kind))
            for number, (name, kind) in enumerate(types.items(), 1)
        ],
    )


def type_of(name: str) -> dict[str, Any]:
    return {"type": TYPES[name]} if name in SCALARS else {"type_name": name or None}


def default_of(value: Any) -> str:
    """The default of a field, as a descriptor has it: the parser leaves escapes in texts."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(getattr(value, "name", value))
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text


def extensions_of(elements: Sequence[Any]) -> list[Any]:
    return [
        field_of(inner, extendee=each.typeName)
        for each in elements
        if isinstance(each, ast.Extension)
        for inner in each.elements
        if isinstance(inner, ast.Field)
    ]


def enum_of(element: ast.Enum) -> Any:
    elements = element.elements
    return descriptor_pb2.EnumDescriptorProto(
        name=element.name,
        value=[
            descriptor_pb2.EnumValueDescriptorProto(
                name=each.name,
                number=each.number,
                options=options_from(descriptor_pb2.EnumValueOptions, each.options),
            )
            for each in elements
            if isinstance(each, ast.EnumValue)
        ],
        options=options_from(descriptor_pb2.EnumOptions, elements),
        reserved_name=[name for each in elements if isinstance(each, ast.EnumReserved) for name in each.names],
        reserved_range=[
            descriptor_pb2.EnumDescriptorProto.EnumReservedRange(start=start, end=end)
            for start, end in ranges_of(elements, ast.EnumReserved, ENUM_NUMBERS_END)
        ],
    )


def options_from(kind: Any, elements: Sequence[Any]) -> Any:
    """The options that Protobuf defines, None without any; those of others say nothing of the records."""
    found: dict[str, Any] = {}
    for each in elements:
        known = kind.DESCRIPTOR.fields_by_name.get(each.name) if isinstance(each, ast.Option) else None
        if known is not None and known.message_type is None and not known.is_repeated:
            found[each.name] = each.value.name if known.enum_type is not None else each.value
    return kind(**found) if found else None


def ranges_of(elements: Sequence[Any], kind: type, most: int) -> Iterator[tuple[int, int]]:
    for each in elements:
        if isinstance(each, kind):
            yield from ranges(each.ranges, most)  # type: ignore[attr-defined]


def ranges(texts: Sequence[str], most: int) -> Iterator[tuple[int, int]]:
    """The first and last number of each range, such as `10 to 12`, `15` or `100 to max`."""
    for text in texts:
        first, _, last = text.partition(" to ")
        yield int(first), most if last == "max" else int(last or first)


# -- to text --------------------------------------------------------------------------------------------------


def text_of(file: Any) -> str:
    """The text of a file, as protoc would read it."""
    lines = [f'syntax = "{file.syntax or PROTO2}";']
    lines += [f"package {file.package};"] * bool(file.package)
    for place, each in enumerate(file.dependency):
        lines.append(f'import {"public " * (place in file.public_dependency)}"{each}";')
    lines += [f"option {each};" for each in options_of(file.options)]
    is_proto3 = file.syntax == PROTO3
    for message in file.message_type:
        lines += ["", *message_lines(message, is_proto3)]
    for enum in file.enum_type:
        lines += ["", *enum_lines(enum)]
    lines += extension_lines(file.extension, is_proto3)
    for service in file.service:
        lines += ["", f"service {service.name} {{"]
        for each in service.method:
            given, made = "stream " * each.client_streaming, "stream " * each.server_streaming
            lines.append(f"  rpc {each.name} ({given}{each.input_type}) returns ({made}{each.output_type});")
        lines.append("}")
    return "\n".join(lines) + "\n"


def message_lines(message: Any, is_proto3: bool) -> list[str]:
    lines = [f"option {each};" for each in options_of(message.options)]
    entries = {each.name: each for each in message.nested_type if each.options.map_entry}
    groups = {each.type_name.rpartition(".")[2] for each in message.field if each.type == Field.TYPE_GROUP}
    begun: set[int] = set()
    for field in message.field:
        if not field.HasField("oneof_index") or field.proto3_optional:
            lines += field_lines(message, field, entries, is_proto3)
        elif field.oneof_index not in begun:
            begun.add(field.oneof_index)
            inside = [each for each in message.field if each.HasField("oneof_index")]
            inside = [each for each in inside if each.oneof_index == field.oneof_index]
            rows = [row for each in inside for row in field_lines(message, each, entries, True)]
            lines += [f"oneof {message.oneof_decl[field.oneof_index].name} {{", *indented(rows), "}"]
    lines += reserved_lines(message, 1)
    for each in message.extension_range:
        lines.append(f"extensions {range_text(each.start, each.end - 1, FIELD_NUMBERS_END - 1)};")
    for nested in message.nested_type:
        if nested.name not in entries and nested.name not in groups:
            lines += message_lines(nested, is_proto3)
    for enum in message.enum_type:
        lines += enum_lines(enum)
    lines += extension_lines(message.extension, is_proto3)
    return [f"message {message.name} {{", *indented(lines), "}"]


def field_lines(message: Any, field: Any, entries: Any, is_proto3: bool) -> list[str]:
    options = [f"default = {default_text(field)}"] * field.HasField("default_value")
    if field.HasField("json_name") and field.json_name != camel(field.name):
        options.append(f'json_name = "{field.json_name}"')
    options += options_of(field.options)
    end = f" = {field.number}" + (f" [{', '.join(options)}]" if options else "")
    entry = entries.get(field.type_name.rpartition(".")[2])
    if entry is not None:
        return [f"map<{type_text(entry.field[0])}, {type_text(entry.field[1])}> {field.name}{end};"]
    label = "" if is_proto3 and not field.proto3_optional else "optional "
    label = {Field.LABEL_REPEATED: "repeated ", Field.LABEL_REQUIRED: "required "}.get(field.label, label)
    if field.type == Field.TYPE_GROUP:
        name = field.type_name.rpartition(".")[2]
        group = next(each for each in message.nested_type if each.name == name)
        return [f"{label}group {name}{end} {{", *message_lines(group, is_proto3)[1:]]
    return [f"{label}{type_text(field)} {field.name}{end};"]


def enum_lines(enum: Any) -> list[str]:
    lines = [f"option {each};" for each in options_of(enum.options)]
    for each in enum.value:
        options = options_of(each.options)
        lines.append(f"{each.name} = {each.number}" + (f" [{', '.join(options)}]" if options else "") + ";")
    return [f"enum {enum.name} {{", *indented([*lines, *reserved_lines(enum, 0)]), "}"]


def extension_lines(fields: Any, is_proto3: bool) -> list[str]:
    holder = descriptor_pb2.DescriptorProto()
    return [
        line
        for each in fields
        for line in (f"extend {each.extendee} {{", *indented(field_lines(holder, each, {}, is_proto3)), "}")
    ]


def reserved_lines(owner: Any, beyond: int) -> list[str]:
    """`beyond` is how far a range ends behind its last number: 1 in messages, 0 in enums."""
    most = FIELD_NUMBERS_END - 1 if beyond else ENUM_NUMBERS_END
    numbers = [range_text(each.start, each.end - beyond, most) for each in owner.reserved_range]
    names = [f'"{each}"' for each in owner.reserved_name]
    return [f"reserved {', '.join(each)};" for each in (numbers, names) if each]


def range_text(first: int, last: int, most: int) -> str:
    return str(first) if first == last else f"{first} to {'max' if last == most else last}"


def options_of(options: Any) -> list[str]:
    found = []
    for field, value in options.ListFields():
        if field.is_repeated:
            continue
        if field.enum_type is not None:
            found.append(f"{field.name} = {field.enum_type.values_by_number[value].name}")
        elif field.message_type is None and not field.is_extension and field.name != "map_entry":
            found.append(f"{field.name} = {json.dumps(value)}")
    return found


def default_text(field: Any) -> str:
    is_text = field.type in (Field.TYPE_STRING, Field.TYPE_BYTES)
    return json.dumps(field.default_value) if is_text else str(field.default_value)


def type_text(field: Any) -> str:
    return str(field.type_name or TYPE_NAMES[field.type])


def camel(name: str) -> str:
    """The name of a field in JSON."""
    first, *rest = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in rest)


def indented(lines: Sequence[str]) -> list[str]:
    return [f"  {each}" for each in lines]


def put_entries_last(message: Any) -> None:
    """Put the entries of maps behind the nested messages: records name those by their places, as Java counts them."""
    nested = sorted(message.nested_type, key=lambda each: bool(each.options.map_entry))
    copies = [descriptor_pb2.DescriptorProto.FromString(each.SerializeToString()) for each in nested]
    del message.nested_type[:]
    message.nested_type.extend(copies)
    for each in message.nested_type:
        put_entries_last(each)


def sort(owner: Any) -> None:
    """Bring everything whose order says nothing into one order."""
    for part in ("field", "value"):
        rows = getattr(owner, part, None)
        if rows is not None:
            rows.sort(key=lambda each: each.number)
    for part in ("dependency", "reserved_name"):
        rows = getattr(owner, part, None)
        if rows is not None:
            rows.sort()
    for part in ("message_type", "nested_type", "enum_type"):
        for each in getattr(owner, part, ()):
            sort(each)
