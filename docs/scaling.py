"""Generate the tables and pictures of scaling.md from measurements (scaling.json) and from this code.

    python docs/scaling.py

benchmarks/scaling.py writes the measurements to scaling.json. Sizes of features, gradients and batches, and the work of
a step, are computed by the package. Everything else is in `ASSUMED`, and only there.
"""

import functools
import json
import re
import sys
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "benchmarks"))

from lengths import ljspeech_like  # noqa: E402

from xtts.planning import shapes  # noqa: E402
from xtts.planning.plan import PASSES, make_plan  # noqa: E402
from xtts.planning.sizes import FRAMES_PER_CODE, SIZES, count_parameters, step_cost  # noqa: E402
from xtts.recipe.loading import parse_recipe  # noqa: E402
from xtts.reporting import charts  # noqa: E402
from xtts.training.stages import STAGES  # noqa: E402

ASSUMED = {  # nobody has measured these here
    "multiply-adds per second that a GPU reaches in training": 20e12,
    "GPUs per machine": 8,
    "bandwidth between GPUs of one machine, bytes per second": 200e9,
    "bandwidth between machines, bytes per second": 3e9,
    "latency of a message, seconds": 20e-6,
    "spread of a GPU's step time (sigma of the log-normal)": 0.05,
    "CPU cores of a machine with data service workers": 32,
}
SIZES_SHOWN = ("tiny", "normal", "v2")
HOURS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
GPUS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
TOKENS, SAMPLE = 60, 20_000  # tokens of a character tokenizer; lengths sampled
STEPS = 200  # simulated
RECORDINGS = 2  # read per utterance: its own, and a reference of its voice


class Step(NamedTuple):
    """The parts of a step on a number of GPUs, in seconds."""

    compute: float  # of one GPU
    slowest: float  # of all of them, simulated
    reduce: float

    @property
    def total(self) -> float:
        return self.slowest + self.reduce


@functools.lru_cache(maxsize=None)
def measured() -> Dict[str, List[Dict[str, Any]]]:
    found: Dict[str, List[Dict[str, Any]]] = {}
    for one in json.loads((HERE / "scaling.json").read_text(encoding="utf-8")):
        found.setdefault(one["kind"], []).append(one)
    return found


def each(kind: str, field: str) -> float:
    """The cost per utterance, from the largest and the smallest corpus measured, so that constant costs cancel out."""
    figures = sorted(measured()[kind], key=lambda one: one["utterances"])
    if len(figures) == 1:
        return float(figures[0][field] / figures[0]["utterances"])
    few, many = figures[0], figures[-1]
    return float((many[field] - few[field]) / (many["utterances"] - few["utterances"]))


def recipe(size: str) -> Any:
    return parse_recipe(f'[model]\nsize = "{size}"\n[data]\nshapes = "planned"')


@functools.lru_cache(maxsize=None)
def seconds_an_utterance() -> float:
    _, mel = ljspeech_like(SAMPLE)
    return float(mel.mean()) * 256 / 22050


@functools.lru_cache(maxsize=None)
def work_an_utterance(size: str) -> float:
    """Multiply-adds of a training step."""
    text, mel = ljspeech_like(SAMPLE)
    joint = shapes.joint_length(text, mel).astype(np.int64)
    return PASSES * float(step_cost(SIZES[size].gpt).of(joint).mean())


@functools.lru_cache(maxsize=None)
def rows_a_step(size: str) -> float:
    """Utterances per step and GPU, on average over an epoch."""
    found = make_plan(recipe(size), *ljspeech_like(SAMPLE), TOKENS)
    return found.utterances / found.order.batches_per_epoch


def gradient_bytes(size: str) -> int:
    return 4 * count_parameters(SIZES[size], TOKENS)["gpt"].weights


