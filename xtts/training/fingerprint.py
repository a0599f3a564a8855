"""What a stage's weights were made from: a recipe and its material come in; settings and digests go out, and what of
them has changed since.
"""

import json
from typing import Any, Dict, List, Mapping, Tuple

import numpy as np

from xtts.files import json_digest
from xtts.planning.dataset import Dataset
from xtts.planning.plan import Plan
from xtts.recipe.schema import Recipe
from xtts.training.cluster.collectives import CollectiveError, Collectives

Fingerprint = Dict[str, Any]
Names = Mapping[str, Tuple[str, ...]]

SHARED: Names = {  # settings that every stage depends on
    "run": ("seed",),
    "data": ("train", "val", "validation_share", "format", "language", "features"),
    "demo": ("minutes", "voices", "languages", "vocabulary"),
    "audio": ("sample_rate", "n_fft", "win_length", "hop_length", "n_mels", "fmin", "fmax"),
    "model": ("size", "weights"),
    "train": (
        "gradient_accumulation_steps",
        "learning_rate",
        "schedule",
        "warmup_steps",
        "weight_decay",
        "clip_norm",
        "precision",
    ),
}
OWN: Mapping[str, Names] = {
    "codec": {"codec": ("learning_rate", "batch_size", "segment_frames", "commitment")},
    "gpt": {
        "data": ("shapes", "shape_count", "max_text_length", "max_mel_frames", "reference_seconds"),
        "text": ("tokenizer", "vocab", "vocab_size"),
        "train": ("batch_size", "dropout", "ema_decay"),
    },
}

APART = {  # settings in which workers may differ: where things are, and who they are
    "run": ("folder",),
    "data": ("train", "val", "workers"),
    "model": ("weights",),
    "text": ("vocab",),
    "devices": ("buffer_size", "model_start_delay"),
    "cluster": ("workers", "index", "slurm", "port", "patience", "restarts"),
}


def make_fingerprint(recipe: Recipe, stage: str, dataset: Dataset, plan: Plan, codec: str = "") -> Fingerprint:
    """Everything that decides what a stage learns. How long it does is not among it: a stage can always go on."""
    tables = recipe.as_tables()
    found: Fingerprint = {
        f"{section}.{name}": tables[section].get(name)
        for names in (SHARED, OWN[stage])
        for section, some in names.items()
        for name in some
    }
    if recipe.codec.learning_rate is not None and stage == "codec":
        del found["train.learning_rate"]  # which is the GPT's alone then
    found["the recordings"] = json_digest(
        [[one.id, one.samples, one.sample_rate] for one in dataset.train.corpus.utterances]
    )
    found["the number of replicas"] = plan.order.workers
    if stage == "gpt":
        spoken = [[one.text, one.speaker, one.language] for one in dataset.train.corpus.utterances]
        found.update({"the texts": json_digest(spoken), "the tokenizer": dataset.tokenizer.digest()})
        found.update({"the order of batches": plan.order.digest(), "the codec": codec})
    return found


def diff_fingerprints(before: Fingerprint, now: Fingerprint) -> List[str]:
    """What is not as it was, a few words for each.

    A setting that was not there yet was as its default is; one that is there no longer decides nothing.
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
    """Refuse to train with a chief that would train something else."""
    if collectives.cluster is None:
        return
    tables = recipe.as_tables()
    own: Fingerprint = {
        f"{section}.{name}": value
        for section, table in tables.items()
        for name, value in table.items()
        if name not in APART.get(section, ())
    }
    about = make_fingerprint(recipe, "gpt", dataset, plan)
    own.update({name: value for name, value in about.items() if "." not in name})
    different = diff_fingerprints(collectives.broadcast_json(own), json.loads(json.dumps(own)))
    wrong = collectives.all_sum(np.array([float(bool(different))]))
    if different:
        raise CollectiveError(
            f"this worker would train something else than the chief: {', '.join(different)}; give both the same recipe"
            " and recordings"
        )
    if wrong.any():
        raise CollectiveError("another worker has another recipe or other recordings than the chief; it says which")


def _defaults(names: Fingerprint) -> Fingerprint:
    """What a recipe that says nothing has for settings of these names."""
    tables = Recipe().as_tables()
    settings = {name: name.split(".") for name in names if "." in name}
    return {name: tables[section].get(key) for name, (section, key) in settings.items()}
