"""Export a model for the public implementation, coqui-tts: its weights, or a whole folder that it loads."""

import json
import shutil
from pathlib import Path
from typing import Any, Dict, List, Tuple

import attrs
import numpy as np

from xtts.files import draft_folder
from xtts.weights import model_folder, safetensors_file
from xtts.weights.layout import MEL_STATS, NORMED, PREFIXES, ModelDescription, constants
from xtts.weights.model_folder import VOCAB, PathLike, read_model_folder
from xtts.weights.safetensors_file import Tensors, WeightsError
from xtts.weights.speaking_settings import read_speaking
from xtts.weights.torch_writer import write_torch_file
from xtts.weights.voice_files import LATENTS_KEY, SPEAKER_KEY, STUDIO, SUFFIX, VOICES, read_voice_file

START, STOP = "[START]", "[STOP]"  # special tokens of the text
LANGUAGES = [
    "en",
    "es",
    "fr",
    "de",
    "it",
    "pt",
    "pl",
    "tr",
    "ru",
    "nl",
    "cs",
    "ar",
    "zh-cn",
    "hu",
    "ko",
    "ja",
    "hi",
]  # of XTTS-v2


def export_checkpoint(folder: PathLike, out: PathLike) -> List[Path]:
    """Write a folder's model under the names that the public implementation loads; returns the files written.

    As published, the codec has a file of its own: `NAME.dvae.safetensors` next to `out`.
    """
    out = Path(out)
    if out.suffix != ".safetensors":
        raise WeightsError(
            f"{out}: weights are exported as safetensors; give the file a name that ends in .safetensors"
        )
    model, tensors = read_model_folder(folder)
    weights, codec = _divided(model, tensors)
    files = {out: weights}
    if codec:
        files[out.with_name(f"{out.stem}.dvae.safetensors")] = codec
    metadata = {"format": "pt", **({} if model.is_published else {model_folder.ORIGIN: model_folder.OWN})}
    for path, content in files.items():
        safetensors_file.write_safetensors(path, content, metadata)
    return list(files)


def export_for_coqui(folder: PathLike, out: PathLike) -> List[Path]:
    """Write a new folder that coqui-tts loads and continues to train; returns the files written.

    As published: model.pth, config.json and vocab.json; dvae.pth and mel_stats.pth, which its trainer needs; and
    speakers_xtts.pth if the folder has studio voices.
    """
    folder, out = Path(folder), Path(out)
    model_folder._check_empty(out)
    model, tensors = read_model_folder(folder)
    missing = [part for part in PREFIXES if part not in model.parts and part != "codec"]
    if missing:
        raise WeightsError(
            f"{folder}: coqui-tts needs a {' and a '.join(missing)}, which this model does not have; export its weights"
            " to OUT.safetensors"
        )
    own = folder if (folder / model_folder.SIZES).exists() else folder / model_folder.RUN_MODEL
    config = _config(own, model)
    weights, codec = _divided(model, tensors)
    voices = _studio_voices(own / VOICES)
    try:
        with draft_folder(out) as draft:
            write_torch_file(draft / "model.pth", {"config": config, "model": weights})
            (draft / "config.json").write_text(json.dumps(config, indent=4) + "\n", encoding="utf-8")
            shutil.copyfile(str(own / VOCAB), str(draft / VOCAB))
            if codec:
                write_torch_file(draft / "dvae.pth", codec)
            write_torch_file(draft / "mel_stats.pth", tensors[MEL_STATS])
            if voices:
                write_torch_file(draft / "speakers_xtts.pth", voices)
    except OSError as error:
        raise WeightsError(f"{out}: {error.strerror}; name a folder that can be written") from None
    return sorted(out.iterdir())


