"""What a stage's weights depend on, as names and values: kept beside its checkpoints and compared when it is run again.

Which settings count is said by the settings themselves (`shapes_weights` in the recipe's schema).
"""

import json
from typing import Any, Dict, List, Mapping

import numpy as np

from xtts.files import json_digest
from xtts.planning.dataset import Dataset
from xtts.planning.plan import Plan
from xtts.recipe.schema import Recipe, setting_names
from xtts.training.cluster.collectives import CollectiveError, Collectives
from xtts.training.stages import STAGES
from xtts.training.stages.stage import Stage, Tensors, tensor_digest

Fingerprint = Dict[str, Any]  # "section.name" of settings; other facts have names without a dot


def make_fingerprint(
    recipe: Recipe, stage: Stage, dataset: Dataset, plan: Plan, needed: Mapping[str, Tensors]
) -> Fingerprint:
    """All that decides what a stage learns; not how long it learns, because a stage can always be continued.

    `needed` has the weights of the stages it builds on.
    """
    found: Fingerprint = weight_settings(recipe, stage)
    found.update(_data_facts(stage, dataset, plan))
    found.update({f"the {name}": tensor_digest(tensors) for name, tensors in needed.items()})
    return found


def weight_settings(recipe: Recipe, stage: Stage) -> Dict[str, Any]:
    """The settings that a stage's weights depend on; without those of [train] that its own section overrides."""
    tables = recipe.as_tables()
    own = tables[stage.section] if stage.section != "train" else {}
    return {
        f"{section}.{name}": tables[section].get(name)
        for (section, name), field in setting_names().items()
        if stage.name in field.metadata["shapes_weights"] and not (section == "train" and name in own)
    }


def diff_fingerprints(before: Fingerprint, now: Fingerprint) -> List[str]:
    """What has changed, in a few words each.

    A setting that an older release did not know had its default value; one that no longer counts is ignored.
    """
    found = []
    if before:
        before = {**_defaults(now), **before}
    for name in sorted({*now, *(name for name in before if "." not in name)}):
        old, new = before.get(name), now.get(name)
        if old != new:
            found.append(f"{name} {json.dumps(old)} -> {json.dumps(new)}" if "." in name else name)
    return found


def check_agreement(collectives: Collectives, recipe: Recipe, dataset: Dataset, plan: Plan) -> None:
    """Refuse to train with a chief whose recipe or data are others."""
    if collectives.cluster is None:
        return
    tables = recipe.as_tables()
    own: Fingerprint = {
        f"{section}.{name}": tables[section].get(name)
        for (section, name), field in setting_names().items()
        if not field.metadata["per_worker"]
    }
    for stage in STAGES.values():
        own.update(_data_facts(stage, dataset, plan))
    different = diff_fingerprints(collectives.broadcast_json(own), json.loads(json.dumps(own)))
    wrong = collectives.all_sum(np.array([float(bool(different))]))
    if different:
        raise CollectiveError(
            f"this worker would train something else than the chief: {', '.join(different)}; give both the same recipe"
            " and recordings"
        )
    if wrong.any():
        raise CollectiveError("another worker has another recipe or other recordings than the chief; it says which")


def _data_facts(stage: Stage, dataset: Dataset, plan: Plan) -> Fingerprint:
    recordings = [[one.id, one.samples, one.sample_rate] for one in dataset.train.corpus.utterances]
    return {
        "the recordings": json_digest(recordings),
        "the number of replicas": plan.order.workers,
        **stage.facts(dataset, plan),
    }


def _defaults(names: Fingerprint) -> Fingerprint:
    """The default values of settings of these names."""
    tables = Recipe().as_tables()
    settings = {name: name.split(".") for name in names if "." in name}
    return {name: tables[section].get(key) for name, (section, key) in settings.items()}
