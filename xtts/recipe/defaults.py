"""Defaults that depend on the weights a recipe starts from: published weights are fine-tuned as they were trained."""

from typing import Any, Dict, Tuple

import attrs

from xtts.recipe.schema import Recipe

# For settings that are unset: the value for models that are trained from nothing, and the value for published weights.
DEFAULTS: Dict[Tuple[str, str], Tuple[Any, Any]] = {
    ("text", "frontend"): ("xtts", "published"),
    ("data", "reference_from"): ("speaker", "utterance"),
    ("train", "weight_decay_on"): ("matrices", "published"),
}


def resolve_defaults(recipe: Recipe, is_published: bool) -> Recipe:
    """The recipe with these settings filled in. `is_published`: it starts from published weights."""
    for (section, name), values in DEFAULTS.items():
        own = getattr(recipe, section)
        if getattr(own, name) is None:
            recipe = attrs.evolve(recipe, **{section: attrs.evolve(own, **{name: values[is_published]})})
    data = recipe.data
    if data.reference_min_seconds is None and data.reference_from == "utterance":
        # A reference of its whole utterance would leave no code to learn from.
        recipe = attrs.evolve(recipe, data=attrs.evolve(data, reference_min_seconds=data.reference_seconds / 2))
    return recipe
