"""Measures the time and memory of indexing and planning corpora of given numbers of utterances.

    python benchmarks/scaling.py plan,epoch 100000 1000000 10000000

Each figure is measured in a process of its own, in processor seconds: `index` reads the metadata of a corpus and opens
the file of every line for its header; `cached` reads it again, from the cache; `plan` plans as many lengths like
LJSpeech's; `epoch` is the order of one epoch; `features-SIZE` computes the GPT's features as workers do.
"""

import functools
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict

import numpy as np
from lengths import ljspeech_like
from peak import peak_bytes

from xtts.audio.wav import write_wav
from xtts.corpus import index as corpus
from xtts.corpus.utterances import rejection_table
from xtts.planning.plan import make_plan
from xtts.planning.sizes import SIZES
from xtts.recipe.loading import parse_recipe

FOLDER = 10_000  # files in one folder
HEADER = struct.pack("<I4s4sIHHIIHH4sI", 4446, b"WAVE", b"fmt ", 16, 1, 1, 22050, 44100, 2, 16, b"data", 4410)
WAV = b"RIFF" + HEADER + bytes(4410)  # a tenth of a second of silence
TEXT = "in being comparatively modern, said the {0:08d}th of them."


def make(root: Path, count: int) -> None:
    """A corpus in LJSpeech's layout, whose folders are links to the first: each file is found and opened separately."""
    first = root / "wavs" / "00000"
    first.mkdir(parents=True)
    for number in range(min(FOLDER, count)):
        path = first / f"{number:04d}.wav"
        path.write_bytes(WAV)
        os.utime(path, (10**9, 10**9))  # long ago, so that caches trust it
    for folder in range(1, -(-count // FOLDER)):
        (root / "wavs" / f"{folder:05d}").symlink_to(first, target_is_directory=True)
    with (root / "metadata.csv").open("w", encoding="utf-8") as lines:
        for number in range(count):
            folder, within = divmod(number, FOLDER)
            text = TEXT.format(number)
            lines.write(f"{folder:05d}/{within:04d}|{text}|{text}\n")


def index(root: str, count: int) -> float:
    began = time.process_time()
    found = corpus.read_corpus(root, cache=Path(root, "cache"))
    seconds = time.process_time() - began
    assert len(found.utterances) == count, rejection_table(found.rejected)
    return seconds


def planned(_root: str, count: int) -> float:
    text, mel = ljspeech_like(count)
    began = time.process_time()
    make_plan(parse_recipe("[run]\nname = 'benchmark'"), text, mel, 60).text()
    return time.process_time() - began


def epoch(_root: str, count: int) -> float:
    found = make_plan(parse_recipe("[run]\nname = 'benchmark'"), *ljspeech_like(count), 60)
    began = time.process_time()
    found.order.epoch(1)
    return time.process_time() - began


def features(root: str, count: int, size: str) -> float:
    """Compute the GPT's features, 16 recordings a batch, with the graph that workers of tf.data service are sent."""
    from xtts.audio.mel import MelSpec
    from xtts.model.codec import Codec
    from xtts.model.layers import variables_to_constants
    from xtts.model.mel import transform_for
    from xtts.pipeline.features import feature_functions, samples_for
    from xtts.pipeline.service.client import LocalFallback
    from xtts.recipe.schema import AudioSection

    audio, rows = AudioSection(), 16
    _, mel = ljspeech_like(count)
    reference, lines, random = 6 * audio.sample_rate, [], np.random.RandomState(0)
    for first in range(0, count, rows):
        own = mel[first : first + rows]
        samples = samples_for(4 * -(-int(own.max()) // 4), MelSpec.of(audio))
        waves, voices = [str(rows), str(samples)], [str(rows), str(reference)]
        for place, frames in enumerate(own, first):
            path, length = f"{root}/{place}.wav", int(frames) * audio.hop_length - 1
            write_wav(path, 0.1 * random.standard_normal(length), audio.sample_rate)
            waves += [path, str(length), "0", str(length)]
            voices += [path, str(length), "0", str(reference)]
        lines.append("\t".join(["0", *voices, *waves]))
    codec = variables_to_constants(Codec(SIZES[size].codec, audio.n_mels, random))
    make = feature_functions(audio, np.ones(audio.n_mels, np.float32), codec, transform_for("CPU"))
    fallback = LocalFallback(
        audio.sample_rate, {"codes": ("waves", make["codes"]), "reference": ("reference_waves", make["reference_mel"])}
    )
    assert fallback(lines[0]) is not None
    began = time.process_time()
    assert all(fallback(line) is not None for line in lines)
    seconds = time.process_time() - began
    fallback.close()
    return seconds


KINDS = {
    "index": index,
    "cached": index,
    "plan": planned,
    "epoch": epoch,
    **{f"features-{size}": functools.partial(features, size=size) for size in SIZES},
}


def measured(kind: str, root: Path, count: int) -> Dict[str, Any]:
    """One figure, measured in a process of its own."""
    command = [sys.executable, __file__, "--one", kind, str(root), str(count)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    found: Dict[str, Any] = json.loads(answer)
    print(found, file=sys.stderr)
    return found


def main() -> None:
    if sys.argv[1] == "--one":
        kind, root, count = sys.argv[2], sys.argv[3], int(sys.argv[4])
        seconds = KINDS[kind](root, count)
        print(json.dumps({"kind": kind, "utterances": count, "seconds": round(seconds, 3), "bytes": peak_bytes()}))
        return
    found, kinds = [], sys.argv[1].split(",")
    for count in map(int, sys.argv[2:]):
        with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", ".")) as folder:
            if "index" in kinds:
                make(Path(folder).resolve(), count)  # links to relative paths would be broken
            found += [measured(kind, Path(folder), count) for kind in kinds]
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
