"""`radial version`."""

import sys

from radial.commands.terminal import print_json
from radial.version import __version__


def version(json: bool = False) -> None:
    """Print the version.

    Args:
        json: print a JSON object instead.
    """
    if json:
        print_json({"radial": __version__})
    else:
        sys.stdout.write(f"{__version__}\n")
