"""`python -m radial` is the `radial` command."""

from radial.cli import main

main()
