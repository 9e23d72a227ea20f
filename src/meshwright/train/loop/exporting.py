"""The end of a run as a Hugging Face checkpoint: looked at before the first step, written after the last."""

from __future__ import annotations

import logging
from pathlib import Path

from meshwright.train.checkpoint.export import export_checkpoint
from meshwright.train.checkpoint.folder import whole_checkpoints
from meshwright.train.config.values import ConfigError
from meshwright.train.loop.setup import Setup
from meshwright.train.models.hf_config import hf_config


class Export:
    """What `checkpoint.export` asks for; nothing where it is empty."""

    def __init__(self, setup: Setup, begun_at: int) -> None:
        """Raises ConfigError and ModelError, before any step is done, where it could not be written at the end."""
        self._setup = setup
        folder = setup.job.config.checkpoint.export
        self._folder = Path(folder).expanduser() if folder else None
        if self._folder is None:
            return
        hf_config(setup.architecture)
        self._done = begun_at >= setup.job.config.train.steps and (self._folder / "config.json").is_file()
        if not self._done and self._folder.exists() and not _empty(self._folder):
            raise ConfigError(f"checkpoint.export is {folder!r}, which is there already and not an empty folder.")

    def write(self, log: logging.Logger) -> None:
        """Write it, one process for all. Every rank calls it."""
        folder, store = self._folder, self._setup.store
        if folder is None:
            return
        if self._done:
            log.info(f"{folder} is there already and stays as it is")
            return
        store.ranks.decide(
            lambda: export_checkpoint(
                whole_checkpoints(store.directory)[0], folder, architecture=self._setup.architecture
            )
        )
        log.info(f"exported to {folder}")


def _empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())
