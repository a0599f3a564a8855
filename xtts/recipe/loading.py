"""Load a recipe from TOML and command-line overrides, and write one back.

A `RecipeError` lists every mistake at once, each with its place, its key, what is wrong and what to write. What is
valid is defined in two places only: `fields.find_problem` for one setting, by the JSON schema that `schema.py` makes
from its classes, and `constraints.find_contradictions` for settings that exclude each other. This module applies both
to the tables of a file, where places are known, before attrs or cattrs are imported; cattrs then only converts types,
such as lists to tuples. The classes apply both when Python code builds them.
"""

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Literal, NamedTuple, Tuple, Union, cast

from xtts.recipe import fields
from xtts.recipe.constraints import find_contradictions
from xtts.recipe.lines import Key, RecipeError, RecipeProblem, dotted_key, key_lines, parse_toml

if TYPE_CHECKING:  # attrs and cattrs are imported only for a valid recipe: mistakes are reported sooner
    from xtts.recipe.schema import Recipe

SCHEMA_FILE = Path(__file__).with_name("schema.json")
LARGEST_FILE = 1_000_000  # bytes; a recipe is a page of text, and a larger file was named by mistake
Mistake = Tuple[Key, str]  # a key; what is wrong, and what to write


class Override(NamedTuple):
    """A setting given on the command line, which overrides the file."""

    flag: str  # as it was typed, for messages
    key: str  # dotted
    text: str  # typed by the field it sets; "none" unsets an optional one


def load_recipe(path: Union[str, Path], settings: Iterable[Override] = ()) -> "Recipe":
    """The recipe in a file, with overrides from the command line."""
    return parse_recipe(_read(Path(path)), settings, name=str(path))


def parse_recipe(text: str, settings: Iterable[Override] = (), name: str = "recipe.toml") -> "Recipe":
    """The recipe in a text. `name` is the file's name in messages; its stem is the default name of the run."""
    tables = parse_toml(text, name)
    if not tables:
        raise RecipeError([RecipeProblem(f"{name}:1", "recipe", "the file is empty; write a section, such as [train]")])
    flags: Dict[Key, str] = {}
    mistakes = list(_apply_overrides(tables, settings, flags))
    mistakes += _find_mistakes(tables)
    if mistakes:
        raise RecipeError(_with_places(mistakes, text, name, flags))
    tables.setdefault("run", {}).setdefault("name", _run_name(name))
    return _structure(tables)


def dump_recipe(recipe: "Recipe") -> str:
    """The recipe as TOML with every setting; `parse_recipe` reads it back equal."""
    import tomlkit

    return tomlkit.dumps(recipe.as_tables())


@lru_cache(maxsize=None)
def json_schema() -> Dict[str, Any]:
    """The JSON schema of a recipe that `schema.py` makes; read from its file, which needs no attrs."""
    return cast(Dict[str, Any], json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))


def _read(path: Path) -> str:
    """The text of a recipe file."""
    try:
        if path.is_dir():
            raise ValueError("this is a folder; name the recipe's file in it")
        if path.stat().st_size > LARGEST_FILE:
            raise ValueError("the file is too large for a recipe; name a TOML file")
        content = path.read_bytes()
    except FileNotFoundError:
        candidates = sorted(map(str, path.parent.glob("*.toml")))
        problem = f"there is no such file; {fields.did_you_mean(str(path), candidates, 'check the path')}"
        raise RecipeError([RecipeProblem(f"{path}:1", "recipe", problem)]) from None
    except OSError as error:
        raise RecipeError(
            [RecipeProblem(f"{path}:1", "recipe", f"{error.strerror}; make it a readable file")]
        ) from None
    except ValueError as error:
        raise RecipeError([RecipeProblem(f"{path}:1", "recipe", str(error))]) from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"byte {content[error.start]:#04x} is not UTF-8; save the file as UTF-8 text"
        raise RecipeError([RecipeProblem(f"{path}:{line}", "recipe", problem)]) from None


