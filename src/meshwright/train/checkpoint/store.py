"""CheckpointStore: saves a run's checkpoints into one folder, and finds and loads them again."""

from __future__ import annotations

import json
import logging
import shutil
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save

import meshwright
from meshwright.modes.parts import Part
from meshwright.train.checkpoint.boxes import Box, StateBox, part_boxes, state_boxes
from meshwright.train.checkpoint.errors import CheckpointError
from meshwright.train.checkpoint.files import CheckedWriter, FileFacts, write_file
from meshwright.train.checkpoint.folder import Ticket, none_is_whole, open_ticket, publish, whole_checkpoints
from meshwright.train.checkpoint.loading import load_checkpoint
from meshwright.train.checkpoint.manifest import (
    FORMAT,
    MANIFEST_FILE,
    RANDOM_FILE,
    STATE_FILE,
    Manifest,
    find_damage,
    read_manifest,
    verify,
)
from meshwright.train.checkpoint.ownership import Ownership
from meshwright.train.checkpoint.planner import BoxSavePlanner
from meshwright.train.checkpoint.ranks import Ranks, describe
from meshwright.train.checkpoint.staging import Stage
from meshwright.train.checkpoint.state import TrainState, state_json

logger = logging.getLogger(__name__)

BYTES_PER_BOX = 4096
"""Room that a box takes beside its numbers: the frame of `torch.save` and its lines in the metadata."""

# One process alone is a case like any other here.
warnings.filterwarnings("ignore", "torch.distributed is disabled, unavailable or uninitialized", UserWarning)


