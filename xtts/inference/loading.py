"""Load a model for inference from the folder of a run or of an import.

A run's recipe and plan state how it was trained, and so its limits: text length, number of codes, length of references.
An import has the limits of the published model.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, Dict, Optional, Union

import attrs
import numpy as np

from xtts.audio.mel import MelSpec, frame_count
from xtts.errors import XttsError
from xtts.inference.references import PublishedReferences, References, TrainedReferences
from xtts.model.codec import Codec
from xtts.model.decoder import SAMPLE_RATE, WaveformDecoder
from xtts.model.gpt import Gpt, Tokens
from xtts.model.speaker import SpeakerEncoder
from xtts.pipeline.features import reference_spec, samples_for
from xtts.planning.limits import read_limits
from xtts.recipe.frontend import PUBLISHED, load_run_recipe
from xtts.recipe.schema import AudioSection, Recipe
from xtts.text import tokenizer as text
from xtts.text.frontends import Frontend, make_frontend
from xtts.training.checkpoint import Checkpoints
from xtts.training.stages import STAGES
from xtts.weights import assignment, model_folder
from xtts.weights.layout import MEL_STATS, PREFIXES, ModelDescription
from xtts.weights.safetensors_file import Tensors
from xtts.weights.speaking_settings import SpeakingSettings, read_speaking

REFERENCE_SECONDS = 6.0  # of a reference, in training with the published recipe
# Models trained from scratch repeat the few codes they use, and are the most intelligible at a low temperature.
OWN_SETTINGS = SpeakingSettings(temperature=0.4, repetition_penalty=1.0)


class LoadingError(XttsError):
    """Why a folder holds no model that can speak, and what to do."""


@attrs.frozen(eq=False)
class LoadedModel:
    """Everything needed to turn text and a voice into a wave."""

    folder: Path
    gpt: Gpt
    tokenizer: text.Tokenizer
    audio: AudioSection
    mel_norms: np.ndarray  # log mels are divided by them, [n_mels]
    codec: Optional[Codec]
    decoder: Optional[WaveformDecoder]  # present together with the speaker encoder
    speaker: Optional[SpeakerEncoder]
    speaker_width: int
    language: str  # default of texts without one
    reference_samples: int  # of a reference in training
    max_text_tokens: int
    max_codes: int
    tokens_per_code: Optional[float]  # text tokens, of the training data; None: unknown
    speaking: SpeakingSettings  # to start from
    references: References
    is_published: bool  # published weights, or fine-tuned from them

    @property
    def spec(self) -> MelSpec:
        """The codec's mel."""
        return MelSpec.of(self.audio)

    @property
    def sound(self) -> str:
        """The name of the sound that suits the model, in `xtts.inference.sound`."""
        return "published" if self.is_published else "xtts"

    @property
    def sample_rate(self) -> int:
        """The sample rate of generated waves, in Hz."""
        return SAMPLE_RATE if self.decoder is not None else self.audio.sample_rate

    def digest(self) -> str:
        """A digest of what voices depend on: models with the same digest can share voices."""
        sha = hashlib.sha256(np.ascontiguousarray(self.mel_norms, np.float32).tobytes())
        sha.update(json.dumps([attrs.asdict(self.audio), self.reference_samples]).encode())
        for part in (self.gpt.conditioning_encoder, self.gpt.conditioning_perceiver, self.speaker):
            for name, weight in sorted(part.weights().items()) if part is not None else ():
                sha.update(name.encode())
                sha.update(np.ascontiguousarray(weight.variable.numpy()).tobytes())
        return sha.hexdigest()


