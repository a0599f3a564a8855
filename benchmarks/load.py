"""Measure loading a full-size import, in a process of its own.

    python load.py write FOLDER [SIZE]
    python load.py read|load FOLDER

`write` makes an import's folder with random weights, without TensorFlow. `load` loads it, and `read` only reads its
file into memory; both print one JSON line: wall and processor seconds, the size of the file in bytes, and the growth in
bytes of the peak resident memory after TensorFlow has been imported.
"""

import json
import sys
import time
from pathlib import Path

from peak import peak_bytes

sys.path.insert(0, str(Path(__file__).parent.parent))

TEXT_TOKENS = 6681  # of XTTS-v2


def write(folder, size):
    import numpy as np

    from xtts.planning.sizes import SIZES
    from xtts.text.tokenizer import CharacterTokenizer
    from xtts.weights.layout import ModelDescription, tensor_shapes
    from xtts.weights.model_folder import write_model_folder

    model = ModelDescription(SIZES[size], TEXT_TOKENS)
    random = np.random.default_rng(0)
    tensors = {name: random.standard_normal(shape, np.float32) for name, shape in tensor_shapes(model).items()}
    write_model_folder(folder, model, tensors)
    CharacterTokenizer(["en"], "abcdefghijklmnopqrstuvwxyz,.!?").save(folder / "vocab.json")


def measured(way, folder):
    import tensorflow as tf

    from xtts.inference.synthesizer import Synthesizer

    tf.zeros([1])  # TensorFlow starts its devices and threads at the first operation
    file = folder / "model.safetensors"
    before, start, worked = peak_bytes(), time.perf_counter(), time.process_time()
    kept = Synthesizer.load(folder) if way == "load" else file.read_bytes()
    figures = {
        "seconds": time.perf_counter() - start,
        "processor": time.process_time() - worked,
        "growth": peak_bytes() - before,
        "file": file.stat().st_size,
    }
    del kept
    return figures


def main(way, folder, size="v2"):
    if way == "write":
        write(Path(folder), size)
    else:
        print(json.dumps(measured(way, Path(folder))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
