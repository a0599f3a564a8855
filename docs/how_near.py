"""Measure how near speech and fine-tuning are to the public implementation, and generate the tables of how_near.md.

    python docs/how_near.py measure    # measures with tests/golden/published, writes how_near.json and the page
    python docs/how_near.py            # writes the page from how_near.json

The expected values are in tests/golden/published: what coqui-tts computed with small weights of the published form.
"""

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Sequence

HERE = Path(__file__).parent
PAGE, FIGURES = HERE / "how_near.md", HERE / "how_near.json"
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests" / "support")]

Row = Dict[str, Any]


def measure() -> Dict[str, List[Row]]:
    """All figures, by table."""
    from public_trainer import VARIANTS
    from published import ABOUT, GOLDEN, SPEECH, golden, import_published

    from xtts import Synthesizer
    from xtts.planning.sizes import SIZES
    from xtts.weights.model_folder import read_model_folder

    with tempfile.TemporaryDirectory(prefix="xtts-how-near-") as folder:
        root = Path(folder)
        import_published(root / "model")
        speaker = Synthesizer.load(root / "model", note=lambda line: None)
        latents, spoken = golden("latents.cut"), golden("speech.cut")
        voices = sorted(key.rsplit("/", 1)[0] for key in latents if key.endswith("/gpt_cond_latent"))
        sentences = [one for one in ABOUT["speech"] if one["kind"] == "inference"]
        model, tensors = read_model_folder(root / "model")
        SIZES["tiny"] = model.size
        return {
            "text": [_text(language, GOLDEN) for language in _languages(GOLDEN)],
            "references": [_reference(name, speaker, latents, ABOUT, root) for name in voices],
            "speech": [_sentence(SPEECH[one["name"]], speaker, spoken, ABOUT, root) for one in sentences],
            "training": [_steps(variant, VARIANTS[variant], tensors) for variant in VARIANTS],
        }


def _lines(path: Path) -> List[Dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _languages(golden: Path) -> List[str]:
    return list(dict.fromkeys(line["language"] for line in _lines(golden / "tokens.jsonl")))


def _text(language: str, golden: Path) -> Row:
    from xtts.text.frontends import make_frontend
    from xtts.text.published.sentences import split_text
    from xtts.text.tokenizer import BPETokenizer, encode_spoken

    tokenizer = BPETokenizer.load(golden / "vocab.json", make_frontend("published"))
    texts = [line for line in _lines(golden / "tokens.jsonl") if line["language"] == language]
    paragraphs = [line for line in _lines(golden / "splits.jsonl") if line["language"] == language]
    return {
        "language": language,
        "sentences": len(texts),
        "equal in training": sum(tokenizer.encode(one["text"], language) == one["ids"] for one in texts),
        "equal in speaking": sum(encode_spoken(tokenizer, one["text"], language) == one["spoken_ids"] for one in texts),
        "paragraphs": len(paragraphs),
        "split equally": sum(split_text(one["text"], language) == one["pieces"] for one in paragraphs),
    }


def _reference(name: str, speaker: Any, latents: Any, about: Dict[str, Any], folder: Path) -> Row:
    from published import error, reference_files

    reference, settings = name.split("/")
    chosen = dict(about["settings"][settings])
    chosen["max_ref_len"] = chosen.pop("max_ref_length")
    voice = speaker.voice(reference_files(reference, folder), **chosen)
    return {
        "reference": reference,
        "settings": settings,
        "error of the latents": error(voice.conditioning_latents, latents[f"{name}/gpt_cond_latent"][0]),
        "error of the speaker embedding": error(voice.speaker_embedding, latents[f"{name}/speaker_embedding"][0, :, 0]),
    }


def _sentence(one: Dict[str, Any], speaker: Any, spoken: Any, about: Dict[str, Any], folder: Path) -> Row:
    """A text and recordings to a wave, with nothing handed in."""
    from published import EVERY, error, reference_files

    recordings = [path for name in about["voices"][one["voice"]] for path in reference_files(name, folder)]
    settings = {"top_k": 1, "repetition_penalty": one["repetition_penalty"], "speed": one["speed"]}
    wave = speaker.say(one["text"], recordings, one["language"], **settings)
    codes = [*wave.said[0].codes.tolist(), speaker.model.gpt.tokens.audio_stop]
    wanted = spoken[f"{one['name']}/codes"].tolist()
    return {
        "language": one["language"],
        "text": one["text"],
        "codes": len(wanted),
        "equal": sum(ours == theirs for ours, theirs in zip(codes, wanted)) if len(codes) == len(wanted) else 0,
        "error of the wave": error(wave.samples[::EVERY], spoken[f"{one['name']}/wav_every_8th"]),
    }


def _steps(variant: str, settings: Dict[str, Any], tensors: Any) -> Row:
    import numpy as np
    from public_trainer import STEPS, set_up, ten_steps
    from published import ABOUT, golden

    recipe, _, steps = set_up(tensors, **settings)
    results = ten_steps(recipe, steps)
    found = np.array([(one.parts["text"], one.parts["codes"], one.loss) for one in results])
    wanted = golden("training")[f"{variant}/losses"][:STEPS]
    norm = ABOUT["training"][f"{variant}_first_gradient_norm"]
    return {
        "the public trainer's settings": variant.replace("_", " "),
        "steps": STEPS,
        "largest error of a loss": float(np.abs(found / wanted - 1).max()),
        "error of the first gradient's norm": abs(results[0].gradient_norm / norm - 1),
    }


def page(text: str, figures: Dict[str, List[Row]]) -> str:
    """The page with its tables replaced."""
    for name, rows in figures.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.S)
        text = pattern.sub(lambda match, rows=rows: match.group(1) + _table(rows) + match.group(2), text)
    return text


def _table(rows: Sequence[Row]) -> str:
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    lines += ["| " + " | ".join(map(_cell, row.values())) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0e}" if value else "0"
    return str(value)


if __name__ == "__main__":
    if sys.argv[1:] == ["measure"]:
        FIGURES.write_text(json.dumps(measure(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(
        page(PAGE.read_text(encoding="utf-8"), json.loads(FIGURES.read_text(encoding="utf-8"))), encoding="utf-8"
    )
