"""Writes settings.md, the table of every setting, from the schema. Run it as `python docs/reference.py`."""

import json
from pathlib import Path

from xtts import kinds, toml


def settings() -> str:
    lines = [
        "# Every setting",
        "",
        "Made by `python docs/reference.py` from `xtts/recipe.py`; a test fails when it is stale.",
    ]
    for section, schema in toml.schema()["properties"].items():
        lines += [
            "",
            f"## [{section}]",
            "",
            schema["description"],
            "",
            "| setting | default | what it is | may be |",
            "|---|---|---|---|",
        ]
        for name, kind in schema["properties"].items():
            default = f"`{json.dumps(kind['default'])}`" if "default" in kind else ""
            lines.append(f"| `{name}` | {default} | {kind['description']} | {kinds.words(kind)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("settings.md").write_text(settings(), encoding="utf-8")
