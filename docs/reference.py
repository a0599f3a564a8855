"""Writes the reference from the code: `python docs/reference.py` makes settings.md and the pages in reference/.

Nothing is imported but what reads a recipe and what reads the command line; the rest is read as source text, so no
TensorFlow is needed, and the pages are the same on every Python.
"""

import argparse
import ast
import json
from pathlib import Path

from xtts.commands import main
from xtts.recipe import fields, loading
from xtts.recipe import myxtts as migrate

DOCS = Path(__file__).resolve().parent
PACKAGE = DOCS.parent / "xtts"
MADE = "Made by `python docs/reference.py` from {}; a test fails when it is stale."
ASIDE = {"warn", "say", "log", "_log", "event", "note", "_aside", "Left", "Unusable"}  # calls whose text is said to a user
LISTS = {"reasons", "advice"}  # what is appended to them is said too


def settings():
    """Every setting of a recipe."""
    lines = ["# Every setting", "", MADE.format("`xtts/recipe/schema.py`")]
    for section, schema in loading.json_schema()["properties"].items():
        lines += ["", f"## [{section}]", "", schema["description"], ""]
        lines += ["| setting | default | what it is | may be |", "|---|---|---|---|"]
        for name, kind in schema["properties"].items():
            default = f"`{json.dumps(kind['default'])}`" if "default" in kind else ""
            lines.append(f"| `{name}` | {default} | {kind['description']} | {fields.describe_field(kind)} |")
    return "\n".join(lines) + "\n"


def verbs():
    """Every verb with its arguments and flags."""
    lines = [
        "# Every verb",
        "",
        MADE.format("`xtts/commands/main.py`"),
        "",
        "`xtts VERB` and `python -m xtts VERB` are the same.",
    ]
    lines += [
        "The exit status is 0 when it was done, 1 when it could not be, 2 when what was typed or the recipe must be"
    ]
    lines += ["changed, and 130 after Ctrl-C."]
    for name, parser in _verbs(main._parser()):
        flags = [action for action in parser._actions if not isinstance(action, (argparse._HelpAction, _SUB))]
        lines += ["", f"## {name}", "", parser.description or ""]
        if flags:
            lines += ["", "| typed | what it is |", "|---|---|"]
            lines += [f"| {_typed(action)} | {_cell(_help(action))} |" for action in flags]
    return "\n".join(lines) + "\n"


_SUB = argparse._SubParsersAction


def _verbs(parser, before=""):
    """Each verb, and each deed of a verb that has several, with its parser."""
    for action in parser._actions:
        if isinstance(action, _SUB):
            for name, one in action.choices.items():
                deeds = list(_verbs(one, f"{before}{name} "))
                yield from deeds or [(f"{before}{name}", one)]


def _typed(action):
    value = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
    if not action.option_strings:
        return f"`[{value}]`" if action.nargs == "?" else f"`{value}`"
    takes = "" if action.nargs == 0 else f" {value}"
    return ", ".join(f"`{option}{takes}`" for option in action.option_strings)


def _help(action):
    choices = f"one of {', '.join(map(str, action.choices))}" if action.choices else ""
    return "; ".join(filter(None, [action.help, choices]))


