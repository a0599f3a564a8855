"""Recipes as text: a TOML file and the command line's settings come in, a checked `Recipe` goes out, and back.

`load` finds every mistake before it says one: the `RecipeError` it raises holds them all, each with its place, its
key, what is wrong and what to write.
"""

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Literal, NamedTuple, Tuple, Union, cast

from xtts.recipe import fields
from xtts.recipe.constraints import find_contradictions
from xtts.recipe.lines import Key, RecipeError, RecipeProblem, dotted_key, key_lines, parse_toml

if TYPE_CHECKING:  # attrs and cattrs are imported once a recipe is sound: a mistake is answered at once
    from xtts.recipe.schema import Recipe

SCHEMA_FILE = Path(__file__).with_name("schema.json")
LARGEST_FILE = 1_000_000  # bytes; a recipe is a page of text, and what is larger was named by mistake
Mistake = Tuple[Key, str]  # a key, and what is wrong; what to write


class Override(NamedTuple):
    """One setting of the command line, which overrides the file's."""

    flag: str  # as it was typed, for messages
    key: str  # dotted
    text: str  # typed by the field it sets; "none" unsets an optional one


def load_recipe(path: Union[str, Path], settings: Iterable[Override] = ()) -> "Recipe":
    """The recipe in a file, with `settings` laid over it."""
    return parse_recipe(_read(Path(path)), settings, name=str(path))


def parse_recipe(text: str, settings: Iterable[Override] = (), name: str = "recipe.toml") -> "Recipe":
    """The recipe in a text. `name` is what messages call it, and its stem what the run is called by default."""
    tables = parse_toml(text, name)
    if not tables:
        raise RecipeError(
            [RecipeProblem(f"{name}:1", "recipe", "the file says nothing; write a section, such as [train]")]
        )
    flags: Dict[Key, str] = {}
    mistakes = list(_lay_over(tables, settings, flags))
    mistakes += _check(tables)
    if mistakes:
        raise RecipeError(_placed(mistakes, text, name, flags))
    tables.setdefault("run", {}).setdefault("name", _run_name(name))
    return _structure(tables)


def dump_recipe(recipe: "Recipe") -> str:
    """The recipe as TOML, every setting stated; `loads` reads it back equal."""
    import tomlkit

    return tomlkit.dumps(recipe.as_tables())


def recipe_digest(recipe: "Recipe") -> str:
    """A name for what the recipe says: the same on every Python, and however its file was ordered."""
    import hashlib

    canonical = json.dumps(recipe.as_tables(), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


@lru_cache(maxsize=None)
def json_schema() -> Dict[str, Any]:
    """The JSON schema of a recipe, as recipe.py makes it; read from its file, which is quicker than making it."""
    return cast(Dict[str, Any], json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))


def _read(path: Path) -> str:
    """The text of a recipe file, or a RecipeError that says why there is none."""
    try:
        if path.is_dir():
            raise ValueError("this is a folder; name the recipe's file in it")
        if path.stat().st_size > LARGEST_FILE:
            raise ValueError("the file is too large for a recipe; name a TOML file")
        content = path.read_bytes()
    except FileNotFoundError:
        beside = sorted(map(str, path.parent.glob("*.toml")))
        what = f"there is no such file; {fields.did_you_mean(str(path), beside, 'check the path')}"
        raise RecipeError([RecipeProblem(f"{path}:1", "recipe", what)]) from None
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
        what = f"byte {content[error.start]:#04x} is not UTF-8; save the file as UTF-8 text"
        raise RecipeError([RecipeProblem(f"{path}:{line}", "recipe", what)]) from None


def _lay_over(tables: Dict[str, Any], settings: Iterable[Override], flags: Dict[Key, str]) -> Iterator[Mistake]:
    """Write the settings into `tables`, and the flag each key was set by into `flags`."""
    known = _known()
    for flag, name, text in settings:
        key = tuple(name.split("."))
        flags[key] = flag
        if key not in known:
            yield key, _unknown(key)
            continue
        section, setting = key
        values = tables.setdefault(section, {})
        if not isinstance(values, dict):
            continue  # the file's mistake, found with the others
        if text.lower() == "none" and "default" not in known[key]:
            values.pop(setting, None)
        else:
            values[setting] = fields.parse_flag(text, known[key])


