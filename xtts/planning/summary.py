"""A plan as text, from its JSON."""

from typing import Any, Dict, List, Mapping

from xtts.formatting import by_count, count_of, format_excess

MEGABYTE = 2**20
BAR_WIDTH = 40  # characters of the longest bar


def format_plan(plan: Mapping[str, Any]) -> str:
    """The plan, in sections separated by blank lines."""
    sections = [
        _summary(plan),
        _set_aside(plan["rejected"]),
        _shapes(plan),
        _curve(plan),
        _bytes(plan),
        [f"advice: {sentence}" for sentence in plan["advice"]],
        [f"batch order {plan['order_hash']} (seed {plan['seed']})"],
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _summary(plan: Mapping[str, Any]) -> List[str]:
    shapes, mode = plan["shapes"], plan["mode"]
    ways = count_of(len(shapes), "pool" if mode == "relaxed" else "shape")
    parts = ", ".join(f"{name} {count / 1e6:.1f} M" for name, count in plan["parts"].items())
    blank = "" if mode == "relaxed" else f", blank rows {format_excess(plan['computed_ratio'] / plan['work_ratio'])}"
    batch = f"{count_of(shapes[-1]['batch_size'], 'utterance')} a batch at {shapes[-1]['joint_length']} tokens"
    batch += "" if mode == "fixed" else ", more where they are shorter"
    batch += f", on each of {plan['workers']} workers" if plan["workers"] > 1 else ""
    return [
        f"{count_of(plan['utterances'], 'utterance')}, {_duration(plan['seconds'])}, for a {plan['size']} model of"
        f" {plan['parameters'] / 1e6:.1f} M parameters ({parts})",
        f"padding {format_excess(plan['work_ratio'])}{blank}, {ways},"
        f" {count_of(plan['traces'], 'trace')} a stage, {count_of(plan['steps_per_epoch'], 'step')} an epoch;"
        f" {count_of(plan['steps'], 'step')} are {plan['epochs']:.1f} epochs",
        batch,
    ]


def _set_aside(rejected: Mapping[str, int]) -> List[str]:
    if not rejected:
        return ["nothing was set aside"]
    rows = [f"{count:>8,}  {reason}" for reason, count in by_count(rejected)]
    return [f"{count_of(sum(rejected.values()), 'utterance')} set aside", *rows]


def _shapes(plan: Mapping[str, Any]) -> List[str]:
    columns = {
        "text": "text_length",
        "mel": "mel_frames",
        "joint": "joint_length",
        "batch": "batch_size",
        "utterances": "utterances",
        "batches": "batches",
        "blank": "blank_rows",
    }
    rows = [
        [*(f"{shape[key]:,}" for key in columns.values()), format_excess(shape["work_ratio"])]
        for shape in plan["shapes"]
    ]
    return _table([*columns, "padding"], rows)


def _curve(plan: Mapping[str, Any]) -> List[str]:
    """Bars of the work in excess of that without padding, against the number of shapes."""
    here = str(len(plan["shapes"])) if plan["mode"] == "planned" else ""
    curve: Dict[str, float] = plan["curve"]
    widest = max(curve.values()) - 1 or 1.0
    lines = ["padding and blank rows with as many planned shapes"]
    for number, ratio in curve.items():
        bar = "#" * round(BAR_WIDTH * (ratio - 1) / widest)
        lines.append(
            f"{number:>4}  {bar:<{BAR_WIDTH}} {format_excess(ratio):>8}{'  <- this plan' if number == here else ''}"
        )
    return lines


def _bytes(plan: Mapping[str, Any]) -> List[str]:
    kinds = ["weights", "gradients", "optimizer", "activations", "buffer", "total", "limit"]
    rows = [
        [f"{device} ({budget['stage']})", *(f"{budget[kind] / MEGABYTE:,.0f}" for kind in kinds)]
        for device, budget in plan["bytes"].items()
    ]
    lines = _table(["MB a device", *kinds], rows)
    if not plan["limits_in_force"]:
        lines.append("the limits are in force when both devices.data_gpu and devices.model_gpu are named")
    return lines


def _table(head: List[str], rows: List[List[str]]) -> List[str]:
    """Columns aligned to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in [head, *rows]]


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.1f} minutes"
