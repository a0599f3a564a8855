"""Samples of a stage during training: waves and pictures of mels in the run's folder, its journal and TensorBoard.

Waves are made from mels by Griffin-Lim, because a neural vocoder would hide flaws of the trained stage.
"""

from typing import TYPE_CHECKING, List, Protocol, Sequence

import attrs
import numpy as np

from xtts.audio import wav
from xtts.audio.griffin_lim import griffin_lim
from xtts.audio.mel import MelSpec
from xtts.reporting import mel_pictures
from xtts.reporting.journal import Journal
from xtts.reporting.tensorboard import TensorBoard

if TYPE_CHECKING:
    from xtts.compat import Compiled
    from xtts.training.context import TrainingContext

MAX_SAMPLES = 2  # each time


class Samples(Protocol):
    """Called with a step: makes samples with the current weights and passes them to a writer."""

    @property
    def functions(self) -> "Sequence[Compiled]":
        """The compiled functions, which are traced already."""

    def __call__(self, step: int) -> None:
        """Make the samples of a step."""


@attrs.frozen(kw_only=True, eq=False)
class SampleWriter:
    """Writes the samples of one stage."""

    stage: str
    journal: Journal
    board: TensorBoard
    spec: MelSpec
    stats: np.ndarray  # mel norms [n_mels], which log mels are divided by

    @classmethod
    def of(cls, context: "TrainingContext", stage: str) -> "SampleWriter":
        """The writer of a stage of a run."""
        return cls(
            stage=stage,
            journal=Journal(context.folder),
            board=context.board,
            spec=MelSpec.of(context.recipe.audio),
            stats=context.stats,
        )

    def write(
        self, step: int, number: int, kind: str, text: str, mel: np.ndarray, references: Sequence[np.ndarray] = ()
    ) -> None:
        """Write a mel [frames, n_mels] as a wave, and as a picture above the `references` it should resemble."""
        folder = self.journal.folder / "samples"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.stage}-{step:07d}-{number}"
        wave = griffin_lim(mel, self.spec, mel_norms=self.stats)
        wav.write_wav(folder / f"{name}.wav", wave, self.spec.sample_rate)
        shown: List[np.ndarray] = [one * self.stats for one in (mel, *references)]
        (folder / f"{name}.png").write_bytes(mel_pictures.mel_png(*shown))
        self.journal.add_sample(self.stage, step, kind, text, f"samples/{name}.wav", f"samples/{name}.png")
        self.board.audio(step, f"{self.stage}/{kind}_{number}", wave, self.spec.sample_rate)
        self.board.picture(step, f"{self.stage}/{kind}_{number}_mel", mel_pictures.pixels(*shown))
