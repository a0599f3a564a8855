"""Constraints between settings that are each valid by themselves."""

from typing import Any, Dict, Iterator, List, NamedTuple, Tuple


class Contradiction(NamedTuple):
    """Settings that exclude each other."""

    keys: Tuple[Tuple[str, str], ...]  # (section, name); the first one that the recipe states is reported
    problem: str  # what is wrong; and what to write


def find_contradictions(tables: Dict[str, Dict[str, Any]]) -> List[Contradiction]:
    """All contradictions in the tables of a recipe whose settings, defaults included, are valid by themselves."""
    found = []
    for section in (_data, _demo, _audio, _text, _train, _devices, _cluster):
        for is_broken, keys, problem in section(tables[section.__name__[1:]]):
            if is_broken:
                found.append(Contradiction(tuple((section.__name__[1:], key) for key in keys), problem))
    if tables["train"]["jit_compile"] is True and tables["data"].get("shapes") == "relaxed":
        found.append(
            Contradiction(
                (("data", "shapes"), ("train", "jit_compile")),
                'XLA compiles again for every length, and shapes = "relaxed" leaves lengths free; write "planned", or'
                " jit_compile = false",
            )
        )
    if tables["text"]["tokenizer"] == "bpe" and "vocab" not in tables["text"] and "weights" in tables["model"]:
        found.append(
            Contradiction(
                (("text", "tokenizer"), ("model", "weights")),
                'weights are trained with a vocabulary of their own; name it with vocab = "vocab.json"',
            )
        )
    cluster = tables["cluster"]
    if "service" in tables["data"] and (len(cluster["workers"]) > 1 or cluster["slurm"]):
        named = "slurm" if cluster["slurm"] else "workers"
        found.append(Contradiction((("data", "service"), ("cluster", named)), served_alone("[cluster]")))
    return found


def served_alone(origin: str) -> str:
    """Why the workers of a cluster, named in `origin`, cannot use a tf.data service."""
    return (
        f"tf.data service feeds one process, and {origin} names several workers, which read for themselves; remove"
        " service, or train with one worker"
    )


Rule = Tuple[bool, Tuple[str, ...], str]  # whether it is broken, the keys it concerns, the message


def _data(data: Dict[str, Any]) -> Iterator[Rule]:
    shapes = data.get("shapes", "fixed")
    yield (
        data["pad_to_fixed_length"] and shapes != "fixed",
        ("shapes", "pad_to_fixed_length"),
        f'pad_to_fixed_length = true asks for one fixed shape, shapes = "{shapes}" for others; write only one of them',
    )
    yield (
        "val" in data and "train" not in data,
        ("val",),
        "val is named but train is not, so the demo corpus would be trained on; name train too",
    )
    shortest, longest = data.get("reference_min_seconds", 0), data["reference_seconds"]
    yield (
        shortest > longest,
        ("reference_min_seconds", "reference_seconds"),
        f"reference_min_seconds = {shortest} is above reference_seconds = {longest}; write at most {longest}",
    )
    yield (
        "service" in data and data["features"] == "cached",
        ("features", "service"),
        'features = "cached" keeps features on disk, but with service, workers compute them for each batch; write'
        ' features = "live", or remove service',
    )


def _demo(demo: Dict[str, Any]) -> Iterator[Rule]:
    yield (
        demo["vocabulary"] == "small" and demo["languages"] != ["en"],
        ("vocabulary", "languages"),
        'the small vocabulary is English; write languages = ["en"], or vocabulary = "wide"',
    )


def _audio(audio: Dict[str, Any]) -> Iterator[Rule]:
    window, n_fft, hop = audio["win_length"], audio["n_fft"], audio["hop_length"]
    low, high, rate = audio["fmin"], audio["fmax"], audio["sample_rate"]
    yield (
        window > n_fft,
        ("win_length", "n_fft"),
        f"a window of {window} samples does not fit in n_fft = {n_fft}; write a larger n_fft or a smaller window",
    )
    yield (
        hop > window,
        ("hop_length", "win_length"),
        f"hop_length = {hop} skips samples between windows of {window}; write a smaller hop",
    )
    yield low >= high, ("fmin", "fmax"), f"fmin = {low} is not below fmax = {high}; write a lower fmin"
    yield (
        high > rate / 2,
        ("fmax", "sample_rate"),
        f"fmax = {high} is above half of sample_rate = {rate}; write at most {rate / 2}",
    )


