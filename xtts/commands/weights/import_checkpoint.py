"""`xtts import`: take over a published checkpoint."""

from argparse import ArgumentParser
from typing import Optional

from xtts.commands.command import Command, require_file, require_free_folder


def add_flags(parser: ArgumentParser) -> None:
    """The files of a checkpoint, and the folder to make."""
    parser.add_argument("model", metavar="model.pth", help="checkpoint, .pth or .safetensors")
    parser.add_argument("out", metavar="OUT", help="folder to make")
    parser.add_argument("--dvae", metavar="dvae.pth", help="codec, which is published as a file of its own")
    parser.add_argument("--vocab", metavar="vocab.json", help="vocabulary of the checkpoint, or an extended one")
    parser.add_argument("--mel-norms", metavar="mel_norms.pth", help="values by which mel channels are divided")
    parser.add_argument(
        "--config",
        metavar="config.json",
        help="Coqui's configuration: settings to speak with, and sizes that shapes do not tell",
    )
    parser.add_argument("--speakers", metavar="speakers_xtts.pth", help="named studio voices, for say --voice NAME")
    parser.add_argument("--extend", action="store_true", help="add embedding rows for tokens the checkpoint lacks")


def import_checkpoint(
    *,
    model: str,
    out: str,
    dvae: Optional[str],
    vocab: Optional[str],
    mel_norms: Optional[str],
    config: Optional[str],
    speakers: Optional[str],
    extend: bool,
) -> int:
    """Import the checkpoint into a new folder."""
    for path in filter(None, (model, dvae, vocab, mel_norms, config, speakers)):
        require_file(path)
    require_free_folder(out)

    from xtts.weights import importing

    imported = importing.import_checkpoint(
        model, out, dvae=dvae, vocab=vocab, mel_norms=mel_norms, config=config, extend=extend, speakers=speakers
    )
    print(imported.text())
    return 0


COMMAND = Command(
    "import", "Import a published XTTS checkpoint, without running anything in it.", add_flags, import_checkpoint
)
