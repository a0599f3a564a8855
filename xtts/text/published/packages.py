"""Packages that a language needs: imported when a text needs them, and named in a sentence when they are missing."""

import importlib
import sys
from typing import Any

from xtts.errors import XttsError

NAMES = {  # of a language, in messages
    **{"en": "English", "es": "Spanish", "fr": "French", "de": "German", "it": "Italian", "pt": "Portuguese"},
    **{"pl": "Polish", "tr": "Turkish", "ru": "Russian", "nl": "Dutch", "cs": "Czech", "ar": "Arabic"},
    **{"zh": "Chinese", "hu": "Hungarian", "ko": "Korean", "ja": "Japanese", "hi": "Hindi"},
}
# cutlet needs mojimoji, which has no wheels for these Pythons; its source needs a C++ compiler.
COMPILED_SINCE = (3, 13)


class PackageError(XttsError):
    """A package that a language needs is missing, and how to install it."""


def import_package(module: str, package: str, language: str, needed_for: str) -> Any:
    """The module, or a PackageError that names its package."""
    try:
        return importlib.import_module(module)
    except ImportError:
        pass
    remedy = "pip install 'xtts[languages]'"
    if package == "cutlet" and sys.version_info >= COMPILED_SINCE:
        remedy = "pip install cutlet unidic-lite, which needs a C++ compiler on this Python, or use Python 3.8 to 3.12"
    raise PackageError(
        f"{NAMES[language]}: the published text front end needs the package {package} {needed_for}; run: {remedy}"
    )
