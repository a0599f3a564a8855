"""What the public implementation makes of sentences and paragraphs, and the packages that its languages need."""

import importlib
import json
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden" / "published"
VOCAB = FOLDER / "vocab.json"
NEEDED = {"zh-cn": ["pypinyin"], "ko": ["hangul_romanize"], "ja": ["cutlet", "unidic_lite"]}
LANGUAGES = "en es fr de it pt pl tr ru nl cs ar zh-cn hu ko ja hi".split()


def lines(name):
    """The objects of a file, one a line."""
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def of_language(name, language):
    return [line for line in lines(name) if line["language"] == language]


def missing_packages(language, *more):
    """The packages that a language needs and that are not installed, as on Pythons for which they have no wheels."""
    return [name for name in ["num2words", *NEEDED.get(language, ()), *more] if not _is_installed(name)]


def _is_installed(name):
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True
