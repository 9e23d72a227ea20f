"""The run's folder before the first step: not another run's, and with the resolved configuration in it."""

from __future__ import annotations

from meshwright.spec.errors import RequestError
from meshwright.train.config.job import Job
from meshwright.train.config.read import read_config
from meshwright.train.config.toml_file import save
from meshwright.train.config.values import ConfigError

CONFIG = "config.toml"


def prepare_folder(job: Job) -> None:
    """Make the folder and save the configuration in it. One process of a job calls it.

    Raises ConfigError: the run would resume from checkpoints of another model, or the folder cannot be written.
    """
    path = job.folder / CONFIG
    if job.config.checkpoint.resume and path.exists() and job.checkpoints.is_dir() and any(job.checkpoints.iterdir()):
        try:
            before = read_config(path)
        except RequestError:
            before = job.config  # another version's; what its checkpoints hold is checked when they are loaded
        if before.model != job.config.model:
            raise ConfigError(
                f"{job.folder} holds a run of {before.model}, not of {job.config.model}.",
                ("--run FOLDER", "--checkpoint.no-resume"),
            )
    save(job.config, path)