def compat():
    """Every name of xtts.compat: its signature, and its docstring."""
    lines = ["# compat: every name", "", MADE.format("`xtts/compat/`"), ""]
    lines += [
        "`from xtts import compat`; it needs TensorFlow and nothing else of this package. What it is for is on the"
    ]
    lines += ["page [compat](../compat.md)."]
    exported = ast.literal_eval(_assigned(PACKAGE / "compat" / "__init__.py", "__all__"))
    for path in sorted((PACKAGE / "compat").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if getattr(node, "name", None) in exported:
                lines += ["", f"## {node.name}", "", "```python", _signature(text, node), "```", ""]
                lines += [*_docstring(node)]
                lines += [line for method in _methods(node) for line in _described(text, method)]
    return "\n".join(lines) + "\n"


def _assigned(path, name):
    text = path.read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return node.value
    raise KeyError(name)


def _signature(text, node):
    """The lines of a def or class from its name to its colon."""
    end = next(part.lineno for part in node.body)
    lines = text.splitlines()[node.lineno - 1 : max(node.lineno, end - 1)]
    return "\n".join(line[node.col_offset :] for line in lines).rstrip(":")


def _docstring(node):
    return (ast.get_docstring(node) or "").splitlines()


def _methods(node):
    if not isinstance(node, ast.ClassDef):
        return []
    return [part for part in node.body if isinstance(part, ast.FunctionDef) and not part.name.startswith("_")]


def _described(text, method):
    is_property = any(getattr(mark, "id", "") == "property" for mark in method.decorator_list)
    shown = (
        method.name
        if is_property
        else _signature(text, method)[len("def ") :].replace("self, ", "").replace("self", "")
    )
    return ["", f"- `{' '.join(shown.split())}`: {' '.join(_docstring(method))}"]


def messages():
    """Every sentence that the program may say of a mistake, by the module that says it."""
    lines = ["# Every message", "", MADE.format("the code"), ""]
    lines += [
        "What you may be told, by the module that says it; ⟨names⟩ stand for what is filled in. A message names the"
    ]
    lines += ["thing, the place and the remedy. Find yours by a few of its words."]
    for path in sorted(PACKAGE.rglob("*.py"), key=lambda path: path.relative_to(PACKAGE).as_posix()):
        found = _sentences(ast.parse(path.read_text(encoding="utf-8")), path.stem == "rules")
        if found:
            name = path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")
            lines += ["", f"## {name}", "", *(f"- {_code(sentence)}" for sentence in found)]
    return "\n".join(lines) + "\n"


def _sentences(tree, yields):
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            found += [(node.lineno, _text(part)) for part in node.exc.args]
        elif isinstance(node, ast.Call) and (_name(node.func) in ASIDE or _is_listed(node.func)):
            found += [(node.lineno, _text(part)) for part in node.args]
        elif yields and isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple):
            found += [(node.lineno, _text(part)) for part in node.value.elts]
    said = [text for _, text in sorted(found, key=lambda one: one[0]) if text.count(" ") > 2]
    return list(dict.fromkeys(said))


def _is_listed(function):
    return isinstance(function, ast.Attribute) and function.attr == "append" and _name(function.value) in LISTS


def _text(node):
    """A string as it stands in the source, what is filled in as ⟨name⟩; "" where there is none."""
    if isinstance(node, ast.Constant):
        return " ".join(node.value.split()) if isinstance(node.value, str) else ""
    if isinstance(node, ast.BinOp):
        return f"{_text(node.left)} {_text(node.right)}".strip()
    if not isinstance(node, ast.JoinedStr):
        return ""
    parts = [part.value if isinstance(part, ast.Constant) else f"⟨{_name(part.value)}⟩" for part in node.values]
    return " ".join("".join(parts).split())


def _name(node):
    """What an expression is called, as far as one word says it."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Call):
        return _name(node.args[0]) if node.args and not isinstance(node.args[0], ast.Constant) else _name(node.func)
    if isinstance(node, (ast.Subscript, ast.Starred)):
        return _name(node.value)
    return "…"


def _code(text):
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def myxtts():
    """Old keys and flags, and what they are now."""
    lines = ["# MyXTTS, old and new", "", MADE.format("`xtts/recipe/myxtts.py`"), ""]
    lines += ["What `xtts migrate config.yaml` does with each key. [Move from MyXTTS](../howto/migrate.md) shows it."]
    lines += ["", "## Taken over", "", "| YAML | recipe | values |", "|---|---|---|"]
    lines += ["| `data.metadata_train_file` | `data.train` | beside `data.dataset_path` |"]
    lines += [f"| `{old}` | `{taken.key}` | {taken.words} |" for old, taken in migrate.TAKEN.items()]
    lines += [
        "",
        "## Without a counterpart",
        "",
        "These are listed, not taken over.",
        "",
        "| YAML | why |",
        "|---|---|",
    ]
    for why, names in migrate.GONE.items():
        lines.append(f"| {', '.join(f'`{name}`' for name in names.split())} | {why} |")
    lines += ["", "## Flags of train_main.py", "", "| before | now |", "|---|---|"]
    lines += [f"| `{_cell(old)}` | {_cell(new)} |" for old, new in migrate.FLAGS.items()]
    return "\n".join(lines) + "\n"


def _cell(text):
    return text.replace("|", "\\|")


PAGES = {
    "settings.md": settings,
    "reference/verbs.md": verbs,
    "reference/messages.md": messages,
    "reference/compat.md": compat,
    "reference/myxtts.md": myxtts,
}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
