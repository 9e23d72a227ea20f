"""The command `meshwright`, also as `python -m meshwright`: quiet from the first import on when it is interrupted."""

import sys


def run() -> None:
    """The console script. Interrupted, even while modules load: one line and exit code 130."""
    try:
        from meshwright.cli.frame import run as answer

        answer()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    run()
