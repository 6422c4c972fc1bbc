"""Sample values of any type that msgspec knows: every field is set, and to something else than its default.

Values depend only on the type and on the name on the wire, so that renaming a class or a Python attribute does not
change a golden file.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import inspect

PLAIN: Mapping[type[inspect.Type], Callable[[str], Any]] = {
    inspect.AnyType: lambda name: name,
    inspect.BoolType: lambda _: True,
    inspect.BytesType: lambda _: bytes(range(16)),
    inspect.DecimalType: lambda _: Decimal("0.25"),
    inspect.FloatType: lambda _: 1.5,
    inspect.IntType: lambda _: 7,
    inspect.StrType: lambda name: name,
}
CUSTOM: dict[type, Callable[[], Any]] = {}
"""How to make a value of a type that msgspec does not know; tests add what they need."""


def sample(type_: Any, name: str = "value") -> Any:  # noqa: ANN401  any type and its value
    """Make a value of a type; `name` is the key under which it is encoded."""
    return _value(inspect.type_info(type_), name)


def samples(union: Any) -> list[Any]:  # noqa: ANN401  same
    """Make a value of each member of a union of structs, sorted by their tags."""
    info = inspect.type_info(union)
    assert isinstance(info, inspect.UnionType)
    members = [each for each in info.types if isinstance(each, inspect.StructType)]
    return [_value(each, "value") for each in sorted(members, key=lambda each: str(each.tag))]


def _value(info: inspect.Type, name: str) -> Any:  # noqa: ANN401, C901, PLR0911  a case for each kind
    match info:
        case inspect.Metadata(type=inner):
            return _value(inner, name)
        case inspect.StructType(cls=cls):
            return _struct(cls)
        case inspect.UnionType(types=types):
            return _value(next(each for each in types if not isinstance(each, inspect.NoneType)), name)
        case inspect.VarTupleType(item_type=item):
            return (_value(item, name),)
        case inspect.TupleType(item_types=items):
            return tuple(_value(each, name) for each in items)
        case inspect.ListType(item_type=item) | inspect.CollectionType(item_type=item):
            return [_value(item, name)]
        case inspect.DictType(key_type=key, value_type=value):
            return {_value(key, f"{name} key"): _value(value, name)}
        case inspect.LiteralType(values=values):
            return values[-1]
        case inspect.EnumType(cls=cls):
            return list(cls)[-1]
        case inspect.CustomType(cls=cls):
            return CUSTOM[cls]()
    return PLAIN[type(info)](name)


def _struct(cls: type[msgspec.Struct]) -> msgspec.Struct:
    values = {}
    for field in msgspec.structs.fields(cls):
        value = _value(inspect.type_info(field.type), field.encode_name)
        if value is True and field.default is True:
            value = False
        assert value != field.default, f"the sample of {field.encode_name} is its default, and may not be written"
        values[field.name] = value
    return cls(**values)