def load_model(folder: Union[str, Path]) -> LoadedModel:
    """Load the model of a run or of an import."""
    folder = Path(folder)
    if folder.name == model_folder.RUN_MODEL and (folder.parent / "recipe.toml").exists():
        folder = folder.parent
    recipe = load_run_recipe(folder) if (folder / "recipe.toml").exists() else None
    if recipe is not None and not (folder / model_folder.RUN_MODEL / model_folder.SIZES).exists():
        raise LoadingError(_unfinished_message(folder, recipe))
    model, tensors = model_folder.read_model_folder(folder)
    if "gpt" not in model.parts:
        raise LoadingError(f"{folder}: its model has no gpt, which generates the codes; name another folder")
    tokenizer = text.load_tokenizer(_vocabulary_path(folder, recipe), _frontend(recipe))
    if tokenizer.size > model.text_tokens:
        raise LoadingError(
            f"{folder}: its vocabulary has {tokenizer.size:,} tokens, but its model {model.text_tokens:,}; import it "
            "again with the vocabulary it was trained with, or with --extend"
        )
    audio = recipe.audio if recipe else attrs.evolve(AudioSection(), n_mels=model.n_mels)
    seconds = recipe.data.reference_seconds if recipe else REFERENCE_SECONDS
    is_published = model.is_published and (recipe is None or recipe.model.weights is not None)
    limits = read_limits(folder, model.size.gpt, is_published)
    parts = _load_parts(model, tensors, tokenizer, use_stop_token=is_published)
    spec = reference_spec(audio)
    reference_frames = min(
        int(frame_count(int(seconds * audio.sample_rate), spec)), model.size.gpt.max_recording_frames
    )
    samples = samples_for(reference_frames, spec)
    speaking = read_speaking(folder) if is_published else OWN_SETTINGS
    if parts["decoder"] is None and parts["codec"] is None:
        raise LoadingError(
            f"{folder}: it has neither a waveform decoder nor a codec to turn codes into sound; import "
            "it again with --dvae dvae.pth"
        )
    return LoadedModel(
        folder=folder,
        tokenizer=tokenizer,
        audio=audio,
        mel_norms=np.array(tensors[MEL_STATS], np.float32),
        speaker_width=model.size.speaker.width,
        language=recipe.data.language if recipe else "en",
        reference_samples=samples,
        max_text_tokens=limits.text_tokens,
        max_codes=limits.codes,
        tokens_per_code=limits.tokens_per_code,
        speaking=speaking,
        references=PublishedReferences.of(speaking) if is_published else TrainedReferences(chunk_samples=samples),
        is_published=is_published,
        **parts,
    )


def _load_parts(
    model: ModelDescription, tensors: Tensors, tokenizer: text.Tokenizer, use_stop_token: bool
) -> Dict[str, Any]:
    """The parts of a model with their weights; None for those that it does not have."""
    size, random = model.size, None  # no weight is drawn, all are loaded
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
    has_decoder = {"decoder", "speaker"} <= set(model.parts)  # a decoder needs speaker embeddings
    parts["codec"] = Codec(size.codec, model.n_mels, random) if "codec" in model.parts else None
    parts["speaker"] = SpeakerEncoder(size.speaker, random) if has_decoder else None
    parts["decoder"] = (
        WaveformDecoder(size.decoder, size.gpt.width, size.speaker.width, random) if has_decoder else None
    )
    for name, part in parts.items():
        if part is not None:
            assignment.load_weights(part, tensors, PREFIXES[name])
    return parts


def _frontend(recipe: Optional[Recipe]) -> Frontend:
    """The front end a run was trained with; the published one for an import."""
    if recipe is None:
        return make_frontend(PUBLISHED)
    return make_frontend(recipe.text.frontend or PUBLISHED, recipe.text.keep_vowel_marks)


def _vocabulary_path(folder: Path, recipe: Optional[Recipe]) -> Path:
    path = folder / (text.TOKENIZER if recipe is not None else model_folder.VOCAB)
    if not path.exists():
        remedy = "run its recipe again" if recipe is not None else "import it again with --vocab vocab.json"
        raise LoadingError(f"{folder}: it has no {path.name}, which is needed to tokenize text; {remedy}")
    return path


def _unfinished_message(folder: Path, recipe: Recipe) -> str:
    """The error message for a run that has not finished training."""
    steps = Checkpoints(folder / "gpt").steps()
    where = f"is at step {steps[-1]:,} of {STAGES['gpt'].steps(recipe):,}" if steps else "has not begun"
    return f"{folder}: the run's GPT {where} and cannot speak before it is finished; run its recipe again, to the end"
