"""Which failure is shown first."""

from __future__ import annotations

import pytest

from meshwright.train.launch.failures import Failure, death_of, failure_of, root_cause

# What PyTorch says on a rank whose peer has gone.
GLOO = "[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:3547"
NCCL = "NCCL error in: x.cpp:1, remote process exited or there was a network error, NCCL version 2.27"
STORE = "failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?"


@pytest.mark.parametrize(
    ("kind", "text"), [("RuntimeError", GLOO), ("DistBackendError", NCCL), ("DistNetworkError", STORE)]
)
def test_a_peers_echo_never_hides_the_error_behind_it(kind: str, text: str) -> None:
    echo = Failure(0, 1.0, kind, text)
    assert root_cause([echo, Failure(3, 2.0, "ValueError", "mine")]).rank == 3
    assert root_cause([echo, death_of(2, -9, 2.0)]).rank == 2


def test_of_two_errors_the_earlier_is_shown() -> None:
    assert root_cause([Failure(0, 2.0, "ValueError", "b"), Failure(1, 1.0, "KeyError", "a")]).rank == 1


def test_an_own_error_with_an_echos_words_is_no_echo() -> None:
    assert not Failure(0, 1.0, "ValueError", "the word: Connection closed by peer").is_echo


def test_with_echoes_only_the_first_is_shown() -> None:
    assert root_cause([Failure(0, 2.0, "RuntimeError", GLOO), Failure(1, 1.0, "RuntimeError", GLOO)]).rank == 1


def test_a_failure_says_where_it_came_from() -> None:
    try:
        int("x")
    except ValueError as error:
        failure = failure_of(1, error)
    assert "test_failures.py" in failure.where
    assert failure.where.endswith('int("x")')
    assert failure.headline == "ValueError: invalid literal for int() with base 10: 'x'"


def test_deaths_are_named_by_signal_or_exit_code() -> None:
    assert death_of(0, 3).headline == "ended with exit code 3"
    assert death_of(0, -9).headline == "killed by SIGKILL (killed by the kernel: out of host memory?)"
    assert death_of(0, -11).headline == "killed by SIGSEGV (a crash in native code)"
