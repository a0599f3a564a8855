"""What a run is: one attrs class a section of a recipe.

Nothing comes in; `Recipe` goes out. Each field has a type, a default, a range and one line of help, and nothing says
them twice: the JSON schema is made from them, and files, flags, editors and the reference page read the schema.
"""

from typing import Any, Dict, List, Literal, Optional, Tuple, Union, get_args, get_origin

import attrs

from xtts.recipe import fields
from xtts.recipe.constraints import find_contradictions

COUNT: Dict[str, Any] = {"minimum": 1}
AMOUNT: Dict[str, Any] = {"minimum": 0}
SHARE: Dict[str, Any] = {"minimum": 0, "maximum": 1}
POSITIVE: Dict[str, Any] = {"exclusiveMinimum": 0}
SEVERAL: Dict[str, Any] = {"minItems": 1, "uniqueItems": True}
GPU: Dict[str, Any] = {"type": "integer", **AMOUNT}
GPUS: Dict[str, Any] = {**AMOUNT, "anyOf": [GPU, {"type": "array", "items": GPU, **SEVERAL}]}
Auto = Literal["auto"]
Gpus = Union[int, Tuple[int, ...], None]  # one, or several
StageName = Literal["codec", "gpt"]
ALL_STAGES: Tuple[StageName, ...] = get_args(StageName)
CODEC: Tuple[StageName, ...] = ("codec",)
GPT: Tuple[StageName, ...] = ("gpt",)


def setting(
    default: Any, help: str, shapes_weights: Tuple[StageName, ...] = ALL_STAGES, per_worker: bool = False, **limits: Any
) -> Any:
    """A field of a section: its default, its line of help, and its limits in the words of JSON schema.

    `shapes_weights` names the stages that would learn other weights if it were changed, so that they must be trained
    anew. That is all of them unless the setting says otherwise: a new setting cannot be forgotten. `per_worker`:
    workers of one cluster may differ in it, because it says where things are or who a worker is.
    """
    metadata = {"help": help, "limits": limits, "shapes_weights": shapes_weights, "per_worker": per_worker}
    return attrs.field(default=default, validator=_validate, metadata=metadata)


def run_setting(default: Any, help: str, **more: Any) -> Any:
    """A setting that shapes no weights: how long a run is, how fast, on which devices, and how it is shown."""
    return setting(default, help, shapes_weights=(), **more)


def field_schema(field: "attrs.Attribute[Any]") -> Dict[str, Any]:
    """What a field may be: its type and limits, as `kinds` and JSON schema have it."""
    return {**_kind_of_type(field.type), **field.metadata["limits"]}


def _kind_of_type(type_: Any) -> Dict[str, Any]:
    if get_origin(type_) is tuple:
        return {"type": "array", "items": _kind_of_type(get_args(type_)[0])}
    if get_origin(type_) is Literal:
        return {"enum": list(get_args(type_))}
    if get_origin(type_) is Union:
        options = [_kind_of_type(option) for option in get_args(type_) if option is not type(None)]
        return options[0] if len(options) == 1 else {"anyOf": options}
    return {"type": {bool: "boolean", int: "integer", float: "number", str: "string"}[type_]}


def _validate(_section: Any, field: "attrs.Attribute[Any]", value: Any) -> None:
    problem = None if value is None and field.default is None else fields.find_problem(value, field_schema(field))
    if problem:
        raise ValueError(f"{field.name}: {problem}")


@attrs.frozen
class RunSection:
    """What is made, where, and from which seed."""

    name: str = run_setting(
        "run",
        "name of the run; a recipe file's own name unless it says otherwise",
        pattern=r"^\w[\w .+-]*$",
        examples=["my_voice"],
    )
    folder: str = run_setting("runs", "folder in which each run gets a folder of its own", per_worker=True)
    seed: int = setting(0, "seed of weights, batch order and dropout", minimum=0, maximum=2**31 - 1)
    stages: Tuple[StageName, ...] = run_setting(("codec", "gpt"), "what is trained, in this order", **SEVERAL)
    say: Tuple[str, ...] = run_setting(
        (), "sentences to say while and after the GPT trains; unset: held-out ones", minItems=0
    )


