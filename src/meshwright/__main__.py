"""`python -m meshwright` is the command `meshwright`."""

from meshwright.cli.frame import run

run()
