"""A package imports only from packages above it, and nothing above the line imports TensorFlow."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "xtts"
BASE = ["errors", "files", "formatting", "processes", "progress"]  # of the package itself; all may use them
ABOVE_TENSORFLOW = ["recipe", "text", "audio", "corpus", "planning", "weights"]
ORDER = [
    *ABOVE_TENSORFLOW,
    "compat",
    "model",
    "pipeline",
    "reporting",
    "training",
    "inference",
    "evaluation",
    "commands",
]
API = "api"  # the public functions; only the command line may use them, too
MAX_LINES = 400
MAX_MODULES = 12  # in a package, besides its __init__
LARGE_TABLES = ["corpus/demo/grammar.py"]  # data, not code


def imports(path, skip_lazy=False):
    """The modules that a file imports, with their line numbers."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "xtts":
            yield from ((f"xtts.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.lineno


def modules(package):
    return sorted((PACKAGE / package).rglob("*.py"))


def test_every_package_has_its_place():
    """Every package is listed in the order here and in the map of CONTRIBUTING.md."""
    found = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert found == set(ORDER)
    page = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for name in ORDER:
        assert f"`{name}/`" in page


@pytest.mark.parametrize("package", ORDER)
def test_a_package_imports_only_from_those_above_it(package):
    """Read from top to bottom, the packages use nothing that comes later."""
    allowed = {*BASE, *ORDER[: ORDER.index(package) + 1], *([API] if package == ORDER[-1] else [])}
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line} imports {module}"
        for path in modules(package)
        for module, line in imports(path)
        if module.startswith("xtts.") and module.split(".")[1] not in allowed and module != "xtts.__version__"
    ]
    assert not wrong


@pytest.mark.parametrize("package", ABOVE_TENSORFLOW)
def test_nothing_above_the_line_imports_tensorflow(package):
    """Planning a run works where TensorFlow is not installed."""
    assert not [path for path in modules(package) for module, _ in imports(path) if module.startswith("tensorflow")]


def test_compat_stands_alone():
    """compat imports nothing else of the package, so that it can be copied into other projects."""
    for path in modules("compat"):
        for module, _ in imports(path):
            assert not module.startswith("xtts.") or module.startswith("xtts.compat")


def test_packages_and_modules_are_small():
    """Packages have few modules, and modules few lines."""
    long = [path for path in PACKAGE.rglob("*.py") if len(path.read_text(encoding="utf-8").splitlines()) > MAX_LINES]
    assert [str(path.relative_to(PACKAGE)) for path in long] in ([], LARGE_TABLES)
    for folder in {path.parent for path in PACKAGE.rglob("*.py")}:
        inside = [path for path in folder.glob("*.py") if path.name not in ("__init__.py", "__main__.py")]
        assert len(inside) <= MAX_MODULES, folder
