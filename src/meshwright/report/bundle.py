"""The JavaScript that draws the charts: Vega, Vega-Lite and vega-embed in one text, made once a machine.

vl-convert holds the libraries and takes seconds to bundle them, so that the text is kept in the cache folder
(MESHWRIGHT_CACHE, XDG_CACHE_HOME or ~/.cache), under the versions that it was made of.
"""

from __future__ import annotations

import contextlib
import os
from importlib.metadata import version as version_of
from pathlib import Path

from meshwright.train.config.files import write_atomically

SNIPPET = "window.vegaEmbed = vegaEmbed;"
"""What the bundle does besides holding the libraries."""


def vega_javascript() -> str:
    """The bundle, fit for a script element. It sets `vegaEmbed`."""
    import vl_convert

    version = vega_lite_version()
    path = _cache() / f"vega-lite-{version}-{version_of('vl-convert-python')}.js"
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        pass
    # The bundle ends the script element that holds it if a text in it looks like its end.
    text = vl_convert.javascript_bundle(SNIPPET, vl_version=version).replace("</script", "<\\/script")
    # A home that cannot be written to costs the seconds at every report.
    with contextlib.suppress(OSError):
        write_atomically(path, text)
    return text


def vega_lite_version() -> str:
    """The version of Vega-Lite that Altair writes for, as vl-convert calls it; the newest where that is not there."""
    import altair
    import vl_convert

    wanted = altair.SCHEMA_VERSION.removeprefix("v").rpartition(".")[0]
    known: list[str] = vl_convert.get_vegalite_versions()
    return wanted if wanted in known else known[-1]


def _cache() -> Path:
    if chosen := os.environ.get("MESHWRIGHT_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "meshwright"