@attrs.frozen
class DataSection:
    """What is trained on, and the shapes it is brought to."""

    train: Optional[str] = setting(
        None, "corpus folder or metadata file; unset: a demo corpus is made", per_worker=True
    )
    val: Optional[str] = setting(None, "corpus for validation; unset: a share of train is held out", per_worker=True)
    validation_share: float = setting(0.02, "share of train held out when val is unset", **SHARE)
    format: Literal["auto", "ljspeech", "vctk", "csv", "common_voice"] = setting("auto", "layout of the corpus")
    language: str = setting(
        "en", "language of a corpus that does not name one", pattern="^[a-z]{2,3}(-[A-Za-z]+)?$", examples=["fa"]
    )
    pad_to_fixed_length: bool = run_setting(False, "one shape for all: max_text_length by max_mel_frames")
    shapes: Literal["auto", "planned", "fixed", "relaxed"] = setting(
        attrs.Factory(lambda data: "fixed" if data.pad_to_fixed_length else "auto", takes_self=True),
        "planned: the best few static shapes; fixed: one, as with pad_to_fixed_length; relaxed: free lengths;"
        " auto: planned, or relaxed where there is no GPU and none is named",
        shapes_weights=GPT,
    )
    shape_count: Union[int, Auto] = setting(
        "auto", "how many planned shapes; auto weighs padding against traces", shapes_weights=GPT, **COUNT
    )
    max_text_length: int = setting(
        200, "longest text of the fixed shape, in tokens; longer is set aside", shapes_weights=GPT, **COUNT
    )
    max_mel_frames: int = setting(
        800, "longest recording of the fixed shape, in mel frames; longer is set aside", shapes_weights=GPT, **COUNT
    )
    reference_seconds: float = setting(
        6.0, "how much of a reference voice is heard", shapes_weights=GPT, minimum=0.1, maximum=60
    )
    features: Literal["auto", "live", "cached"] = setting(
        "auto", "live: made again for each batch; cached: made once and kept on disk; auto: live when dual, else cached"
    )
    service: Optional[str] = run_setting(
        None,
        "tf.data service whose workers read recordings and make features: its dispatcher, or local:N for N processes"
        " of this machine; unset: none",
        pattern=r"^(grpc://([^\s/:\[\]]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}|local:[1-9]\d{0,2})$",
        examples=["grpc://10.0.0.5:5000"],
    )
    workers: Union[int, Auto] = run_setting(
        "auto", "threads that read recordings; auto: one a core, at most 8", per_worker=True, **COUNT
    )


@attrs.frozen
class DemoSection:
    """The corpus that espeak-ng speaks when no other is named."""

    minutes: float = setting(10.0, "length of the demo corpus, in minutes", maximum=10_000, **POSITIVE)
    voices: int = setting(8, "how many voices speak it", minimum=1, maximum=1000)
    languages: Tuple[str, ...] = setting(("en", "fa"), "languages it is spoken in", **SEVERAL)
    vocabulary: Literal["wide", "small"] = setting("wide", "small: some 170 words of English, for a model that is tiny")


@attrs.frozen
class AudioSection:
    """How a recording becomes a mel spectrogram; the defaults are those of XTTS-v2."""

    sample_rate: int = setting(22050, "samples a second, after resampling", minimum=8000, maximum=192_000)
    n_fft: int = setting(1024, "samples in one Fourier transform", minimum=64, maximum=65_536)
    win_length: int = setting(1024, "samples under the window", minimum=64, maximum=65_536)
    hop_length: int = setting(256, "samples from one mel frame to the next", minimum=16, maximum=65_536)
    n_mels: int = setting(80, "mel channels", minimum=1, maximum=512)
    fmin: float = setting(0.0, "lowest frequency, in Hz", **AMOUNT)
    fmax: float = setting(8000.0, "highest frequency, in Hz", **POSITIVE)


@attrs.frozen
class TextSection:
    """How a sentence becomes token ids."""

    tokenizer: Literal["characters", "bpe"] = setting(
        "characters", "tokens are characters, or what BPE makes of them: up to whole words", shapes_weights=GPT
    )
    vocab: Optional[str] = setting(
        None,
        "vocab.json of BPE, as XTTS-v2 ships it; unset: learned from the corpus",
        shapes_weights=GPT,
        per_worker=True,
    )
    vocab_size: Optional[int] = setting(
        None,
        "tokens of a BPE vocabulary that is learned, at most; unset: 1024",
        shapes_weights=GPT,
        minimum=16,
        maximum=100_000,
    )


