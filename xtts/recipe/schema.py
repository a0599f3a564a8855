"""The sections of a recipe, one attrs class each.

Each field has a type, a default, a range and one line of help, all stated here only: the JSON schema is generated from
them, and files, flags, editors and the reference page use the schema.
"""

from typing import Any, Dict, List, Literal, Optional, Tuple, Union

import attrs

from xtts.recipe.constraints import find_contradictions
from xtts.recipe.settings import (
    AMOUNT,
    CODEC,
    COUNT,
    GPT,
    GPUS,
    POSITIVE,
    SEVERAL,
    SHARE,
    Auto,
    StageName,
    field_schema,
    run_setting,
    setting,
)

Gpus = Union[int, Tuple[int, ...], None]  # none, one or several


@attrs.frozen
class RunSection:
    """The name, folder, seed and stages of a run."""

    name: str = run_setting(
        "run",
        "name of the run; by default that of the recipe file",
        pattern=r"^\w[\w .+-]*$",
        examples=["my_voice"],
    )
    folder: str = run_setting("runs", "folder of all runs; each has a folder of its own in it", per_worker=True)
    seed: int = setting(0, "seed of weights, batch order and dropout", minimum=0, maximum=2**31 - 1)
    stages: Tuple[StageName, ...] = run_setting(("codec", "gpt"), "stages to train, in this order", **SEVERAL)
    say: Tuple[str, ...] = run_setting(
        (), "sentences to say while and after the GPT trains; unset: held-out ones", minItems=0
    )


@attrs.frozen
class DataSection:
    """The corpus to train on, and its static shapes."""

    train: Optional[str] = setting(
        None, "corpus folder or metadata file; unset: a demo corpus is made", per_worker=True
    )
    val: Optional[str] = setting(None, "corpus for validation; unset: a share of train is held out", per_worker=True)
    validation_share: float = setting(0.02, "share of train held out when val is unset", **SHARE)
    format: Literal["auto", "ljspeech", "vctk", "csv", "common_voice"] = setting("auto", "layout of the corpus")
    language: str = setting(
        "en", "language of a corpus that does not name one", pattern="^[a-z]{2,3}(-[A-Za-z]+)?$", examples=["fa"]
    )
    pad_to_fixed_length: bool = run_setting(False, "pad everything to one shape: max_text_length by max_mel_frames")
    shapes: Literal["auto", "planned", "fixed", "relaxed"] = setting(
        attrs.Factory(lambda data: "fixed" if data.pad_to_fixed_length else "auto", takes_self=True),
        "planned: the best few static shapes; fixed: one, as with pad_to_fixed_length; relaxed: dynamic shapes;"
        " auto: planned, or relaxed where there is no GPU and none is named",
        shapes_weights=GPT,
    )
    shape_count: Union[int, Auto] = setting(
        "auto", "number of planned shapes; auto weighs padding against traces", shapes_weights=GPT, **COUNT
    )
    max_text_length: int = setting(
        200, "longest text of the fixed shape, in tokens; longer is set aside", shapes_weights=GPT, **COUNT
    )
    max_mel_frames: int = setting(
        800, "longest recording of the fixed shape, in mel frames; longer is set aside", shapes_weights=GPT, **COUNT
    )
    reference_seconds: float = setting(
        6.0, "length of the reference recording for conditioning", shapes_weights=GPT, minimum=0.1, maximum=60
    )
    reference_min_seconds: Optional[float] = setting(
        None,
        "references of random lengths, from this to reference_seconds, followed by silence; unset: all of one length,"
        " or half of reference_seconds where references are cut from the utterances themselves",
        shapes_weights=GPT,
        minimum=0.1,
        maximum=60,
    )
    reference_from: Optional[Literal["speaker", "utterance"]] = setting(
        None,
        "what a reference is cut from: another recording of the speaker, or the utterance itself; unset: speaker, or"
        " utterance for published weights, which were trained so",
        shapes_weights=GPT,
    )
    features: Literal["auto", "live", "cached"] = setting(
        "auto",
        "live: computed for each batch; cached: computed once and kept on disk; auto: live when dual, else cached",
    )
    service: Optional[str] = run_setting(
        None,
        "tf.data service whose workers read recordings and compute features: its dispatcher, or local:N for N"
        " processes on this machine; unset: none",
        pattern=r"^(grpc://([^\s/:\[\]]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}|local:[1-9]\d{0,2})$",
        examples=["grpc://10.0.0.5:5000"],
    )
    workers: Union[int, Auto] = run_setting(
        "auto", "threads that read recordings; auto: one per core, at most 8", per_worker=True, **COUNT
    )


