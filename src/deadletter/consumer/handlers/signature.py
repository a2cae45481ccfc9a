"""What a handler's parameters ask for: the body, the message itself, a transaction.

Which is which, the annotations say; each may be there once, in any order. Parameters with a default are the
application's own.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from inspect import Parameter
from typing import Annotated, Any, Final, TypeAlias

from deadletter.consumer.handlers.callables import name_of
from deadletter.consumer.handlers.dependencies import (
    Dependency,
    asked,
    dependency_of,
    hints_of,
    refuse_defaults,
)
from deadletter.consumer.idempotency import Transaction
from deadletter.consumer.message import Message
from deadletter.consumer.outcomes import Undecodable
from deadletter.consumer.publishing.bodies import is_struct
from deadletter.errors import UsageError

Decoder: TypeAlias = Callable[[bytes], Any]
_WHY_CHARS: Final = 500
_read_json: Final = json.JSONDecoder().decode
_OPENINGS: Final = (b"{", b"[", b'"')
_PLAIN: Final = (inspect.Parameter.empty, Any, object, dict, list, Mapping)


def decoder_for(annotation: Any) -> Decoder:
    """How a body becomes a value of this kind.

    bytes as they are, str as UTF-8, a pydantic model or a msgspec struct by its own decoder, everything else
    as JSON: without an annotation as plain Python values, with one as pydantic understands it. Whatever goes
    wrong is `Undecodable`, with a reason short enough to stand in a header.
    """
    if _read_by_itself(annotation):
        return _checked(annotation)
    if annotation is bytes:
        return _as_it_is
    if annotation is str:
        return _guarded(lambda body: body.decode("utf-8"))
    if annotation in _PLAIN or (typing.get_origin(annotation) in (dict, list) and _loose(annotation)):
        return _guarded(_json)
    if isinstance(annotation, type) and is_struct(annotation):
        import msgspec

        return _guarded(msgspec.json.Decoder(annotation).decode)
    return _guarded(_validator(annotation))


def _checked(annotation: Any) -> Decoder:
    """Read as what stands in `Annotated`, and then held against what that adds."""
    import pydantic

    read, check = decoder_for(annotation.__origin__), pydantic.TypeAdapter(annotation).validate_python
    return _guarded(lambda body: check(read(body)))


def _read_by_itself(annotation: Any) -> bool:
    """Whether it is an `Annotated` of something that pydantic does not read."""
    if typing.get_origin(annotation) is not Annotated:
        return False
    return annotation.__origin__ in (bytes, str, *_PLAIN)


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
    except pydantic.errors.PydanticUserError as error:
        if error.code != "typed-dict-version":
            raise
        raise UsageError(
            "a handler's first parameter: expected a TypedDict of typing_extensions before Python 3.12 (from "
            f"typing_extensions import TypedDict), got typing's own: {annotation!r}"
        ) from error


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


class ParameterWish(Enum):
    """What one parameter asks for."""

    BODY = "the body"
    MESSAGE = "a Message"
    TRANSACTION = "a Transaction"


_BODY: Final = (ParameterWish.BODY,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """How a handler is called."""

    wishes: tuple[ParameterWish, ...]
    decode: Decoder
    names: tuple[str, ...] = ()
    """Of the parameters, in this order, those of dependencies last; empty: they are given by place."""
    dependencies: tuple[Dependency, ...] = ()

    @property
    def transacted(self) -> bool:
        return ParameterWish.TRANSACTION in self.wishes

    def arguments(self, body: Any, message: Any, transaction: Transaction | None) -> tuple[Any, ...]:
        """A handler's arguments, in the order of its parameters."""
        if self.wishes == _BODY:
            return (body,)
        found = {
            ParameterWish.BODY: body,
            ParameterWish.MESSAGE: message,
            ParameterWish.TRANSACTION: transaction,
        }
        return tuple(found[wish] for wish in self.wishes)