class CheckpointStore:
    """The checkpoints of one run in `directory`, which all nodes share; the newest `keep` stay.

    Making one is collective, and so are all its methods. `layout` and `model` are written beside the numbers: the
    layout's text and the architecture's numbers. Works without a process group too, as one rank.
    """

    def __init__(
        self, directory: Path | str, *, keep: int = 3, layout: str = "", model: Mapping[str, Any] | None = None
    ) -> None:
        if keep < 1:
            raise CheckpointError(f"{keep} checkpoints cannot be kept.", legal=["1 or more"])
        self.directory = Path(directory)
        self.keep = keep
        self.layout = layout
        self.model = json.loads(json.dumps(dict(model or {})))
        self.ranks = Ranks()
        self._ownership = Ownership(self.ranks)
        self._stage = Stage()
        self._writing: threading.Thread | None = None
        self._failure: CheckpointError | None = None
        self._verified: Path | None = None
        """Whose bytes `latest` has looked at."""

    def check(self, parts: Sequence[Part], states: Iterable[StateBox] = ()) -> None:
        """Raises CheckpointError if a save would fail now: for the start of a run, when nothing can be lost yet.

        Looks whether the folder can be written, all nodes share it, the disk has room for one checkpoint, and the boxes
        make up whole tensors.
        """
        self.wait()
        _, ticket = self._begin(0, parts, states, 0)
        self.ranks.decide(lambda: shutil.rmtree(ticket.temporary, ignore_errors=True))

    def save(
        self, state: TrainState, parts: Sequence[Part], states: Iterable[StateBox] = (), *, asynchronous: bool = True
    ) -> None:
        """Save the run as it is now. Asynchronous: returns when the numbers are copied, and writes them behind.

        One save is in flight at most; the next one, or `wait`, raises what went wrong with it. Raises CheckpointError
        before anything is written when the disk has no room or the boxes do not make up whole tensors.
        """
        self.wait()  # before anything collective: the save in flight talks on the same group
        text = self.ranks.agree(lambda: state_json(state))
        mine, ticket = self._begin(state.step, parts, states, len(text))
        if not asynchronous:
            self._write(ticket, mine, text, state.random)
            return
        staged = self._stage.copy(mine)
        self._writing = threading.Thread(
            target=self._write_behind,
            args=(ticket, staged, text, dict(state.random)),
            name="checkpoint",
            daemon=True,  # a rank whose main thread failed must not wait here for the others
        )
        self._writing.start()

    def wait(self) -> None:
        """Return when no save is in flight. Raises CheckpointError if the last one failed, on every rank."""
        if self._writing is not None:
            self._writing.join()
            self._writing = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def latest(self) -> Path | None:
        """The newest whole checkpoint, every byte looked at: what a run resumes from. None when there is none yet.

        Damaged ones are passed over with a warning in the log. Raises CheckpointError when all are damaged.
        """
        self.wait()
        first: CheckpointError | None = None
        for path in self.ranks.decide(lambda: whole_checkpoints(self.directory)):
            try:
                verify(path, self.ranks.agree(partial(read_manifest, path)), self.ranks)
            except CheckpointError as error:
                first = first or error
                if self.ranks.first:
                    logger.warning("%s It is passed over.", error)
                continue
            self._verified = path
            return path
        if first is not None:
            raise none_is_whole(self.directory, first)
        return None

    def load(
        self,
        path: Path | str,
        parts: Sequence[Part],
        states: Iterable[StateBox] = (),
        *,
        weights_only: bool = False,
        cast: bool = False,
    ) -> TrainState:
        """Read a checkpoint, saved under any layout, into the parts and states; see `load_checkpoint`."""
        self.wait()
        return load_checkpoint(
            Path(path),
            parts,
            states,
            ranks=self.ranks,
            layout=self.layout,
            model=self.model,
            weights_only=weights_only,
            cast=cast,
            verified=Path(path) == self._verified,
        )

    def __enter__(self) -> CheckpointStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.wait()

    def _begin(
        self, step: int, parts: Sequence[Part], states: Iterable[StateBox], more: int
    ) -> tuple[list[Box], Ticket]:
        """What this rank writes, and where. Raises CheckpointError if it cannot be; nothing is written then."""
        mine = self._ownership.mine([*part_boxes(parts), *state_boxes(states)])
        needed = self._ownership.total_bytes + BYTES_PER_BOX * (self._ownership.total_boxes + 16) + more
        ticket = self.ranks.decide(lambda: open_ticket(self.directory, step, needed))
        self.ranks.agree(lambda: self._see(ticket))
        return mine, ticket

    def _see(self, ticket: Ticket) -> None:
        if not ticket.temporary.is_dir():
            raise CheckpointError(
                f"Rank {self.ranks.rank} does not see {ticket.temporary}: "
                "checkpoints need a folder that all nodes share."
            )

    def _write_behind(self, ticket: Ticket, boxes: list[Box], text: str, random: Mapping[str, str]) -> None:
        try:
            self._write(ticket, boxes, text, random)
        except CheckpointError as error:
            self._failure = error

    def _write(self, ticket: Ticket, boxes: list[Box], text: str, random: Mapping[str, str]) -> None:
        """Write and publish. Raises CheckpointError, on every rank, if it failed on any."""
        writer = CheckedWriter(ticket.temporary)
        try:
            self.ranks.agree(self._stage.ready)
            save(
                {},
                storage_writer=writer,
                planner=BoxSavePlanner(boxes),
                process_group=self.ranks.group,
                no_dist=self.ranks.group is None,
            )
            gathered = self.ranks.gather((writer.files.facts, dict(random)))
            self.ranks.decide(lambda: self._finish(ticket, gathered, text))
        except (Exception, CheckpointException) as error:
            if self.ranks.first:
                shutil.rmtree(ticket.temporary, ignore_errors=True)
            raise CheckpointError(
                f"The checkpoint of step {ticket.step} was not saved: {describe(error)}. Earlier ones are untouched."
            ) from error

    def _finish(self, ticket: Ticket, gathered: list[tuple[dict[str, FileFacts], dict[str, str]]], text: str) -> None:
        """Rank 0, when every rank's data is on the disk: state, manifest, name."""
        files = {name: facts for written, _ in gathered for name, facts in written.items()}
        files[STATE_FILE] = write_file(ticket.temporary / STATE_FILE, text.encode())
        random = json.dumps([states for _, states in gathered])
        files[RANDOM_FILE] = write_file(ticket.temporary / RANDOM_FILE, random.encode())
        manifest = Manifest(
            format=FORMAT,
            step=ticket.step,
            sequence=ticket.sequence,
            layout=self.layout,
            world_size=self.ranks.world,
            model=self.model,
            meshwright=meshwright.__version__,
            torch=torch.__version__,
            saved_at=datetime.now(UTC).isoformat(timespec="seconds"),
            files=files,
        )
        # A rank that writes to another disk than rank 0 reads is noticed here.
        if damage := find_damage(ticket.temporary, manifest):
            raise CheckpointError(f"{damage} Do all nodes share {self.directory}?")
        write_file(ticket.temporary / MANIFEST_FILE, manifest.to_json().encode())
        publish(ticket, self.keep)
