"""Ledger: every storage that the program makes, from when to when, and what every operation computes.

A dispatch mode in front of the fake tensors sees each operation's outputs. A storage counts from its first tensor until
its last one is gone, with the bytes that its tensors ask for (an allocator rounds each up). What is made of tensors on
the host is there too. What a kernel takes inside and gives back is not seen. FSDP2 frees gathered parameters by
resizing their storage, which no operation shows: while the ledger is open, that call is listened to.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import torch
from torch._C._distributed_c10d import FakeWork
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from meshwright.modes.record import note
from meshwright.rehearse.flops import flops_of
from meshwright.rehearse.places import Phase, Places

aten = torch.ops.aten
prim_device = torch.ops.prim.device.default


@dataclass(slots=True)
class Block:
    """One piece of memory."""

    bytes: int
    born: int
    """Index of the event that made it."""
    phase: Phase
    module: str
    step: int
    gathered: bool = False
    """Its size came and went: a parameter that FSDP2 gathers."""
    died: int = -1
    """Index of the event that freed it; -1: it lives."""
    died_phase: Phase | None = None
    tag: str = ""
    """What the program says it is."""
    again: bool = False
    """Made by a forward that runs again in backward."""
    host: bool = False
    """In the host's memory, and not on the device."""


@dataclass(frozen=True, slots=True)
class Event:
    """Bytes more or fewer."""

    block: int
    bytes: int
    phase: Phase
    module: str
    step: int


@dataclass
class Account:
    """What a ledger holds."""

    blocks: list[Block] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    work: dict[tuple[int, Phase, str, str], float] = field(default_factory=dict)
    """FLOPs by step, phase, module and kind of operation."""
    operations: int = 0


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes an Account while entered; `places` says where the program is."""

    def __init__(self, places: Places) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.account = Account()
        self.step = 0
        self.inside = ""
        """Tag of what is made now."""
        self._places = places
        self._open: dict[int, int] = {}
        """Block of each storage that lives."""
        self._watched: dict[int, weakref.ref[Any]] = {}
        self._resize: Any = None
        self._real = False
        self._hosted = False
        """Whether anything is on the host."""
        self._place: bool | None = None

    def __enter__(self) -> Ledger:
        self._resize = torch.UntypedStorage.resize_
        ledger, original = self, self._resize

        def resize_(storage: torch.UntypedStorage, size: int) -> Any:
            done = original(storage, size)
            ledger._resized(storage, size)
            return done

        torch.UntypedStorage.resize_ = resize_  # type: ignore[assignment]
        return super().__enter__()  # type: ignore[no-any-return, no-untyped-call]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]

    def block_of(self, tensor: torch.Tensor) -> Block | None:
        """The memory of a tensor, of a DTensor that of its shard; None: it is not known here."""
        local = getattr(tensor, "_local_tensor", tensor)
        index = self._open.get(local.untyped_storage()._cdata)
        return None if index is None else self.account.blocks[index]

    def on_host(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is in the host's memory."""
        block = self.block_of(tensor)
        return block is not None and block.host

    def put_on_host(self, tensor: torch.Tensor) -> None:
        """Say that a tensor has been in the host's memory since it was made."""
        block = self.block_of(tensor)
        if block is not None:
            block.host = self._hosted = True

    @contextmanager
    def placing(self, *, host: bool) -> Iterator[None]:
        """Inside, what is made is on the host, or on the device, wherever it is made of."""
        self._place, self._hosted = host, self._hosted or host
        try:
            yield
        finally:
            self._place = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # what it does to the local tensors comes here again
        if func is prim_device and isinstance(args[0], FakeTensor):
            return args[0].fake_device  # asked for more often than everything else together
        kwargs = kwargs or {}
        if self._real and self._stays_real(func, args, kwargs):
            with _disable_current_modes():
                return func(*args, **kwargs)
        self.account.operations += 1
        if func.namespace == "c10d":
            return _pretended(func, args)
        if func is aten.bincount.default:
            # How long the result is depends on numbers; everywhere here it is what the caller asks for at least.
            out = args[0].new_empty(kwargs.get("minlength", args[2] if len(args) > 2 else 0), dtype=torch.int64)
        else:
            out = func(*args, **kwargs)
        found = flops_of(func, args, kwargs, out)
        if found is not None:
            self._worked(*found)
        host = self._hosted and self._lands_on_host(args, kwargs)
        if isinstance(out, torch.Tensor):
            self._seen(out, host)
        elif isinstance(out, (tuple, list)):
            for one in out:
                if isinstance(one, torch.Tensor):
                    self._seen(one, host)
                elif isinstance(one, (tuple, list)):
                    for inner in one:
                        if isinstance(inner, torch.Tensor):
                            self._seen(inner, host)
        return out

    @contextmanager
    def real_numbers(self) -> Iterator[None]:
        """Inside, whole numbers that are made, and what is made of them, are real tensors that nobody counts."""
        self._real = True
        try:
            yield
        finally:
            self._real = False

    def _stays_real(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if tensors:
            return not any(isinstance(tensor, FakeTensor) for tensor in tensors)
        return kwargs.get("dtype") in (torch.int32, torch.int64)

    def _lands_on_host(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether what an operation makes of these is on the host, as they are, or as `placing` says."""
        if self._place is not None:
            return self._place
        return any(self.on_host(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, FakeTensor))

    def _worked(self, kind: str, flops: float) -> None:
        key = self.step, self._places.phase, self._places.module, kind
        self.account.work[key] = self.account.work.get(key, 0.0) + flops

    def _seen(self, tensor: torch.Tensor, host: bool) -> None:
        if not isinstance(tensor, FakeTensor) or tensor.fake_device.type == "meta":
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._watched:
            self._watched[key] = weakref.ref(storage, lambda _: self._gone(key))
            size = storage.nbytes()
            if size:
                self._made(key, size, host=host)

    def _made(self, key: int, size: int, *, gathered: bool = False, host: bool = False) -> None:
        account, phase, module = self.account, self._places.phase, self._places.module
        index = self._open[key] = len(account.blocks)
        again = phase.backward and self._places.called
        account.blocks.append(
            Block(
                size, len(account.events), phase, module, self.step, gathered, tag=self.inside, again=again, host=host
            )
        )
        account.events.append(Event(index, size, phase, module, self.step))

    def _freed(self, key: int) -> Block | None:
        index = self._open.pop(key, None)
        if index is None:
            return None
        block, phase = self.account.blocks[index], self._places.phase
        block.died, block.died_phase = len(self.account.events), phase
        self.account.events.append(Event(index, -block.bytes, phase, self._places.module, self.step))
        return block

    def _gone(self, key: int) -> None:
        self._watched.pop(key, None)
        self._freed(key)

    def _resized(self, storage: torch.UntypedStorage, size: int) -> None:
        key = storage._cdata
        if key not in self._watched:
            return
        block = self._freed(key)
        if block is not None:
            block.gathered = True
        if size:
            self._made(key, size, gathered=True)


def _pretended(func: Any, args: tuple[Any, ...]) -> Any:
    """What a collective gives back, done at once; who listens hears of it. (The fake process group does the same.)"""
    note(func._schema.name.partition("::")[2], args)
    work = FakeWork().boxed()
    return work if len(func._schema.returns) == 1 else (args[0], work)
