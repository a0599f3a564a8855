"""Export a model as a SavedModel, for programs that do not use this package.

Its signatures are the steps of inference, each with static shapes and a batch of one:

    voice      wave [1, samples] of a reference                        -> style [1, 32, width]
    speaker    wave [1, samples] at 16 kHz, length [1]                 -> speaker [1, speaker width]
    codes_N    text [1, N], text_length [1], style, sampling settings  -> codes [1, max], length [1], latents
    mel        codes [1, max], length [1]                              -> mel [1, 4 max, n_mels], a logarithm
    waveform   latents [1, max, width], length [1], speaker            -> wave [1, samples] at 24 kHz

There is a `codes_N` for each of a few text sizes; `speaker` and `waveform` if the model has a waveform decoder, `mel`
if it has a codec. The folder `assets.extra` holds `xtts.json`, which states all these sizes, and the tokenizer.
"""

import inspect
import json
from pathlib import Path
from typing import Any, Dict, List, Optional, Union, cast

import tensorflow as tf

from xtts import compat
from xtts.errors import XttsError
from xtts.files import draft_folder
from xtts.inference import loading
from xtts.inference.generation import SPEAKER_SAMPLE_RATE, padded_sizes
from xtts.inference.loading import LoadedModel
from xtts.model.generation import decode_codes, generate
from xtts.model.mel import log_mel
from xtts.model.sampling import Sampling
from xtts.pipeline.features import reference_spec
from xtts.planning.sizes import LATENTS
from xtts.text.tokenizer import TOKENIZER
from xtts.training.reference_voices import MAX_SECONDS

Tensor = Any  # tf.Tensor; TensorFlow brings no types
Named = Dict[str, Tensor]
EXTRA_ASSETS = "assets.extra"  # where SavedModels keep additional files
SAMPLING_INPUTS = {  # scalars
    "temperature": tf.float32,
    "top_k": tf.int32,
    "top_p": tf.float32,
    "repetition_penalty": tf.float32,
    "seed": tf.int32,
}
MEL_SETTINGS = ("sample_rate", "n_fft", "win_length", "hop_length", "n_mels", "fmin", "fmax")


class SavedModelError(XttsError):
    """Why a SavedModel cannot be written."""


def serving_functions(model: LoadedModel) -> Dict[str, compat.Compiled]:
    """The signatures of a model by name, each traced once."""
    gpt, max_codes, width = model.gpt, model.max_codes, model.gpt.size.width
    codec, decoder, encoder = cast(Any, (model.codec, model.decoder, model.speaker))

    def voice(wave: Tensor) -> Named:
        lengths = tf.shape(wave)[1:]
        # A saved graph runs anywhere, and a matmul with the Fourier matrix is exact everywhere but on some GPUs.
        return {
            "style": gpt.conditioning_latents(
                log_mel(wave, lengths, reference_spec(model.audio), model.mel_norms, 0.0, "matmul")
            )
        }

    def codes(text: Tensor, text_length: Tensor, style: Tensor, *sampling: Tensor) -> Named:
        temperature, top_k, top_p, penalty, seed = sampling
        sampler = Sampling(temperature, top_k, top_p, seed[None])
        generated = generate(gpt, text, text_length, style, max_codes, penalty, sampler.__call__)
        return {"codes": generated.codes, "length": generated.lengths, "latents": generated.latents}

    def mel(codes: Tensor, length: Tensor) -> Named:
        return {"mel": decode_codes(codec, gpt, codes, length) * model.mel_norms}

    def speaker(wave: Tensor, length: Tensor) -> Named:
        return {"speaker": encoder(wave, length)}

    def waveform(latents: Tensor, length: Tensor, speaker: Tensor) -> Named:
        return {"wave": decoder(latents, speaker, length)}

    sampling_specs = [_spec(name, kind) for name, kind in SAMPLING_INPUTS.items()]
    length, style = _spec("length", tf.int32, 1), _spec("style", tf.float32, 1, LATENTS, width)
    found = {"voice": _compiled(voice, _spec("wave", tf.float32, 1, _reference_length(model)))}
    for size in padded_sizes(model.max_text_tokens):
        text = [_spec("text", tf.int32, 1, size), _spec("text_length", tf.int32, 1)]
        found[f"codes_{size}"] = _compiled(codes, *text, style, *sampling_specs)
    if codec is not None:
        found["mel"] = _compiled(mel, _spec("codes", tf.int32, 1, max_codes), length)
    if decoder is not None:
        latents, vector = (
            _spec("latents", tf.float32, 1, max_codes, width),
            _spec("speaker", tf.float32, 1, model.speaker_width),
        )
        found["speaker"] = _compiled(
            speaker, _spec("wave", tf.float32, 1, int(MAX_SECONDS * SPEAKER_SAMPLE_RATE)), length
        )
        found["waveform"] = _compiled(waveform, latents, length, vector)
    return found


