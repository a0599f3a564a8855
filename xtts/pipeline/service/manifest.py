"""The manifest of a tf.data service: batches described as lines of text, and the graph that reads a line.

A line gives the file and samples of every row of a batch. Lines are kept in files of `LINES_PER_FILE`, in a folder that
workers see, named by batch numbers. A dataset is then a range of numbers, the same however long a run is. The graph
contains no Python: workers of tf.data service run it in C++.
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
Makes = Mapping[str, Tuple[str, Function]]  # feature name: the waves it is computed from, and the function

LINES_PER_FILE = 64
COLUMNS = 4  # of a row: path, samples of the whole recording, where the cut starts, samples of the cut
BLANK_ROW = "\t0\t0\t0"
BLANK_BATCH = ["1", "4096", "", "0", "0", "0"]  # rows, samples, and the columns of a blank row


class ManifestError(XttsError):
    """A manifest that cannot be written."""


def manifest_line(number: int, cuts: Mapping[str, Cuts], recordings: Recordings, copies: Mapping[int, str]) -> str:
    """A batch on one line: its number, then for each of its waves the rows, the samples and four columns for each row.

    `copies` are files to be read instead of the recordings, by position.
    """
    fields = [str(number)]
    for name in sorted(cuts):
        wanted = cuts[name]
        fields += [str(wanted.rows), str(wanted.samples)]
        for row in range(wanted.rows):
            cut = wanted.by_row.get(row)
            if cut is None:
                fields.append(BLANK_ROW)
                continue
            path = copies.get(cut.position) or os.path.abspath(recordings.utterances[cut.position].path)  # noqa: PTH100
            fields.append(f"{path}\t{recordings.lengths.samples[cut.position]}\t{cut.start}\t{cut.samples}")
    return "\t".join(fields)


class ManifestWriter:
    """Writes the manifest ahead of the workers, and removes files that they no longer need."""

    def __init__(self, folder: Path, numbers: range, describe: Callable[[int], str]) -> None:
        """`describe` is called once with each of the numbers, in ascending order."""
        self.folder = folder
        self._numbers = numbers
        self._describe = describe
        self._written = numbers.start // LINES_PER_FILE  # files before this one have been written
        self._removed = self._written  # files before this one have been removed

    def write(self, until: int) -> None:
        """Write the lines of all numbers below `until`; past the last batch lines are blank."""
        while self._written * LINES_PER_FILE < until:
            first = self._written * LINES_PER_FILE
            lines = [
                self._describe(number) if number in self._numbers else str(number)
                for number in range(first, first + LINES_PER_FILE)
            ]
            self._write_file(file_name(self._written), "\n".join(lines))
            self._written += 1

    def forget(self, before: int) -> None:
        """Remove files whose numbers are all below `before`."""
        while (self._removed + 1) * LINES_PER_FILE <= before and self._removed < self._written:
            with contextlib.suppress(OSError):
                (self.folder / file_name(self._removed)).unlink()
            self._removed += 1

    def close(self) -> None:
        """Remove all remaining files."""
        self.forget(self._written * LINES_PER_FILE)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _write_file(self, name: str, text: str) -> None:
        try:
            files.write_bytes(self.folder / name, os.fsencode(text))
        except OSError as error:
            why = error.strerror or error
            raise ManifestError(
                f"{self.folder}: the batch manifest for data.service cannot be written ({why}); free some space, or"
                " name another run.folder"
            ) from None


def file_name(number: int) -> str:
    return f"{number:012d}.txt"


def service_dataset(numbers: range, folder: Path, sample_rate: int, makes: Makes) -> Any:
    """A dataset of features with their batch numbers; a batch whose files are missing or changed is an error."""
    prefix = tf.constant(os.fsencode(f"{folder.absolute()}/"))

    def batch(number: Tensor) -> Dict[str, Tensor]:
        name = tf.strings.join([prefix, tf.strings.as_string(number // LINES_PER_FILE, width=12, fill="0"), ".txt"])
        text = tf.strings.split(tf.io.read_file(name), "\n")[tf.cast(number % LINES_PER_FILE, tf.int32)]
        return {"number": number, **make_features(text, sample_rate, makes)}

    return tf.data.Dataset.range(numbers.start, numbers.stop).map(
        batch, num_parallel_calls=tf.data.experimental.AUTOTUNE
    )


def make_features(text: Tensor, sample_rate: int, makes: Makes) -> Dict[str, Tensor]:
    """The features of a line; blank ones for a line that has only its number."""
    fields = tf.strings.split(text, "\t")
    waves = {}
    place = tf.constant(1)  # after the number
    for name in sorted({source for source, _ in makes.values()}):
        waves[name], place = _waves(fields, place, sample_rate)
    return {name: function(*waves[source]) for name, (source, function) in makes.items()}


def _waves(fields: Tensor, place: Tensor, sample_rate: int) -> Tuple[Tuple[Tensor, Tensor], Tensor]:
    """Waves [rows, samples] and lengths [rows] of the fields from `place` on, and the place after these fields."""
    own = tf.cond(place < tf.size(fields), lambda: fields[place:], lambda: tf.constant(BLANK_BATCH))
    sizes = tf.strings.to_number(own[:2], tf.int32)
    length = 2 + COLUMNS * sizes[0]
    rows = tf.reshape(own[2:length], [-1, COLUMNS])
    counts = tf.strings.to_number(rows[:, 1:], tf.int32)

    def wave(row: Tuple[Tensor, Tensor]) -> Tensor:
        path, (whole, start, count) = row[0], tf.unstack(row[1])
        sound = tf.cond(count > 0, lambda: _sound(path, whole, sample_rate), lambda: tf.zeros([1]))
        cut = tf.gather(sound, (start + tf.range(count)) % tf.maximum(1, whole))
        return tf.pad(cut, [[0, sizes[1] - count]])

    spec = tf.TensorSpec([None], tf.float32)
    waves = tf.map_fn(wave, (rows[:, 0], counts), fn_output_signature=spec)
    return (tf.ensure_shape(waves, [None, None]), counts[:, 2]), place + length


def _sound(path: Tensor, whole: Tensor, sample_rate: int) -> Tensor:
    """All samples of a file, [whole], mixed to one channel; an error when its rate or length is not as planned."""
    content = tf.io.read_file(path)

    def wav() -> Tensor:
        samples, rate = tf.audio.decode_wav(content)
        with tf.control_dependencies([tf.debugging.assert_equal(rate, sample_rate)]):
            return tf.reduce_mean(samples, axis=1)

    is_raw = tf.strings.regex_full_match(path, f"(?s).*\\{RAW}")
    sound = tf.cond(is_raw, lambda: tf.io.decode_raw(content, tf.float32), wav)
    with tf.control_dependencies([tf.debugging.assert_equal(tf.size(sound), whole)]):
        return tf.identity(sound)
