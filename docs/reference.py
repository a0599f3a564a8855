"""Write the reference pages from the code: `python docs/reference.py` makes settings.md and the pages in reference/.

Only the modules that parse recipes and the command line are imported; docstrings and signatures are read from the
source. So TensorFlow is not needed, and the pages are the same on every Python.
"""

import argparse
import ast
import json
import re
from pathlib import Path

from xtts.commands import main
from xtts.recipe import fields, loading
from xtts.recipe import myxtts as migrate

DOCS = Path(__file__).resolve().parent
PACKAGE = DOCS.parent / "xtts"
MADE = "Generated from {} by `python docs/reference.py`; a test fails when it is out of date."


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
    lines = ["# Every verb", "", MADE.format("`xtts/commands/`"), ""]
    lines += [
        "`xtts VERB` and `python -m xtts VERB` are the same. The exit status is 0 on success, 1 when it could not"
    ]
    lines += ["be done, 2 when what was typed or the recipe must be changed, and 130 after Ctrl-C. Standard output has"]
    lines += ["the result; progress and notes go to standard error."]
    for name, parser in _verbs(main.make_parser()):
        flags = [action for action in parser._actions if not isinstance(action, (argparse._HelpAction, _SUB))]
        lines += ["", f"## {name}", "", parser.description or ""]
        if flags:
            lines += ["", "| argument | meaning |", "|---|---|"]
            lines += [f"| {_typed(action)} | {_cell(_help(action))} |" for action in flags]
    return "\n".join(lines) + "\n"


_SUB = argparse._SubParsersAction


def _verbs(parser, before=""):
    """Each verb, or each subcommand of a verb that has several, with its parser."""
    for action in parser._actions:
        if isinstance(action, _SUB):
            for name, one in action.choices.items():
                subcommands = list(_verbs(one, f"{before}{name} "))
                yield from subcommands or [(f"{before}{name}", one)]


def _typed(action):
    value = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
    if not action.option_strings:
        return f"`[{value}]`" if action.nargs == "?" else f"`{value}`"
    takes = "" if action.nargs == 0 else f" {value}"
    return ", ".join(f"`{option}{takes}`" for option in action.option_strings)


def _help(action):
    choices = f"one of {', '.join(map(str, action.choices))}" if action.choices else ""
    return "; ".join(filter(None, [action.help, choices]))


def api():
    """The public names of the package: signature, docstring and an example."""
    lines = ["# Python API", "", MADE.format("`xtts/__init__.py` and `docs/reference/api_example.py`"), ""]
    lines += ["`import xtts` is cheap: each name is imported when it is first used, and NumPy and TensorFlow with the"]
    lines += ["first name that needs them. The examples follow on each other, and are run by a test."]
    examples, introduction = _examples()
    lines += ["", "```python", introduction, "```"]
    modules = ast.literal_eval(_assigned(PACKAGE / "__init__.py", "_MODULES"))
    for name, example in examples.items():
        lines += ["", f"## {name}", ""]
        lines += _described_name(modules[name], name) if name in modules else [OTHER_NAMES[name]]
        lines += ["", "```python", example, "```"]
    return "\n".join(lines) + "\n"


OTHER_NAMES = {
    "compat": "One API over TensorFlow 2.4 to 2.21: see [compat](../compat.md) and [every name of it](compat.md).",
    "__version__": "The version of this package, as a string.",
}


def _examples():
    """The example of each name: the lines below `# name` in api_example.py; and what stands before the first."""
    text = (DOCS / "reference" / "api_example.py").read_text(encoding="utf-8")
    introduction, *parts = re.split(r"^# (\w+)\n", text.partition('"""\n')[2], flags=re.MULTILINE)
    return {name: part.strip() for name, part in zip(parts[::2], parts[1::2])}, introduction.strip()


def _described_name(module, name):
    """Signature, docstring and public methods of a class or function."""
    text = (PACKAGE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    node = next(node for node in ast.parse(text).body if getattr(node, "name", None) == name)
    return ["```python", _signature(text, node), "```", "", *_docstring(node), *_method_list(text, node)]


def _method_list(text, node):
    lines = [line for method in _methods(node) for line in _described(text, method)]
    return ["", *lines] if lines else []


def compat():
    """Every name of xtts.compat: its signature, and its docstring."""
    lines = ["# compat: every name", "", MADE.format("`xtts/compat/`"), ""]
    lines += [
        "`from xtts import compat` needs TensorFlow and nothing else of this package. What it is for is described"
    ]
    lines += ["in [compat](../compat.md)."]
    exported = ast.literal_eval(_assigned(PACKAGE / "compat" / "__init__.py", "__all__"))
    for path in sorted((PACKAGE / "compat").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if getattr(node, "name", None) in exported:
                lines += ["", f"## {node.name}", "", "```python", _signature(text, node), "```", ""]
                lines += [*_docstring(node), *_method_list(text, node)]
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
    """A method in one line: its signature without `self`, and its docstring."""
    shown = method.name
    if not any(getattr(mark, "id", "") == "property" for mark in method.decorator_list):
        shown = " ".join(_signature(text, method)[len("def ") :].split())
        shown = re.sub(r"\((self|cls)(, )?", "(", shown.replace("( ", "(").replace(" )", ")"))
    return [f"- `{shown}`: {' '.join(_docstring(method))}"]


def myxtts():
    """Old keys and flags, and what they are now."""
    lines = ["# MyXTTS, old and new", "", MADE.format("`xtts/recipe/myxtts.py`"), ""]
    lines += ["What `xtts migrate config.yaml` does with each key. How to: [Move from MyXTTS](../howto/migrate.md)."]
    lines += ["", "## Converted", "", "| YAML | recipe | values |", "|---|---|---|"]
    lines += ["| `data.metadata_train_file` | `data.train` | beside `data.dataset_path` |"]
    lines += [f"| `{old}` | `{taken.key}` | {taken.words} |" for old, taken in migrate.TAKEN.items()]
    lines += [
        "",
        "## Without a counterpart",
        "",
        "`xtts migrate` lists these and does not convert them.",
        "",
        "| YAML | reason |",
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
    "reference/api.md": api,
    "reference/compat.md": compat,
    "reference/myxtts.md": myxtts,
}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