@attrs.frozen
class DemoSection:
    """The demo corpus, spoken by espeak-ng when no other corpus is named."""

    minutes: float = setting(10.0, "length of the demo corpus, in minutes", maximum=10_000, **POSITIVE)
    voices: int = setting(8, "number of voices", minimum=1, maximum=1000)
    languages: Tuple[str, ...] = setting(("en", "fa"), "languages of the demo corpus", **SEVERAL)
    vocabulary: Literal["wide", "small"] = setting("wide", "small: some 170 words of English, for a tiny model")


@attrs.frozen
class AudioSection:
    """The mel spectrogram; the defaults are those of XTTS-v2."""

    sample_rate: int = setting(22050, "sample rate in Hz, after resampling", minimum=8000, maximum=192_000)
    n_fft: int = setting(1024, "samples in a Fourier transform", minimum=64, maximum=65_536)
    win_length: int = setting(1024, "samples in the window", minimum=64, maximum=65_536)
    hop_length: int = setting(256, "samples between mel frames", minimum=16, maximum=65_536)
    n_mels: int = setting(80, "mel channels", minimum=1, maximum=512)
    fmin: float = setting(0.0, "lowest frequency, in Hz", **AMOUNT)
    fmax: float = setting(8000.0, "highest frequency, in Hz", **POSITIVE)


@attrs.frozen
class TextSection:
    """The text front end and the tokenizer."""

    frontend: Optional[Literal["published", "xtts"]] = setting(
        None,
        "what a text becomes before it is tokenized: published, as XTTS-v2's 17 languages were; xtts, English and"
        " Persian in words; unset: that of the weights a run starts from, otherwise xtts",
        shapes_weights=GPT,
    )
    keep_vowel_marks: bool = setting(
        False, "Persian: keep zabar, zir, pish, tashdid and sukun as tokens of their own", shapes_weights=GPT
    )
    max_unknown: float = run_setting(
        0.05, "share of unknown tokens in the training texts above which a run is refused", **SHARE
    )

    tokenizer: Literal["characters", "bpe"] = setting(
        "characters", "tokens are characters, or subwords by BPE", shapes_weights=GPT
    )
    vocab: Optional[str] = setting(
        None,
        "vocab.json of BPE, as XTTS-v2 ships it; unset: learned from the corpus",
        shapes_weights=GPT,
        per_worker=True,
    )
    vocab_size: Optional[int] = setting(
        None,
        "tokens of a learned BPE vocabulary, at most; unset: 1024",
        shapes_weights=GPT,
        minimum=16,
        maximum=100_000,
    )


@attrs.frozen
class ModelSection:
    """The size of the model, and weights to start from."""

    size: Literal["tiny", "small", "normal", "big", "v2"] = setting("tiny", "preset; v2 is the published XTTS-v2")
    weights: Optional[str] = setting(
        None, "folder made by `xtts import`, of a model of this size, to fine-tune", per_worker=True
    )