def signature_of(function: Callable[..., Any]) -> Signature:
    """Of a handler for one message. Raises UsageError for one that cannot be called."""
    parameters = _parameters(function)
    kinds = [kind for _, kind in parameters]
    dependencies = _dependencies(function)
    wishes = tuple(
        ParameterWish.MESSAGE
        if kind is Message
        else ParameterWish.TRANSACTION
        if kind is Transaction
        else ParameterWish.BODY
        for kind in kinds
    )
    if wishes or not dependencies:
        _each_once(function, wishes, "the body, a Message, a Transaction")
    bodies = [kind for kind, wish in zip(kinds, wishes, strict=True) if wish is ParameterWish.BODY]
    return Signature(
        wishes=wishes,
        decode=decoder_for(bodies[0]) if bodies else decoder_for(bytes),
        names=_names(function, [*(name for name, _ in parameters), *dependencies], named=bool(dependencies)),
        dependencies=tuple(dependencies.values()),
    )


def batch_signature_of(function: Callable[..., Any]) -> Signature:
    """The signature of a batch handler: a list of bodies, a list of messages."""
    if _dependencies(function):
        raise UsageError(
            f"batch handler {name_of(function)}: expected no Depends(…), which is made once for each "
            "message, got one; open it in the function, or in the application's lifespan"
        )
    parameters = _parameters(function)
    kinds = [kind for _, kind in parameters]
    wishes: list[ParameterWish] = []
    inner: Any = None
    for kind in kinds:
        arguments = typing.get_args(kind)
        if typing.get_origin(kind) not in (list, Sequence) or len(arguments) != 1:
            raise UsageError(
                f"batch handler {name_of(function)}: expected parameters such as list[Order] or "
                f"list[Message], got {kind!r}"
            )
        if arguments[0] is Message:
            wishes.append(ParameterWish.MESSAGE)
        else:
            wishes.append(ParameterWish.BODY)
            inner = arguments[0]
    _each_once(function, wishes, "a list of bodies, a list of Messages")
    return Signature(
        wishes=tuple(wishes),
        decode=decoder_for(inner if ParameterWish.BODY in wishes else bytes),
        names=_names(function, [name for name, _ in parameters], named=False),
    )


def _parameters(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    """Name and annotation of each parameter that must be given, dependencies left out."""
    hints = hints_of("handler", function)
    found = inspect.signature(function).parameters
    refuse_defaults("handler", function, found)
    return [
        (parameter.name, _told(hints.get(parameter.name, inspect.Parameter.empty)))
        for parameter in found.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and parameter.default is parameter.empty
        and asked(hints.get(parameter.name)) is None
    ]


def _told(annotation: Any) -> Any:
    """Without what `Annotated` adds to what is no body, or to what pydantic cannot check."""
    if typing.get_origin(annotation) is not Annotated:
        return annotation
    kind = annotation.__origin__
    alone = kind in (Message, Transaction) or (isinstance(kind, type) and is_struct(kind))
    return kind if alone else annotation


def _dependencies(function: Callable[..., Any]) -> dict[str, Dependency]:
    """By parameter."""
    hints = hints_of("handler", function)
    return {
        name: dependency_of(wanted.dependency)
        for name in inspect.signature(function).parameters
        if (wanted := asked(hints.get(name))) is not None
    }


def _names(function: Callable[..., Any], given: Sequence[str], *, named: bool) -> tuple[str, ...]:
    """By which these are given; none where all of them have a place and need not be `named`."""
    parameters = inspect.signature(function).parameters
    if not named and all(parameters[name].kind is not Parameter.KEYWORD_ONLY for name in given):
        return ()
    if any(one.kind is one.POSITIONAL_ONLY for one in parameters.values()):
        raise UsageError(
            f"handler {name_of(function)}: expected parameters that can be named beside a Depends(…) or one "
            "after a *, got some before a /"
        )
    return tuple(given)


def _each_once(function: Callable[..., Any], wishes: Sequence[ParameterWish], expected: str) -> None:
    if not wishes or len(set(wishes)) != len(wishes):
        got = ", ".join(wish.value for wish in wishes) or "no parameter"
        raise UsageError(
            f"handler {name_of(function)}: expected as parameters {expected}, each at most once, got {got}"
        )
