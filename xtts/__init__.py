"""Train XTTS voice-cloning text-to-speech on TensorFlow 2.4 to 2.21, from one TOML recipe.

The public names are imported when they are first used: `import xtts` imports neither NumPy nor TensorFlow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, List

if TYPE_CHECKING:
    from xtts import compat as compat
    from xtts.api import evaluate as evaluate
    from xtts.api import export as export
    from xtts.api import plan as plan
    from xtts.api import train as train
    from xtts.errors import XttsError as XttsError
    from xtts.inference.synthesizer import Synthesizer as Synthesizer
    from xtts.inference.voices import Voice as Voice
    from xtts.recipe.loading import load_recipe as load_recipe
    from xtts.recipe.schema import Recipe as Recipe
    from xtts.weights.importing import import_checkpoint as import_checkpoint

__version__ = "0.1.0"

__all__ = [
    "Recipe",
    "Synthesizer",
    "Voice",
    "XttsError",
    "__version__",
    "compat",
    "evaluate",
    "export",
    "import_checkpoint",
    "load_recipe",
    "plan",
    "train",
]

_MODULES = {
    "Recipe": "recipe.schema",
    "load_recipe": "recipe.loading",
    "plan": "api",
    "train": "api",
    "Synthesizer": "inference.synthesizer",
    "Voice": "inference.voices",
    "evaluate": "api",
    "import_checkpoint": "weights.importing",
    "export": "api",
    "XttsError": "errors",
}


def __getattr__(name: str) -> Any:
    if name == "compat":
        return import_module("xtts.compat")
    if name not in _MODULES:
        raise AttributeError(f"module 'xtts' has no attribute {name!r}")
    value = getattr(import_module(f"xtts.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted({*globals(), *__all__})