@attrs.frozen
class ModelSection:
    """How large the model is."""

    size: Literal["tiny", "small", "normal", "big", "v2"] = setting("tiny", "preset; v2 is the published XTTS-v2")
    weights: Optional[str] = setting(
        None, "folder that `xtts import` made, of a model of this size, to start from", per_worker=True
    )


@attrs.frozen
class TrainSection:
    """How the weights move."""

    steps: int = run_setting(1000, "optimizer steps of each stage", **COUNT)
    batch_size: int = setting(
        16, "utterances a step at the longest shape; shorter shapes take more", shapes_weights=GPT, **COUNT
    )
    gradient_accumulation_steps: int = setting(1, "batches added up before the weights move", **COUNT)
    learning_rate: float = setting(3e-4, "peak learning rate", maximum=1, **POSITIVE)
    schedule: Literal["constant", "cosine", "noam"] = setting("cosine", "learning rate after the warm-up")
    warmup_steps: int = setting(100, "steps over which the learning rate rises from 0", **AMOUNT)
    weight_decay: float = setting(0.01, "AdamW's weight decay", **SHARE)
    clip_norm: float = setting(1.0, "gradients are scaled down to this global norm", **POSITIVE)
    precision: Literal["float32", "bfloat16", "float16"] = setting(
        "float32", "type of the arithmetic; weights stay float32"
    )
    jit_compile: Union[bool, Auto] = run_setting(
        "auto", "compile steps with XLA; auto: no, as on CPUs compiling costs what it saves"
    )
    dropout: float = setting(
        0.1, "share of the GPT's activations that a step leaves out", shapes_weights=GPT, minimum=0, maximum=0.9
    )
    ema_decay: float = setting(
        0.999, "running average of the weights, which speaks and is validated; 0: none", shapes_weights=GPT, **SHARE
    )
    log_every: int = run_setting(10, "steps from one line of metrics.jsonl to the next", **COUNT)
    validate_every: int = run_setting(250, "steps from one validation to the next; 0: never", **AMOUNT)
    sample_every: int = run_setting(500, "steps from one audio sample to the next; 0: at the end only", **AMOUNT)
    save_every: int = run_setting(250, "steps from one checkpoint to the next", **COUNT)
    keep_checkpoints: int = run_setting(3, "checkpoints kept, besides the best", **COUNT)
    early_stopping: int = run_setting(
        0, "validations without a better loss after which a stage ends; 0: never", **AMOUNT
    )
    most_skipped: int = run_setting(20, "steps in a row without a finite loss after which a run stops", **COUNT)


@attrs.frozen
class CodecSection:
    """How the codec trains, where that differs from [train]: on cuts of one length, which is one shape."""

    steps: Optional[int] = run_setting(None, "optimizer steps; unset: train.steps", **COUNT)
    learning_rate: Optional[float] = setting(
        None, "peak learning rate; unset: train.learning_rate", shapes_weights=CODEC, maximum=1, **POSITIVE
    )
    batch_size: int = setting(32, "cuts a step", shapes_weights=CODEC, **COUNT)
    segment_frames: int = setting(
        128, "mel frames in a cut, in whole codes of 4", shapes_weights=CODEC, minimum=16, maximum=100_000
    )
    commitment: float = setting(
        0.25, "weight of the distance between what is encoded and its code", shapes_weights=CODEC, **AMOUNT
    )