def _divided(model: ModelDescription, tensors: Tensors) -> Tuple[Tensors, Tensors]:
    """All tensors that the public implementation expects: those of model.pth, and those of the codec's file."""
    complete, prefix = {**constants(model), **_unfolded(tensors)}, PREFIXES["codec"]
    codec = {name[len(prefix) :]: tensor for name, tensor in complete.items() if name.startswith(prefix)}
    return {name: tensor for name, tensor in complete.items() if not name.startswith(prefix)}, codec


def _unfolded(tensors: Tensors) -> Tensors:
    """The tensors with weight normalisation where the public implementation has it."""
    folded = [name for name in tensors if NORMED.fullmatch(name)]
    if not folded:
        return tensors
    from xtts.weights.weight_norm import unfold_weight_norm

    return unfold_weight_norm(tensors, folded)


def _config(folder: Path, model: ModelDescription) -> Dict[str, Any]:
    """The content of config.json: sizes, languages and how to speak."""
    gpt, codes = model.size.gpt, model.size.codec.codes
    tokens = _vocabulary(folder / VOCAB, model)
    tags = [token[1:-1] for token in tokens if token.startswith("[") and token[1:-1].replace("-", "").islower()]
    return {
        "model": "xtts",
        "run_name": folder.parent.name if folder.name == model_folder.RUN_MODEL else folder.name,
        "audio": {"sample_rate": 22050, "output_sample_rate": 24000, "dvae_sample_rate": 22050},
        "model_args": {
            "gpt_layers": gpt.layers,
            "gpt_n_model_channels": gpt.width,
            "gpt_n_heads": gpt.heads,
            "gpt_max_text_tokens": gpt.text_positions,
            "gpt_max_audio_tokens": gpt.audio_positions,
            "gpt_max_prompt_tokens": gpt.prompt_positions,
            "gpt_number_text_tokens": model.text_tokens,
            "gpt_start_text_token": tokens[START],
            "gpt_stop_text_token": tokens[STOP],
            "gpt_num_audio_tokens": model.size.codec.audio_tokens,
            "gpt_start_audio_token": codes,
            "gpt_stop_audio_token": codes + 1,
            "gpt_use_perceiver_resampler": gpt.perceiver_layers > 0,
            "decoder_input_dim": gpt.width,
            "d_vector_dim": model.size.speaker.width,
        },
        "languages": [*LANGUAGES, *(tag for tag in tags if tag not in LANGUAGES)],
        **attrs.asdict(read_speaking(folder)),
    }


def _vocabulary(path: Path, model: ModelDescription) -> Dict[str, int]:
    """The ids of a vocabulary's tokens; coqui-tts makes the model as large as its vocabulary is."""
    if not path.exists():
        raise WeightsError(
            f"{path.parent}: it has no {VOCAB}, with which coqui-tts reads texts; import the checkpoint with --vocab,"
            ' or train with text.tokenizer = "bpe"'
        )
    table = model_folder._read_json(path)
    try:
        tokens = {**table["model"]["vocab"], **{one["content"]: one["id"] for one in table.get("added_tokens", [])}}
        count = max(tokens.values()) + 1
        if START not in tokens or STOP not in tokens:
            raise KeyError
    except (AttributeError, KeyError, TypeError, ValueError):
        raise WeightsError(f"{path}: there is no vocabulary of XTTS in it; import the checkpoint again") from None
    if count != model.text_tokens:
        raise WeightsError(
            f"{path}: it has {count:,} tokens, but the model {model.text_tokens:,}, and coqui-tts loads only what fits;"
            " import the checkpoint with the vocabulary that it was trained with"
        )
    return tokens


def _studio_voices(folder: Path) -> Dict[str, Dict[str, np.ndarray]]:
    """The published voices in a folder, as speakers_xtts.pth has them."""
    voices = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        voice = read_voice_file(path)
        if voice is not None and voice.model == STUDIO and voice.speaker_embedding is not None:
            voices[voice.name or path.stem] = {
                LATENTS_KEY: voice.conditioning_latents[None],
                SPEAKER_KEY: voice.speaker_embedding[None, :, None],
            }
    return voices