def _apply_overrides(tables: Dict[str, Any], settings: Iterable[Override], flags: Dict[Key, str]) -> Iterator[Mistake]:
    """Write the overrides into `tables`, and the flag that set each key into `flags`."""
    known = _all_fields()
    for flag, name, text in settings:
        key = tuple(name.split("."))
        flags[key] = flag
        if key not in known:
            yield key, _unknown_key(key)
            continue
        section, setting = key
        values = tables.setdefault(section, {})
        if not isinstance(values, dict):
            continue  # a mistake in the file, found with the others
        if text.lower() == "none" and "default" not in known[key]:
            values.pop(setting, None)
        else:
            values[setting] = fields.parse_flag(text, known[key])


def _find_mistakes(tables: Dict[str, Any]) -> List[Mistake]:
    """Every unknown key, every invalid value and every contradiction."""
    sections = json_schema()["properties"]
    mistakes: List[Mistake] = []
    valid: Dict[str, Dict[str, Any]] = {name: {} for name in sections}
    for (section, name), field in _all_fields().items():
        if "default" in field:
            valid[section][name] = field["default"]
    for name, values in tables.items():
        if name not in sections:
            mistakes.append(((name,), _unknown_key((name,))))
        elif not isinstance(values, dict):
            mistakes.append(((name,), f"{name} is a section, not a setting; write [{name}] on a line of its own"))
        else:
            for setting, value in values.items():
                field = sections[name]["properties"].get(setting)
                problem = _unknown_key((name, setting)) if field is None else fields.find_problem(value, field)
                if problem:
                    mistakes.append(((name, setting), problem))
                else:
                    valid[name][setting] = value

    invalid = {key for key, _ in mistakes}
    for keys, problem in find_contradictions(valid):
        if invalid.isdisjoint(keys):
            stated = [(section, setting) for section, setting in keys if setting in tables.get(section, {})]
            mistakes.append(((stated or keys)[0], problem))
    return mistakes


def _structure(tables: Dict[str, Any]) -> "Recipe":
    """The recipe of valid tables, without validating it again."""
    from attrs import validators

    from xtts.recipe.schema import Recipe

    with validators.disabled():
        return cast(Recipe, _converter().structure(tables, Recipe))


@lru_cache(maxsize=None)
def _converter() -> Any:
    from cattrs import Converter

    converter = Converter(forbid_extra_keys=True)
    words = Union[int, Literal["auto"]], Union[bool, Literal["auto"]], Union[bool, Literal["published"]]
    for either in words:  # valid as they are
        converter.register_structure_hook(either, lambda value, _type: value)
    one_or_several = Union[int, Tuple[int, ...], None]
    converter.register_structure_hook(
        one_or_several, lambda value, _type: tuple(value) if isinstance(value, list) else value
    )
    return converter


def _with_places(mistakes: Iterable[Mistake], text: str, name: str, flags: Dict[Key, str]) -> List[RecipeProblem]:
    """The mistakes with their places, those of flags first, then those of the file by line."""
    lines = key_lines(text)
    problems = []
    for key, problem in mistakes:
        line = next((lines[key[:depth]] for depth in range(len(key), 0, -1) if key[:depth] in lines), 1)
        order, place = (0, flags[key]) if key in flags else (line, f"{name}:{line}")
        problems.append((order, RecipeProblem(place, dotted_key(key), problem)))
    return [problem for _, problem in sorted(problems)]


def _unknown_key(key: Key) -> str:
    """The message for an unknown key, with a suggestion."""
    known = _all_fields()
    sections = [section for section, name in known if name == key[-1]]
    if sections:
        return f"unknown key; did you mean {sections[0]}.{key[-1]}?"
    if len(key) == 1:
        return f"unknown section; {fields.did_you_mean(key[0], json_schema()['properties'])}"
    same_section = [dotted_key(other) for other in known if other[0] == key[0]]
    return f"unknown key; {fields.did_you_mean(dotted_key(key), same_section or map(dotted_key, known))}"


def _all_fields() -> Dict[Key, fields.FieldSchema]:
    sections = json_schema()["properties"]
    return {(section, name): field for section in sections for name, field in sections[section]["properties"].items()}


def _run_name(path: str) -> str:
    """The name of a run after its recipe file: the stem, without characters that folder names should not have."""
    return re.sub(r"[^\w .+-]+", "-", Path(path).stem).lstrip(" .+-") or "run"
