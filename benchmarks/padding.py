"""Times an epoch of the GPT's steps for one way of padding, in a process of its own, once for each line it reads.

    python padding.py fixed|planned|relaxed

Lengths are LJSpeech's and the model is tiny: for each line every shape's step is measured once, on one thread, and
represents all batches of that shape.
"""

import json
import sys

import numpy as np
import tensorflow as tf
from lengths import ljspeech_like
from ways import CLOCKS, made, measure

from xtts.recipe.loading import parse_recipe
from xtts.training.placement import place_devices

WAYS = {
    "fixed": "pad_to_fixed_length = true",
    "planned": "shape_count = 8",
    "relaxed": 'shapes = "relaxed"',
}


def main(name):
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    text, mel = ljspeech_like(13_100)
    way = made(name, text, mel, place_devices(parse_recipe("[devices]\nbuffer_size = 50").devices), WAYS[name])
    kept = way.plan.layout.shape_of >= 0
    traces = sum(function.traces for function in way.steps.functions)
    print(json.dumps({"frames": int(mel[kept].sum()), "lost": int((~kept).sum()), "traces": traces}), flush=True)
    for _ in sys.stdin:
        way.seconds.clear()
        measure([way], 1)
        epoch = (np.array(way.seconds[0]) * way.batches[:, None]).sum(axis=0)
        print(json.dumps(dict(zip(("seconds", "processor"), epoch.tolist()))), flush=True)
    print(json.dumps({"clocks": CLOCKS}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
