"""A whole model from its folder: the path of a run, or of an import, comes in; every part that speaks goes out.

A run's folder says by its recipe and its plan how it was trained, and so what it can say: how long a text, how many
codes, how much of a voice. An import's folder is the published model, and takes what that takes.
"""

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Union

import attrs
import numpy as np

from xtts.audio.mel import MelSpec, frame_count
from xtts.errors import XttsError
from xtts.model.codec import Codec
from xtts.model.decoder import SAMPLE_RATE, WaveformDecoder
from xtts.model.gpt import Gpt, Tokens
from xtts.model.speaker import SpeakerEncoder
from xtts.pipeline.features import reference_spec, samples_for
from xtts.planning.sizes import FRAMES_PER_CODE
from xtts.recipe import loading
from xtts.recipe.schema import AudioSection, Recipe
from xtts.text import tokenizer as text
from xtts.training.checkpoint import Checkpoints
from xtts.training.stages import STAGES
from xtts.weights import assignment, model_folder
from xtts.weights.layout import MEL_STATS, PREFIXES, ModelDescription
from xtts.weights.safetensors_file import Tensors

REFERENCE_SECONDS = 6.0  # of a voice, that the published model hears at a time
# How codes are drawn: as XTTS-v2 was published; and for a run's own model, whose few codes must be said again and
# again, and which is understood best when little is left to chance.
PENALTY, OWN_PENALTY = 10.0, 1.0  # of repetition; 1: none
TEMPERATURE, OWN_TEMPERATURE = 0.75, 0.4


class LoadingError(XttsError):
    """A folder that holds no model that can speak, and what to do about it."""


@attrs.frozen(eq=False)
class LoadedModel:
    """Everything that turns text and a voice into sound."""

    folder: Path
    gpt: Gpt
    tokenizer: text.Tokenizer
    audio: AudioSection
    stats: np.ndarray  # what mels are divided by, [n_mels]
    codec: Optional[Codec]
    decoder: Optional[WaveformDecoder]  # and if there is one, a speaker encoder
    speaker: Optional[SpeakerEncoder]
    speaker_width: int
    language: str  # of a text that does not tell its own
    reference_samples: int  # of a voice, that are heard at a time
    longest_text: int  # tokens
    most_codes: int
    pace: Optional[float]  # text tokens a code, of the voices it was trained on, where that is known
    repetition_penalty: float
    temperature: float

    @property
    def spec(self) -> MelSpec:
        """The codec's mel."""
        return MelSpec.of(self.audio)

    @property
    def sample_rate(self) -> int:
        """Of what it says."""
        return SAMPLE_RATE if self.decoder is not None else self.audio.sample_rate

    def digest(self) -> str:
        """A name for what makes voices: models with the same one hear them the same."""
        sha = hashlib.sha256(np.ascontiguousarray(self.stats, np.float32).tobytes())
        sha.update(json.dumps([attrs.asdict(self.audio), self.reference_samples]).encode())
        for part in (self.gpt.conditioning_encoder, self.gpt.conditioning_perceiver, self.speaker):
            for name, weight in sorted(part.weights().items()) if part is not None else ():
                sha.update(name.encode())
                sha.update(np.ascontiguousarray(weight.variable.numpy()).tobytes())
        return sha.hexdigest()


