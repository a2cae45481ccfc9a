"""From the body's bytes to what the handler's annotation asks for.

bytes as they are, str as UTF-8, a pydantic model or a msgspec struct by its own decoder, everything else as
JSON: without an annotation as plain Python values, with one as pydantic understands it. Whatever goes wrong
is `Undecodable`, with a reason short enough to stand in a header.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from deadletter.consumer.outcomes import Undecodable
from deadletter.errors import UsageError

Decoder: TypeAlias = Callable[[bytes], Any]
_WHY_CHARS: Final = 500
_read_json: Final = json.JSONDecoder().decode
_OPENINGS: Final = (b"{", b"[", b'"')
_PLAIN: Final = (inspect.Parameter.empty, Any, object, dict, list, Mapping)


def decoder_for(annotation: Any) -> Decoder:
    """How a body becomes a value of this kind."""
    if annotation is bytes:
        return _as_it_is
    if annotation is str:
        return _guarded(lambda body: body.decode("utf-8"))
    if annotation in _PLAIN or (typing.get_origin(annotation) in (dict, list) and _loose(annotation)):
        return _guarded(_json)
    if isinstance(annotation, type) and _is_struct(annotation):
        import msgspec

        return _guarded(msgspec.json.Decoder(annotation).decode)
    return _guarded(_validator(annotation))


def _loose(annotation: Any) -> bool:
    """`dict[str, Any]` and the like: nothing to check beyond JSON itself."""
    return all(argument in (Any, str) for argument in typing.get_args(annotation)) and (
        typing.get_origin(annotation) is dict or typing.get_args(annotation) == (Any,)
    )


def _validator(annotation: Any) -> Decoder:
    import pydantic

    try:
        if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
            return annotation.model_validate_json
        return pydantic.TypeAdapter(annotation).validate_json
    except pydantic.errors.PydanticSchemaGenerationError as error:
        raise UsageError(
            "a handler's first parameter: expected bytes, str, JSON types, a pydantic model, a msgspec "
            f"struct or anything pydantic can validate, got {annotation!r}"
        ) from error


def _is_struct(annotation: type) -> bool:
    return any(base.__module__.startswith("msgspec") for base in annotation.__mro__)


def _json(body: bytes) -> Any:
    # What looks like UTF-8 is not examined for other encodings, which would take as long as reading it.
    if body[:1] in _OPENINGS and body[1:2] != b"\0":
        return _read_json(body.decode("utf-8", "surrogatepass"))
    return json.loads(body)


def _as_it_is(body: bytes) -> bytes:
    return body


def _guarded(decode: Decoder) -> Decoder:
    def guarded(body: bytes) -> Any:
        try:
            return decode(body)
        except Exception as error:  # whatever a decoder raises, the message is what cannot be read
            raise Undecodable(f"{type(error).__name__}: {error}"[:_WHY_CHARS]) from error

    return guarded
