"""Promise: published texts and voices have the public implementation's tokens and latents, at little cost.

Golden data of the public implementation are in tests/golden/published. The time of a text is that of cleaning and
encoding it over encoding alone; both run in turns, in one process, by processor time.
"""

from pathlib import Path
from typing import Any

import published_texts
import pytest
from promises import at_most, in_turns
from published import error, golden, import_published, reference_files

from xtts import Synthesizer
from xtts.text.frontends import make_frontend
from xtts.text.published.sentences import split_text
from xtts.text.tokenizer import BPETokenizer

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("num2words")

ROUNDS = 15
OTHER_TOKENS = at_most(0)  # sentences
OTHER_PIECES = at_most(0)  # paragraphs
CLEANING = at_most(15.0)  # time of a sentence over that of encoding its cleaned text
LATENTS = at_most(1e-4)  # largest relative error of the latents of a reference
TRACES = at_most(1)


def test_texts_have_the_published_tokens_at_little_cost(promise: Any, benchmark: Any) -> None:
    """All languages but those whose packages are absent; the time is that of English and German."""
    tokenizer = BPETokenizer.load(published_texts.VOCAB, make_frontend("published"))
    known = [one for one in published_texts.LANGUAGES if not published_texts.missing_packages(one)]
    lines = [line for line in published_texts.lines("tokens.jsonl") if line["language"] in known]
    if published_texts.missing_packages("ja", "sudachipy", "sudachidict_core"):
        known = [one for one in known if one != "ja"]
    paragraphs = [line for line in published_texts.lines("splits.jsonl") if line["language"] in known]
    timed = [line for line in lines if line["language"] in ("en", "de")]

    def other_tokens() -> int:
        return sum(tokenizer.encode(line["text"], line["language"]) != line["ids"] for line in lines)

    library = tokenizers.Tokenizer.from_file(str(published_texts.VOCAB))

    def encoded() -> None:
        for line in timed:
            library.encode(line["cleaned"])

    def cleaned_and_encoded() -> None:
        for line in timed:
            tokenizer.encode(line["text"], line["language"])

    promise.count("published: sentences with other tokens", other_tokens, OTHER_TOKENS)
    promise.count(
        "published: paragraphs that are split elsewhere",
        lambda: sum(split_text(line["text"], line["language"]) != line["pieces"] for line in paragraphs),
        OTHER_PIECES,
    )
    benchmark.pedantic(cleaned_and_encoded, rounds=3)
    promise.ratio(
        "published: time of a text over encoding alone",
        lambda: in_turns(cleaned_and_encoded, encoded, ROUNDS),
        CLEANING,
    )


def test_references_have_the_published_latents_in_one_trace(tmp_path: Path, promise: Any, benchmark: Any) -> None:
    """Recordings of several lengths and rates, alone and together."""
    import_published(tmp_path / "model")
    speaker = Synthesizer.load(tmp_path / "model", note=lambda line: None)
    latents = golden("latents.cut")
    names = sorted(key.split("/")[0] for key in latents if key.endswith("/shipped/gpt_cond_latent"))
    files = {name: reference_files(name, tmp_path) for name in names}
    voices = benchmark.pedantic(lambda: {name: speaker.voice(files[name]) for name in names}, rounds=1)
    errors = [error(voices[name].conditioning_latents, latents[f"{name}/shipped/gpt_cond_latent"][0]) for name in names]
    assert len(errors) > 5
    assert max(errors) < LATENTS.value, errors
    traces = speaker.generator.functions["conditioning_latents"].traces
    promise.count("published: traces for references of many lengths", lambda: traces, TRACES)