def simulated(size: str, gpus: int) -> Step:
    """A step is as slow as its slowest GPU; then a ring all-reduce within each machine, and one between machines."""
    compute = (
        rows_a_step(size) * work_an_utterance(size) / ASSUMED["multiply-adds per second that a GPU reaches in training"]
    )
    draws = np.random.RandomState(0).standard_normal((STEPS, gpus))
    slowest = compute * float(
        np.exp(ASSUMED["spread of a GPU's step time (sigma of the log-normal)"] * draws).max(axis=1).mean()
    )
    inside = min(gpus, int(ASSUMED["GPUs per machine"]))
    machines = -(-gpus // inside)
    rings = (
        (inside, ASSUMED["bandwidth between GPUs of one machine, bytes per second"]),
        (machines, ASSUMED["bandwidth between machines, bytes per second"]),
    )
    reduce = 0.0
    for members, rate in rings:
        if members > 1:
            hops = 2 * (members - 1)
            reduce += hops / members * gradient_bytes(size) / rate + hops * ASSUMED["latency of a message, seconds"]
    return Step(compute, slowest if gpus > 1 else compute, reduce)


def rate(size: str, gpus: int) -> float:
    """Utterances per second."""
    return gpus * rows_a_step(size) / simulated(size, gpus).total


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def size(amount: float) -> str:
    for unit in ("B", "KB", "MB", "GB", "TB", "PB"):
        if amount < 1000 or unit == "PB":
            return f"{amount:.3g} {unit}" if amount < 100 else f"{amount:,.0f} {unit}"
        amount /= 1000
    raise AssertionError


def span(seconds: float) -> str:
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def figures() -> str:
    """The table of measurements."""
    rows = []
    for kind in ("index", "cached", "plan", "epoch"):
        for one in sorted(measured()[kind], key=lambda one: one["utterances"]):
            count = one["utterances"]
            rows.append(
                [
                    kind,
                    f"{count:,}",
                    span(one["seconds"]),
                    f"{1e6 * one['seconds'] / count:.2f} µs",
                    size(one["bytes"]),
                ]
            )
    return table(["what", "utterances", "processor time", "per utterance", "peak memory"], rows)


def corpora() -> str:
    """Corpora from an hour of speech to a million."""
    audio, rows = recipe("v2").audio, []
    frames = 3600 * audio.sample_rate / audio.hop_length  # an hour
    mel, codes = 2 * audio.n_mels * frames, 2 * frames / FRAMES_PER_CODE
    for hours in HOURS:
        count = hours * 3600 / seconds_an_utterance()
        rows.append(
            [
                f"{hours:,}",
                f"{count:,.0f}",
                size(2 * audio.sample_rate * 3600 * hours),
                size((2 * mel + codes) * hours),
                span(count * each("index", "seconds")),
                size(count * each("index", "bytes")),
                span(count * each("plan", "seconds")),
                size(count * each("plan", "bytes")),
                span(count * each("epoch", "seconds")),
            ]
        )
    head = [
        "hours",
        "utterances",
        "wav, 16 bits",
        "cached features",
        "index time",
        "index memory",
        "plan time",
        "plan memory",
        "order time",
    ]
    return table(head, rows)


def models() -> str:
    """The parts of a step for each model size."""
    rows = []
    for name in SIZES_SHOWN:
        layout = make_plan(recipe(name), *ljspeech_like(SAMPLE), TOKENS).layout
        largest = max(STAGES["gpt"].batch_bytes(recipe(name), shape) for shape in layout.shapes)
        cores = measured().get(f"features-{name}")
        made = f"{1000 * each(f'features-{name}', 'seconds'):.3g} ms" if cores else "not measured"
        rows.append(
            [
                name,
                f"{count_parameters(SIZES[name], TOKENS)['gpt'].weights / 1e6:,.1f} M",
                size(gradient_bytes(name)),
                f"{work_an_utterance(name) / 1e9:,.3g} G",
                f"{rows_a_step(name):.1f}",
                size(largest),
                made,
            ]
        )
    head = [
        "size",
        "weights",
        "gradients",
        "multiply-adds",
        "utterances per step",
        "largest batch",
        "features, time on one core",
    ]
    return table(head, rows)


def gpus(name: str) -> str:
    """A model size on 1 to 1,000 GPUs."""
    rows, one = [], rate(name, 1)
    cores = each(f"features-{name}", "seconds")
    for count in GPUS:
        step, speed = simulated(name, count), rate(name, count)
        needed = speed * cores
        rows.append(
            [
                f"{count:,}",
                span(step.compute),
                span(step.slowest - step.compute),
                span(step.reduce),
                charts.percent(speed / one / count),
                f"{speed * seconds_an_utterance() / 3600:,.3g} h",
                f"{needed:,.0f}",
                f"{needed / ASSUMED['CPU cores of a machine with data service workers']:,.1f}",
                size(RECORDINGS * speed * seconds_an_utterance() * 2 * 22050) + "/s",
            ]
        )
    head = ["GPUs", "compute", "waiting for the slowest", "all-reduce", "efficiency", "speech per second"]
    return table([*head, "CPU cores for input", "machines for input", "disk reads"], rows)


def assumptions() -> str:
    return table(["assumed", "figure"], [[name, f"{value:,g}"] for name, value in ASSUMED.items()])


def pictures() -> Dict[str, str]:
    """Two charts, by file name."""
    shares = [
        charts.Series(name, [(float(np.log10(n)), rate(name, n) / rate(name, 1) / n) for n in GPUS])
        for name in SIZES_SHOWN
    ]
    grown = [
        charts.Series(
            kind, [(float(np.log10(one["utterances"])), 1e6 * one["seconds"] / one["utterances"]) for one in found]
        )
        for kind, found in measured().items()
        if kind in ("index", "plan", "epoch")
    ]
    return {
        "scaling_gpus.svg": _alone(
            charts.line_chart("Efficiency", shares, show=charts.percent, x_name="10^n GPUs"), SIZES_SHOWN
        ),
        "scaling_utterances.svg": _alone(
            charts.line_chart("Processor time per utterance, µs", grown, x_name="10^n"), [line.name for line in grown]
        ),
    }


def _alone(figure: str, names: Sequence[str]) -> str:
    """A chart as a separate svg file, in light colours."""
    found = re.search(r"<svg (.*)</svg>", figure, re.DOTALL)
    assert found is not None
    keys = "".join(
        f'<text x="{60 + 110 * place}" y="-8" style="fill:var(--s{place})">{name}</text>'
        for place, name in enumerate(names)
    )
    colours = f"svg{{{charts.LIGHT};--soft:#555;--line:#ddd;--ink:#222;font-family:sans-serif}}"
    style = f"<style>{colours}{charts.STYLE.replace('.chart ', '')}</style>"
    body = found.group(1).replace('viewBox="0 0 480 220"', 'viewBox="0 -24 480 244"', 1)
    opened, _, rest = body.partition(">")
    return f'<svg xmlns="http://www.w3.org/2000/svg" {opened}>{style}{keys}{rest}</svg>\n'


def tables() -> Dict[str, str]:
    return {
        "figures": figures(),
        "corpora": corpora(),
        "models": models(),
        "assumed": assumptions(),
        **{f"gpus {name}": gpus(name) for name in SIZES_SHOWN if f"features-{name}" in measured()},
    }


def page() -> str:
    """scaling.md with each table between its marks."""
    text = (HERE / "scaling.md").read_text(encoding="utf-8")
    for name, made in tables().items():
        text, count = re.subn(
            rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", lambda m, made=made: m[1] + made + m[2], text, flags=re.DOTALL
        )
        assert count == 1, name
    return text


if __name__ == "__main__":
    (HERE / "scaling.md").write_text(page(), encoding="utf-8")
    for name, drawn in pictures().items():
        (HERE / name).write_text(drawn, encoding="utf-8")
