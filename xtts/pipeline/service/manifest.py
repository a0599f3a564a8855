"""Batches described: what is to be heard comes in; lines of text go out, and the graph that makes features of a line.

A line says for every row of a batch which samples of which file stand there. Lines are kept in files of `PAGE` each, in
a folder that workers see, named by the numbers of their batches: so a dataset is a range of numbers, the same however
long a run is. The graph has nothing of Python's in it: it is what workers of tf.data service run.
"""

import contextlib
import os
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Tuple

import tensorflow as tf

from xtts import files
from xtts.errors import XttsError
from xtts.pipeline.features import Function
from xtts.pipeline.recordings import RAW, Cuts, Recordings

Tensor = Any  # tf.Tensor; TensorFlow brings no types
Makes = Mapping[str, Tuple[str, Function]]  # name of a feature: of which waves it is made, and how

PAGE = 64  # lines of a file
COLUMNS = 4  # of a row: path, samples of the whole recording, where the cut starts, samples of the cut
BLANK = "\t0\t0\t0"
NOTHING = ["1", "4096", "", "0", "0", "0"]  # a row, its samples, and a blank one


class ManifestError(XttsError):
    """Descriptions that cannot be written."""


def manifest_line(number: int, cuts: Mapping[str, Cuts], recordings: Recordings, kept: Mapping[int, str]) -> str:
    """A batch on one line: its number, and for each of its waves rows, samples and four columns a row.

    `kept` are files to be read instead of recordings, by position.
    """
    fields = [str(number)]
    for name in sorted(cuts):
        wanted = cuts[name]
        fields += [str(wanted.rows), str(wanted.samples)]
        for row in range(wanted.rows):
            cut = wanted.of.get(row)
            if cut is None:
                fields.append(BLANK)
                continue
            path = kept.get(cut.position) or os.path.abspath(recordings.utterances[cut.position].path)  # noqa: PTH100
            fields.append(f"{path}\t{recordings.lengths.samples[cut.position]}\t{cut.start}\t{cut.samples}")
    return "\t".join(fields)


class ManifestWriter:
    """A folder of descriptions, written ahead of the workers and removed behind them."""

    def __init__(self, folder: Path, numbers: range, describe: Callable[[int], str]) -> None:
        """`describe` is called with each of the numbers, in their order, and once."""
        self.folder, self._numbers, self._describe = folder, numbers, describe
        self._written = numbers.start // PAGE  # pages before this one are there, or were
        self._kept = self._written

    def write(self, until: int) -> None:
        """See that every number below `until` has its line; past the last batch they are blank."""
        while self._written * PAGE < until:
            first = self._written * PAGE
            lines = [self._describe(one) if one in self._numbers else str(one) for one in range(first, first + PAGE)]
            self._put(page_name(self._written), "\n".join(lines))
            self._written += 1

    def forget(self, before: int) -> None:
        """Remove pages all of whose numbers are below `before`."""
        while (self._kept + 1) * PAGE <= before and self._kept < self._written:
            with contextlib.suppress(OSError):
                (self.folder / page_name(self._kept)).unlink()
            self._kept += 1

    def close(self) -> None:
        """Remove what is left."""
        self.forget(self._written * PAGE)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _put(self, name: str, text: str) -> None:
        try:
            files.write_bytes(self.folder / name, os.fsencode(text))
        except OSError as error:
            why = error.strerror or error
            raise ManifestError(
                f"{self.folder}: what data.service is to read cannot be written there ({why}); free some space, or name"
                " another run.folder"
            ) from None


def page_name(page: int) -> str:
    return f"{page:012d}.txt"


def service_dataset(numbers: range, folder: Path, sample_rate: int, makes: Makes) -> Any:
    """Batches of features, each under its number; one that cannot be read is left out. As a graph: see above."""
    named = tf.constant(os.fsencode(f"{folder.absolute()}/"))

    def batch(number: Tensor) -> Dict[str, Tensor]:
        name = tf.strings.join([named, tf.strings.as_string(number // PAGE, width=12, fill="0"), ".txt"])
        text = tf.strings.split(tf.io.read_file(name), "\n")[tf.cast(number % PAGE, tf.int32)]
        return {"number": number, **make_features(text, sample_rate, makes)}

    return tf.data.Dataset.range(numbers.start, numbers.stop).map(
        batch, num_parallel_calls=tf.data.experimental.AUTOTUNE
    )


def make_features(text: Tensor, sample_rate: int, makes: Makes) -> Dict[str, Tensor]:
    """The features of a line; of one that has only its number, blank ones."""
    fields = tf.strings.split(text, "\t")
    waves = {}
    place = tf.constant(1)
    for name in sorted({source for source, _ in makes.values()}):
        waves[name], place = _waves(fields, place, sample_rate)
    return {name: function(*waves[source]) for name, (source, function) in makes.items()}


def _waves(fields: Tensor, place: Tensor, sample_rate: int) -> Tuple[Tuple[Tensor, Tensor], Tensor]:
    """Waves [rows, samples] and their lengths [rows], which begin at a place among the fields; and the next place."""
    own = tf.cond(place < tf.size(fields), lambda: fields[place:], lambda: tf.constant(NOTHING))
    sizes = tf.strings.to_number(own[:2], tf.int32)
    length = 2 + COLUMNS * sizes[0]
    rows = tf.reshape(own[2:length], [-1, COLUMNS])
    counts = tf.strings.to_number(rows[:, 1:], tf.int32)

    def wave(row: Tuple[Tensor, Tensor]) -> Tensor:
        path, (whole, start, count) = row[0], tf.unstack(row[1])
        sound = tf.cond(count > 0, lambda: _sound(path, whole, sample_rate), lambda: tf.zeros([1]))
        heard = tf.gather(sound, (start + tf.range(count)) % tf.maximum(1, whole))
        return tf.pad(heard, [[0, sizes[1] - count]])

    spec = tf.TensorSpec([None], tf.float32)
    waves = tf.map_fn(wave, (rows[:, 0], counts), fn_output_signature=spec)
    return (tf.ensure_shape(waves, [None, None]), counts[:, 2]), place + length


def _sound(path: Tensor, whole: Tensor, sample_rate: int) -> Tensor:
    """All samples of a file, [whole], one channel; an error, by which the batch is left out, when it is another."""
    content = tf.io.read_file(path)

    def wav() -> Tensor:
        samples, rate = tf.audio.decode_wav(content)
        with tf.control_dependencies([tf.debugging.assert_equal(rate, sample_rate)]):
            return tf.reduce_mean(samples, axis=1)

    is_raw = tf.strings.regex_full_match(path, f"(?s).*\\{RAW}")
    sound = tf.cond(is_raw, lambda: tf.io.decode_raw(content, tf.float32), wav)
    with tf.control_dependencies([tf.debugging.assert_equal(tf.size(sound), whole)]):
        return tf.identity(sound)