def load_model(folder: Union[str, Path]) -> LoadedModel:
    """The model of a folder that a run or an import has made."""
    folder = Path(folder)
    if folder.name == model_folder.RUN_MODEL and (folder.parent / "recipe.toml").exists():
        folder = folder.parent
    recipe = loading.load_recipe(folder / "recipe.toml") if (folder / "recipe.toml").exists() else None
    if recipe is not None and not (folder / model_folder.RUN_MODEL / model_folder.SIZES).exists():
        raise LoadingError(_unfinished(folder, recipe))
    model, tensors = model_folder.read_model_folder(folder)
    if "gpt" not in model.parts:
        raise LoadingError(f"{folder}: there is no gpt in it, which says what is to be heard; name another folder")
    tokenizer = text.load_tokenizer(_vocabulary(folder, recipe))
    if tokenizer.size > model.text_tokens:
        raise LoadingError(
            f"{folder}: its vocabulary has {tokenizer.size:,} tokens and its model {model.text_tokens:,}; import it "
            "again with the vocabulary it was trained with, or with --extend"
        )
    audio = recipe.audio if recipe else attrs.evolve(AudioSection(), n_mels=model.n_mels)
    seconds = recipe.data.reference_seconds if recipe else REFERENCE_SECONDS
    is_published = model.is_published and (recipe is None or recipe.model.weights is not None)
    limits = _limits(folder, model, is_published)
    parts = _parts(model, tensors, tokenizer, use_stop_token=is_published)
    spec = reference_spec(audio)
    heard = min(int(frame_count(int(seconds * audio.sample_rate), spec)), model.size.gpt.longest_recording)
    if parts["decoder"] is None and parts["codec"] is None:
        raise LoadingError(
            f"{folder}: it has neither a waveform decoder nor a codec, so that nothing turns codes into sound; import "
            "it again with --dvae dvae.pth"
        )
    return LoadedModel(
        folder=folder,
        tokenizer=tokenizer,
        audio=audio,
        stats=np.array(tensors[MEL_STATS], np.float32),
        speaker_width=model.size.speaker.width,
        language=recipe.data.language if recipe else "en",
        reference_samples=samples_for(heard, spec),
        longest_text=limits.text,
        most_codes=limits.codes,
        pace=limits.pace,
        repetition_penalty=PENALTY if is_published else OWN_PENALTY,
        temperature=TEMPERATURE if is_published else OWN_TEMPERATURE,
        **parts,
    )


def _parts(
    model: ModelDescription, tensors: Tensors, tokenizer: text.Tokenizer, use_stop_token: bool
) -> Dict[str, Any]:
    """The parts of a model with their weights; None for one that is not there."""
    size, random = model.size, None
    tokens = Tokens(
        text=model.text_tokens,
        audio=size.codec.audio_tokens,
        text_start=tokenizer.start,
        text_stop=tokenizer.stop,
        audio_start=size.codec.codes,
        audio_stop=size.codec.codes + 1,
        use_stop_token=use_stop_token,
    )
    parts: Dict[str, Any] = {"gpt": Gpt(size.gpt, tokens, random, model.n_mels)}
    speaks = {"decoder", "speaker"} <= set(model.parts)  # a decoder without voices to tell apart has none to speak in
    parts["codec"] = Codec(size.codec, model.n_mels, random) if "codec" in model.parts else None
    parts["speaker"] = SpeakerEncoder(size.speaker, random) if speaks else None
    parts["decoder"] = WaveformDecoder(size.decoder, size.gpt.width, size.speaker.width, random) if speaks else None
    for name, part in parts.items():
        if part is not None:
            assignment.load_weights(part, tensors, PREFIXES[name])
    return parts


def _vocabulary(folder: Path, recipe: Optional[Recipe]) -> Path:
    path = folder / (text.TOKENIZER if recipe is not None else model_folder.VOCAB)
    if not path.exists():
        remedy = "run its recipe again" if recipe is not None else "import it again with --vocab vocab.json"
        raise LoadingError(f"{folder}: there is no {path.name} in it, which says how text becomes tokens; {remedy}")
    return path


class _Limits(NamedTuple):
    text: int  # tokens
    codes: int
    pace: Optional[float] = None  # text tokens a code


def _limits(folder: Path, model: ModelDescription, is_published: bool) -> _Limits:
    """The longest text and the most codes: what was trained, for places further on have learnt nothing."""
    gpt = model.size.gpt
    limits = _Limits(gpt.longest_text, gpt.audio_positions - 3)
    if not is_published:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
            text = max(int(shape["text_length"]) for shape in plan["shapes"])
            codes = max(int(shape["mel_frames"]) for shape in plan["shapes"]) // FRAMES_PER_CODE
            limits = _Limits(min(limits.text, text), min(limits.codes, codes), plan.get("pace"))
    return limits


def _unfinished(folder: Path, recipe: Recipe) -> str:
    """What a run without a model still has to do."""
    steps = Checkpoints(folder / "gpt").steps()
    where = f"is at step {steps[-1]:,} of {STAGES['gpt'].steps(recipe):,}" if steps else "has not begun"
    return f"{folder}: the run's GPT {where}, and speaks only when it is finished; run its recipe again, to the end"
