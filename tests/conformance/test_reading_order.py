"""The way of the data is the order of the files: a module imports only from those before it."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "xtts"
ORDER = """
    kinds rules recipe syntax toml migrate amend
    english persian normalise text sentences
    utterances tree records layouts headers cache corpus soundcheck
    espeak demo_sentences demo
    audio mel lengths stats
    sizes shapes order memory page plan reserve progress signals material
    weight_norm inert tensorfile pickles names weights voices
    distances trigrams judges voiceprints evaluation
""".split()
BELOW = """
    cluster placement
    features store recordings batches division feed
    descriptions servers service
    stages optimizer step
    checkpoint lock journal bystander crew
    gauges tensorboard monitor
    assembly synthesis rendering
    train
    inputs pictures samples rigs runs
    tables charts runfolder stagecharts gallery report
    speak say savedmodel evaluate
    trial tune
    launch
""".split()  # after the line: these know TensorFlow, or what is made with it
LAST = ["doctor", "flags", "cli", "__main__"]
TOP = ("xtts.XttsError", "xtts.Mistake", "xtts.__version__")  # of the package itself


def imports(path):
    """The modules a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ([f"xtts.{alias.name}" for alias in node.names] if node.module == "xtts" else [node.module])


def test_every_module_has_its_place():
    """A new module is put into the order, here and in CONTRIBUTING.md."""
    assert {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"} == {*ORDER, *BELOW, *LAST}
    page = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for name in [*ORDER, *BELOW, "doctor", "flags", "cli"]:
        assert f"`{name}`" in page


@pytest.mark.parametrize("name", ORDER)
def test_a_module_imports_only_from_those_before_it(name):
    """Reading top to bottom, nothing is used before it was read, and nothing above the line knows TensorFlow."""
    before = ORDER[: ORDER.index(name)]
    for module in imports(PACKAGE / f"{name}.py"):
        assert not module.startswith("tensorflow")
        if module.startswith("xtts.") and module not in TOP:
            home = module.split(".")[1]
            assert home in before, f"{name} imports {module}"


@pytest.mark.parametrize("name", BELOW)
def test_a_module_after_the_line_imports_only_from_those_before_it(name):
    """After the line the order goes on: compat and the model, and then what trains it."""
    before = [*ORDER, "compat", "model", *BELOW[: BELOW.index(name)]]
    for module in imports(PACKAGE / f"{name}.py"):
        if module.startswith("xtts.") and module not in TOP:
            assert module.split(".")[1] in before, f"{name} imports {module}"


def test_compat_stands_alone():
    """compat imports nothing of the package but itself, so that anybody can take it along."""
    for path in (PACKAGE / "compat").glob("*.py"):
        for module in imports(path):
            assert not module.startswith("xtts.") or module.startswith("xtts.compat")