@attrs.frozen
class DevicesSection:
    """Which device does what, and how much of it may be used."""

    data_gpu: Gpus = run_setting(
        None, "GPU that makes features; with model_gpu: the dual pipeline; or several, [0, 1]", **GPUS
    )
    model_gpu: Gpus = run_setting(None, "GPU that trains; several, [2, 3], mirror the model", **GPUS)
    visible_gpus: Optional[str] = run_setting(
        None, "GPUs TensorFlow may touch; unset: all of them", pattern=r"^\d+(,\d+)*$", examples=["0,1"]
    )
    multi_gpu: bool = run_setting(False, "mirror the model over all visible GPUs")
    data_gpu_memory_limit: int = run_setting(8192, "MB that each data GPU may use in the dual pipeline", **COUNT)
    model_gpu_memory_limit: int = run_setting(16384, "MB that each model GPU may use in the dual pipeline", **COUNT)
    buffer_size: Union[int, Auto] = run_setting(
        50, "batches ready ahead of the model; auto: as memory allows, while it runs too", per_worker=True, **COUNT
    )
    model_start_delay: float = run_setting(
        2.0, "seconds the buffer fills before the first step", per_worker=True, **AMOUNT
    )

    @property
    def names_gpus(self) -> bool:
        """Whether the recipe is meant for GPUs."""
        return self.multi_gpu or (self.data_gpu, self.model_gpu, self.visible_gpus) != (None, None, None)

    @property
    def data_gpus(self) -> Tuple[int, ...]:
        """`data_gpu` as a list; empty when it is unset."""
        return _several(self.data_gpu)

    @property
    def model_gpus(self) -> Tuple[int, ...]:
        """`model_gpu` as a list; empty when it is unset."""
        return _several(self.model_gpu)

    @property
    def replicas(self) -> int:
        """How many copies of the model the recipe names GPUs for."""
        return len(self.visible or [0]) if self.multi_gpu else max(1, len(self.model_gpus))

    @property
    def visible(self) -> Optional[List[int]]:
        """`visible_gpus` as numbers; None when every GPU is visible."""
        return None if self.visible_gpus is None else [int(gpu) for gpu in self.visible_gpus.split(",")]


@attrs.frozen
class ClusterSection:
    """The workers, a process each, that train one model together. One that is not named is one worker."""

    workers: Tuple[str, ...] = run_setting(
        (),
        "addresses of all workers, host:port, the chief's first; TF_CONFIG goes before them",
        per_worker=True,
        uniqueItems=True,
    )
    index: Optional[int] = run_setting(
        None, "which of them this one is, from 0; unset: the one with this host's name", per_worker=True, **AMOUNT
    )
    slurm: bool = run_setting(False, "one worker a task of the Slurm step this is in", per_worker=True)
    port: int = run_setting(
        8888, "Slurm: the first worker's port on each machine", per_worker=True, minimum=1024, maximum=65_000
    )
    patience: float = run_setting(
        600.0, "seconds that workers wait for one that does not answer", per_worker=True, maximum=1e6, **POSITIVE
    )
    restarts: int = run_setting(
        10, "times in a row, with no step between, that a run goes on after losing a worker", per_worker=True, **AMOUNT
    )


@attrs.frozen
class Recipe:
    """Everything a run is made from. Sections left out keep their defaults."""

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
        if attrs.validators.get_disabled():  # a file's settings were checked already, with their lines
            return
        found = find_contradictions(self.as_tables())
        if found:
            raise ValueError("; ".join(f"{'.'.join(keys[0])}: {problem}" for keys, problem in found))

    def as_tables(self) -> Dict[str, Dict[str, Any]]:
        """The recipe in TOML's own types; what is unset is left out."""
        tables: Dict[str, Dict[str, Any]] = {section: {} for section in sections()}
        for section, name in setting_names():
            value = getattr(getattr(self, section), name)
            if value is not None:
                tables[section][name] = list(value) if isinstance(value, tuple) else value
        return tables


def _several(gpus: Gpus) -> Tuple[int, ...]:
    return () if gpus is None else (gpus,) if isinstance(gpus, int) else gpus


def setting_names() -> Dict[Tuple[str, str], "attrs.Attribute[Any]"]:
    """Every field of every section, under (section, name)."""
    return {(name, field.name): field for name, section in sections().items() for field in attrs.fields(section)}


def sections() -> Dict[str, Any]:
    """The class of each section, under its name."""
    return {field.name: field.type for field in attrs.fields(Recipe)}


def schema() -> Dict[str, Any]:
    """The JSON schema of a recipe. Written to schema.json by `python -m xtts.recipe.schema`."""
    properties: Dict[str, Any] = {
        name: {"description": section.__doc__, "type": "object", "additionalProperties": False, "properties": {}}
        for name, section in sections().items()
    }
    for (section, name), field in setting_names().items():
        setting = {"description": field.metadata["help"], **field_schema(field)}
        if isinstance(field.default, (bool, int, float, str, tuple)):  # not unset, nor made from other settings
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
