"""How a setting of the recipe is declared: as a field of its section, with limits and metadata."""

from typing import Any, Dict, Literal, Tuple, Union, get_args, get_origin

import attrs

from xtts.recipe import fields

COUNT: Dict[str, Any] = {"minimum": 1}
AMOUNT: Dict[str, Any] = {"minimum": 0}
SHARE: Dict[str, Any] = {"minimum": 0, "maximum": 1}
POSITIVE: Dict[str, Any] = {"exclusiveMinimum": 0}
SEVERAL: Dict[str, Any] = {"minItems": 1, "uniqueItems": True}
GPU: Dict[str, Any] = {"type": "integer", **AMOUNT}
GPUS: Dict[str, Any] = {**AMOUNT, "anyOf": [GPU, {"type": "array", "items": GPU, **SEVERAL}]}
Auto = Literal["auto"]
StageName = Literal["codec", "gpt"]
ALL_STAGES: Tuple[StageName, ...] = get_args(StageName)
CODEC: Tuple[StageName, ...] = ("codec",)
GPT: Tuple[StageName, ...] = ("gpt",)


def setting(
    default: Any, help: str, shapes_weights: Tuple[StageName, ...] = ALL_STAGES, per_worker: bool = False, **limits: Any
) -> Any:
    """A field of a section: its default, its line of help, and its limits as keywords of JSON schema.

    `shapes_weights` names the stages whose weights depend on it, so that they must be trained again when it changes.
    The default is all of them, so that a new setting cannot be forgotten. `per_worker`: workers of one cluster may
    differ in it, because it says where things are or who a worker is.
    """
    metadata = {"help": help, "limits": limits, "shapes_weights": shapes_weights, "per_worker": per_worker}
    return attrs.field(default=default, validator=_validate, metadata=metadata)


def run_setting(default: Any, help: str, **more: Any) -> Any:
    """A setting that does not affect weights: the length of a run, its speed, its devices, and what is reported."""
    return setting(default, help, shapes_weights=(), **more)


def field_schema(field: "attrs.Attribute[Any]") -> Dict[str, Any]:
    """The JSON schema of a field: its type and limits."""
    return {**_type_schema(field.type), **field.metadata["limits"]}


def _type_schema(type_: Any) -> Dict[str, Any]:
    if get_origin(type_) is tuple:
        return {"type": "array", "items": _type_schema(get_args(type_)[0])}
    if get_origin(type_) is Literal:
        return {"enum": list(get_args(type_))}
    if get_origin(type_) is Union:
        options = [_type_schema(option) for option in get_args(type_) if option is not type(None)]
        return options[0] if len(options) == 1 else {"anyOf": options}
    return {"type": {bool: "boolean", int: "integer", float: "number", str: "string"}[type_]}


def _validate(_section: Any, field: "attrs.Attribute[Any]", value: Any) -> None:
    problem = None if value is None and field.default is None else fields.find_problem(value, field_schema(field))
    if problem:
        raise ValueError(f"{field.name}: {problem}")