def _reference_length(model: LoadedModel) -> Optional[int]:
    """Samples of a reference that are encoded at a time; None: any number, as published weights do not repeat them."""
    return None if model.is_published else model.reference_samples


def _spec(name: str, kind: Any, *shape: Optional[int]) -> Any:
    return tf.TensorSpec(list(shape), kind, name)


def _compiled(function: Any, *specs: Any) -> compat.Compiled:
    compiled: compat.Compiled = compat.compiled(function, input_signature=specs, autograph=False)
    return compiled


def write_savedmodel(folder: Union[str, Path], out: Union[str, Path]) -> Path:
    """Export the model of a run or of an import into a new folder, complete or not at all; returns the folder."""
    out = Path(out)
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise SavedModelError(f"{out}: this exists already; name a folder that is new or empty")
    model, parts = loading.load_model(folder), tf.Module()
    parts.gpt, parts.codec, parts.decoder, parts.speaker = model.gpt, model.codec, model.decoder, model.speaker
    signatures = {name: one.function.get_concrete_function() for name, one in serving_functions(model).items()}
    try:
        with draft_folder(out) as draft:
            tf.saved_model.save(parts, str(draft), signatures, _save_options())
            (draft / EXTRA_ASSETS).mkdir(exist_ok=True)
            model.tokenizer.save(draft / EXTRA_ASSETS / TOKENIZER)
            about = json.dumps(describe_model(model), indent=1) + "\n"
            (draft / EXTRA_ASSETS / "xtts.json").write_text(about, encoding="utf-8")
    except OSError as error:
        raise SavedModelError(f"{out}: {error.strerror or error}; name a folder that can be written") from None
    return out


def describe_model(model: LoadedModel) -> Dict[str, Any]:
    """The sizes and settings that a program needs to call the signatures."""
    sizes: List[int] = padded_sizes(model.max_text_tokens)
    return {
        "sample_rate": model.sample_rate,
        "reference": {"sample_rate": model.audio.sample_rate, "samples": _reference_length(model)},
        "speaker": {"sample_rate": SPEAKER_SAMPLE_RATE, "samples": int(MAX_SECONDS * SPEAKER_SAMPLE_RATE)}
        if model.speaker
        else None,
        "text_sizes": sizes,
        "most_codes": model.max_codes,
        "languages": model.tokenizer.languages,
        "mel": {**{name: getattr(model.audio, name) for name in MEL_SETTINGS}, "power": 2, "logarithm": "natural"},
        "repetition_penalty": model.speaking.repetition_penalty,
        "temperature": model.speaking.temperature,
        "top_k": model.speaking.top_k,
        "top_p": model.speaking.top_p,
    }


def _save_options() -> Any:
    """Without custom gradients, which newer releases would trace for every function."""
    names = inspect.signature(tf.saved_model.SaveOptions.__init__).parameters
    wanted = {"experimental_custom_gradients": False}
    return tf.saved_model.SaveOptions(**{name: value for name, value in wanted.items() if name in names})