def _text(text: Dict[str, Any]) -> Iterator[Rule]:
    yield (
        text["tokenizer"] != "bpe" and "vocab" in text,
        ("vocab", "tokenizer"),
        'vocab is read only by the BPE tokenizer; write tokenizer = "bpe", or remove vocab',
    )
    yield (
        "vocab_size" in text and (text["tokenizer"] != "bpe" or "vocab" in text),
        ("vocab_size", "tokenizer", "vocab"),
        'vocab_size is of a BPE vocabulary that is learned; write tokenizer = "bpe" and no vocab, or remove it',
    )


def _train(train: Dict[str, Any]) -> Iterator[Rule]:
    warmup, steps = train["warmup_steps"], train["steps"]
    yield (
        train["early_stopping"] > 0 and train["validate_every"] == 0,
        ("early_stopping", "validate_every"),
        "early_stopping counts validations, and validate_every = 0 makes none; write how often to validate",
    )
    yield (
        warmup > steps,
        ("warmup_steps", "steps"),
        f"a warm-up of {warmup} steps is longer than the {steps} steps of training; write fewer of them",
    )


def _devices(devices: Dict[str, Any]) -> Iterator[Rule]:
    data_gpu, model_gpu = devices.get("data_gpu"), devices.get("model_gpu")
    data, model = _as_list(data_gpu), _as_list(model_gpu)
    visible = devices.get("visible_gpus")
    shared = [gpu for gpu in data if gpu in model]
    if len(data) == len(model) == 1:
        problem = f"data_gpu and model_gpu are both GPU {data[0]}; name two different ones, or remove data_gpu"
    else:
        both = f"both make features and train: GPU {', '.join(map(str, shared))}"
        problem = f"data_gpu = {data_gpu} and model_gpu = {model_gpu} have GPUs that would {both}; name each once"
    yield bool(shared), ("data_gpu", "model_gpu"), problem
    how_many = "one" if len(model) == 1 else "some"
    yield (
        devices["multi_gpu"] and model_gpu is not None,
        ("multi_gpu", "model_gpu"),
        f"multi_gpu mirrors the model over all GPUs, model_gpu = {model_gpu} names {how_many}; write only one of them",
    )
    for role, gpus in (("data_gpu", data), ("model_gpu", model)):
        hidden = [gpu for gpu in gpus if visible is not None and gpu not in map(int, visible.split(","))]
        yield (
            bool(hidden),
            (role, "visible_gpus"),
            f'GPU {", ".join(map(str, hidden))} is not among visible_gpus = "{visible}"; add it there',
        )


def _as_list(gpus: Any) -> List[int]:
    """One GPU, several or none, as a list."""
    return [] if gpus is None else [gpus] if isinstance(gpus, int) else list(gpus)


def _cluster(cluster: Dict[str, Any]) -> Iterator[Rule]:
    workers, index = cluster["workers"], cluster.get("index")
    for address in workers:
        yield (
            not is_address(address),
            ("workers",),
            f'"{address}" is not an address; write host:port, as in "10.0.0.1:8888"',
        )
    yield (
        index is not None and 0 < len(workers) <= index,
        ("index", "workers"),
        f"there is no worker {index} among {len(workers)}; write 0 to {len(workers) - 1}",
    )
    yield (
        cluster["slurm"] and bool(workers),
        ("slurm", "workers"),
        "slurm = true has Slurm name the workers, and workers names them too; write only one of them",
    )


def is_address(text: Any) -> bool:
    """Whether `text` is host:port, with an IPv6 host in brackets."""
    host, _, port = str(text).rpartition(":")
    is_host = bool(host) and not set(host) & set(" /,") and (":" not in host or host[0] + host[-1] == "[]")
    return is_host and port.isascii() and port.isdigit() and 0 < int(port) < 65_536
