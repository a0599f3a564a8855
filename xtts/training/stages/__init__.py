"""The stages of training, one file each, which defines everything from the stage's recipe section to its samples.

To add a stage, add a file here, an entry in `STAGES`, and its section and name in the recipe's schema. Nothing in this
package imports TensorFlow before a stage is built, because runs are also planned where TensorFlow is not installed.
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
