"""Stages of training, one file each: everything a stage is, from the recipe's section it reads to its samples.

A new stage is a file here, an entry in `STAGES`, and its section and name in the recipe's schema. Nothing in this
package imports TensorFlow before a stage is built, because a run is also planned where TensorFlow is missing.
"""

from typing import Dict, List

from xtts.recipe.schema import Recipe
from xtts.training.stages.codec import CodecStage
from xtts.training.stages.gpt import GptStage
from xtts.training.stages.stage import Stage

STAGES: Dict[str, Stage] = {stage.name: stage for stage in (CodecStage(), GptStage())}  # in the order they train in


def stages_of(recipe: Recipe) -> List[Stage]:
    """The stages that a recipe trains, in the order they train in."""
    return [stage for name, stage in STAGES.items() if name in recipe.run.stages]