@attrs.frozen
class TrainSection:
    """Optimizer, learning rate schedule, mixed precision, validation and checkpoints."""

    steps: int = run_setting(1000, "optimizer steps of each stage", **COUNT)
    batch_size: int = setting(
        16, "utterances per step at the longest shape; shorter shapes have more", shapes_weights=GPT, **COUNT
    )
    gradient_accumulation_steps: int = setting(1, "batches accumulated before each optimizer step", **COUNT)
    learning_rate: float = setting(3e-4, "peak learning rate", maximum=1, **POSITIVE)
    schedule: Literal["constant", "cosine", "noam"] = setting("cosine", "learning rate schedule after the warm-up")
    warmup_steps: int = setting(100, "steps over which the learning rate rises from 0", **AMOUNT)
    weight_decay: float = setting(0.01, "AdamW's weight decay", **SHARE)
    weight_decay_on: Optional[Literal["matrices", "published", "all"]] = setting(
        None,
        "weights that decay: matrices; published: not embeddings, but the perceiver's scale; all: every weight; unset:"
        " matrices, or published for published weights",
    )
    mask_reference_codes: Union[bool, Literal["published"]] = setting(
        True,
        "no loss for codes of the stretch of an utterance that its own reference was cut from; published: as coqui-tts"
        " does, of each batch's last row only, and at four times the position",
        shapes_weights=GPT,
    )
    clip_norm: float = setting(1.0, "gradient clipping, by global norm; 0: none", **AMOUNT)
    precision: Literal["float32", "bfloat16", "float16"] = setting(
        "float32", "mixed precision: type of the computations; weights stay float32"
    )
    jit_compile: Union[bool, Auto] = run_setting(
        "auto", "compile steps with XLA; auto: no, as on CPUs compiling costs what it saves"
    )
    dropout: float = setting(0.1, "dropout rate of the GPT", shapes_weights=GPT, minimum=0, maximum=0.9)
    ema_decay: float = setting(
        0.999, "moving average of the weights, used for validation and speech; 0: none", shapes_weights=GPT, **SHARE
    )
    log_every: int = run_setting(10, "steps between lines of metrics.jsonl", **COUNT)
    validate_every: int = run_setting(250, "steps between validations; 0: never", **AMOUNT)
    sample_every: int = run_setting(500, "steps between audio samples; 0: at the end only", **AMOUNT)
    save_every: int = run_setting(250, "steps between checkpoints", **COUNT)
    keep_checkpoints: int = run_setting(3, "checkpoints kept, besides the best", **COUNT)
    early_stopping: int = run_setting(
        0, "early stopping: validations without a better loss after which a stage ends; 0: never", **AMOUNT
    )
    most_skipped: int = run_setting(20, "consecutive steps without a finite loss after which a run stops", **COUNT)


@attrs.frozen
class CodecSection:
    """Training of the codec, where it differs from [train]: on segments of one length, which is one shape."""

    steps: Optional[int] = run_setting(None, "optimizer steps; unset: train.steps", **COUNT)
    learning_rate: Optional[float] = setting(
        None, "peak learning rate; unset: train.learning_rate", shapes_weights=CODEC, maximum=1, **POSITIVE
    )
    batch_size: int = setting(32, "segments per step", shapes_weights=CODEC, **COUNT)
    segment_frames: int = setting(
        128, "mel frames in a segment, in whole codes of 4", shapes_weights=CODEC, minimum=16, maximum=100_000
    )
    commitment: float = setting(0.25, "weight of the commitment loss", shapes_weights=CODEC, **AMOUNT)


@attrs.frozen
class DevicesSection:
    """The GPUs for features and for the model, their memory limits, and the buffer between them."""

    data_gpu: Gpus = run_setting(
        None, "GPU that computes features; with model_gpu: the dual pipeline; or several, [0, 1]", **GPUS
    )
    model_gpu: Gpus = run_setting(None, "GPU that trains; several, [2, 3], mirror the model", **GPUS)
    visible_gpus: Optional[str] = run_setting(
        None, "GPUs that TensorFlow may use; unset: all", pattern=r"^\d+(,\d+)*$", examples=["0,1"]
    )
    multi_gpu: bool = run_setting(False, "mirror the model over all visible GPUs")
    data_gpu_memory_limit: int = run_setting(8192, "MB that each data GPU may use in the dual pipeline", **COUNT)
    model_gpu_memory_limit: int = run_setting(16384, "MB that each model GPU may use in the dual pipeline", **COUNT)
    buffer_size: Union[int, Auto] = run_setting(
        50, "batches to prefetch; auto: as memory allows, adjusted during the run", per_worker=True, **COUNT
    )
    model_start_delay: float = run_setting(
        2.0, "seconds the buffer fills before the first step", per_worker=True, **AMOUNT
    )

    @property
    def names_gpus(self) -> bool:
        """Whether the recipe names GPUs or asks for several."""
        return self.multi_gpu or (self.data_gpu, self.model_gpu, self.visible_gpus) != (None, None, None)

    @property
    def data_gpus(self) -> Tuple[int, ...]:
        """`data_gpu` as a tuple; empty when it is unset."""
        return _as_tuple(self.data_gpu)

    @property
    def model_gpus(self) -> Tuple[int, ...]:
        """`model_gpu` as a tuple; empty when it is unset."""
        return _as_tuple(self.model_gpu)

    @property
    def replicas(self) -> int:
        """The number of replicas of the model that the recipe asks for."""
        return len(self.visible or [0]) if self.multi_gpu else max(1, len(self.model_gpus))

    @property
    def visible(self) -> Optional[List[int]]:
        """`visible_gpus` as numbers; None when every GPU is visible."""
        return None if self.visible_gpus is None else [int(gpu) for gpu in self.visible_gpus.split(",")]