def _check(tables: Dict[str, Any]) -> List[Mistake]:
    """Every key that is unknown, every value that is not of its kind, every pair that cannot stand together."""
    sections = json_schema()["properties"]
    mistakes: List[Mistake] = []
    sound = {name: {key: kind["default"] for key, kind in _kinds(name) if "default" in kind} for name in sections}
    for name, values in tables.items():
        if name not in sections:
            mistakes.append(((name,), _unknown((name,))))
        elif not isinstance(values, dict):
            mistakes.append(((name,), f"{name} is a section, not a setting; write [{name}] on a line of its own"))
        else:
            for setting, value in values.items():
                kind = sections[name]["properties"].get(setting)
                problem = _unknown((name, setting)) if kind is None else fields.find_problem(value, kind)
                if problem:
                    mistakes.append(((name, setting), problem))
                else:
                    sound[name][setting] = value

    wrong = {key for key, _ in mistakes}
    for keys, problem in find_contradictions(sound):
        if wrong.isdisjoint(keys):
            stated = [(section, setting) for section, setting in keys if setting in tables.get(section, {})]
            mistakes.append(((stated or keys)[0], problem))
    return mistakes


def _structure(tables: Dict[str, Any]) -> "Recipe":
    """The recipe of tables that were checked, and are not checked again."""
    from attrs import validators

    from xtts.recipe.schema import Recipe

    with validators.disabled():
        return cast(Recipe, _converter().structure(tables, Recipe))


@lru_cache(maxsize=None)
def _converter() -> Any:
    from cattrs import Converter

    converter = Converter(forbid_extra_keys=True)
    for either in (Union[int, Literal["auto"]], Union[bool, Literal["auto"]]):  # TOML's types tell them apart
        converter.register_structure_hook(either, lambda value, _type: value)
    one_or_several = Union[int, Tuple[int, ...], None]
    converter.register_structure_hook(
        one_or_several, lambda value, _type: tuple(value) if isinstance(value, list) else value
    )
    return converter


def _placed(mistakes: Iterable[Mistake], text: str, name: str, flags: Dict[Key, str]) -> List[RecipeProblem]:
    """The mistakes with their places: those of flags first, then those of the file by line."""
    lines = key_lines(text)
    problems = []
    for key, what in mistakes:
        line = next((lines[key[:depth]] for depth in range(len(key), 0, -1) if key[:depth] in lines), 1)
        order, place = (0, flags[key]) if key in flags else (line, f"{name}:{line}")
        problems.append((order, RecipeProblem(place, dotted_key(key), what)))
    return [problem for _, problem in sorted(problems)]


def _unknown(key: Key) -> str:
    """What to say of a key that no recipe has."""
    known = _known()
    homes = [section for section, name in known if name == key[-1]]
    if homes:
        return f"unknown key; did you mean {homes[0]}.{key[-1]}?"
    if len(key) == 1:
        return f"unknown section; {fields.did_you_mean(key[0], json_schema()['properties'])}"
    beside = [dotted_key(other) for other in known if other[0] == key[0]]
    return f"unknown key; {fields.did_you_mean(dotted_key(key), beside or map(dotted_key, known))}"


def _known() -> Dict[Key, fields.Kind]:
    return {(section, name): kind for section in json_schema()["properties"] for name, kind in _kinds(section)}


def _kinds(section: str) -> Iterable[Tuple[str, fields.Kind]]:
    return cast(Dict[str, fields.Kind], json_schema()["properties"][section]["properties"]).items()


def _run_name(path: str) -> str:
    """What a run is called after its recipe's file: its stem, as far as a folder may be called that."""
    return re.sub(r"[^\w .+-]+", "-", Path(path).stem).lstrip(" .+-") or "run"
