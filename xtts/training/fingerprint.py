"""The fingerprint of a stage: everything its weights depend on, by name, stored with its checkpoints.

It is compared when the stage is run again. Which settings are part of it is declared in the recipe's schema
(`shapes_weights`).
"""

import json
from typing import Any, Dict, List, Mapping

import numpy as np

from xtts.files import json_digest
from xtts.planning.dataset import Dataset
from xtts.planning.plan import Plan
from xtts.recipe.defaults import resolve_defaults
from xtts.recipe.schema import Recipe, setting_names
from xtts.training.cluster.collectives import CollectiveError, Collectives
from xtts.training.stages import STAGES
from xtts.training.stages.stage import Stage, Tensors, tensor_digest

Fingerprint = Dict[str, Any]  # "section.name" of settings; other facts have names without a dot


def make_fingerprint(
    recipe: Recipe, stage: Stage, dataset: Dataset, plan: Plan, needed: Mapping[str, Tensors]
) -> Fingerprint:
    """Everything that a stage's weights depend on; except its number of steps, because a stage can be continued.

    `needed` has the weights of the stages that it needs.
    """
    found: Fingerprint = weight_settings(recipe, stage)
    found.update(_data_facts(stage, dataset, plan))
    found.update({f"the {name}": tensor_digest(tensors) for name, tensors in needed.items()})
    return found


def weight_settings(recipe: Recipe, stage: Stage) -> Dict[str, Any]:
    """The settings that a stage's weights depend on, without those of [train] that its own section overrides."""
    tables = resolve_defaults(recipe, is_published=False).as_tables()  # filled in already with published weights
    own = tables[stage.section] if stage.section != "train" else {}
    return {
        f"{section}.{name}": tables[section].get(name)
        for (section, name), field in setting_names().items()
        if stage.name in field.metadata["shapes_weights"] and not (section == "train" and name in own)
    }


def diff_fingerprints(before: Fingerprint, now: Fingerprint) -> List[str]:
    """What has changed, in a few words each.

    A setting that did not exist in an older release is taken to have had its default value; one that is no longer part
    of the fingerprint is ignored.
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
    """Raise unless all workers have the chief's recipe and data."""
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
    """The default values of the named settings, of a model that is trained from nothing."""
    tables = resolve_defaults(Recipe(), is_published=False).as_tables()
    settings = {name: name.split(".") for name in names if "." in name}
    return {name: tables[section].get(key) for name, (section, key) in settings.items()}