@attrs.frozen
class ClusterSection:
    """The workers, one process each, that train one model together; by default there is one."""

    workers: Tuple[str, ...] = run_setting(
        (),
        "addresses of all workers, host:port, the chief's first; TF_CONFIG takes precedence",
        per_worker=True,
        uniqueItems=True,
    )
    index: Optional[int] = run_setting(
        None, "index of this worker, from 0; unset: the one with this host's name", per_worker=True, **AMOUNT
    )
    slurm: bool = run_setting(False, "one worker per task of the current Slurm step", per_worker=True)
    port: int = run_setting(
        8888, "Slurm: port of the first worker on each machine", per_worker=True, minimum=1024, maximum=65_000
    )
    patience: float = run_setting(
        600.0, "seconds that workers wait for one that does not answer", per_worker=True, maximum=1e6, **POSITIVE
    )
    restarts: int = run_setting(
        10, "restarts in a row, without a step between them, after losing a worker", per_worker=True, **AMOUNT
    )


@attrs.frozen
class Recipe:
    """All settings of a run. Sections that are left out keep their defaults."""

    run: RunSection = attrs.field(factory=RunSection)
    data: DataSection = attrs.field(factory=DataSection)
    demo: DemoSection = attrs.field(factory=DemoSection)
    audio: AudioSection = attrs.field(factory=AudioSection)
    text: TextSection = attrs.field(factory=TextSection)
    model: ModelSection = attrs.field(factory=ModelSection)
    train: TrainSection = attrs.field(factory=TrainSection)
    codec: CodecSection = attrs.field(factory=CodecSection)
    devices: DevicesSection = attrs.field(factory=DevicesSection)
    cluster: ClusterSection = attrs.field(factory=ClusterSection)

    def __attrs_post_init__(self) -> None:
        if attrs.validators.get_disabled():  # settings of a file have been checked already, with their lines
            return
        found = find_contradictions(self.as_tables())
        if found:
            raise ValueError("; ".join(f"{'.'.join(keys[0])}: {problem}" for keys, problem in found))

    def as_tables(self) -> Dict[str, Dict[str, Any]]:
        """The recipe in types of TOML; unset settings are left out."""
        tables: Dict[str, Dict[str, Any]] = {section: {} for section in sections()}
        for section, name in setting_names():
            value = getattr(getattr(self, section), name)
            if value is not None:
                tables[section][name] = list(value) if isinstance(value, tuple) else value
        return tables


def _as_tuple(gpus: Gpus) -> Tuple[int, ...]:
    return () if gpus is None else (gpus,) if isinstance(gpus, int) else gpus


def setting_names() -> Dict[Tuple[str, str], "attrs.Attribute[Any]"]:
    """Every field of every section, under (section, name)."""
    return {(name, field.name): field for name, section in sections().items() for field in attrs.fields(section)}


def sections() -> Dict[str, Any]:
    """The class of each section, under its name."""
    return {field.name: field.type for field in attrs.fields(Recipe)}


def schema() -> Dict[str, Any]:
    """The JSON schema of a recipe; `python -m xtts.recipe.schema` writes it to schema.json."""
    properties: Dict[str, Any] = {
        name: {"description": section.__doc__, "type": "object", "additionalProperties": False, "properties": {}}
        for name, section in sections().items()
    }
    for (section, name), field in setting_names().items():
        setting = {"description": field.metadata["help"], **field_schema(field)}
        if isinstance(field.default, (bool, int, float, str, tuple)):  # neither unset nor computed from other settings
            setting["default"] = field.default
        properties[section]["properties"][name] = setting
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "xtts recipe",
        "description": Recipe.__doc__,
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


if __name__ == "__main__":
    import json
    from pathlib import Path

    Path(__file__).with_name("schema.json").write_text(json.dumps(schema(), indent=2) + "\n", encoding="utf-8")
