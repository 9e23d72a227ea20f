"""How supervisors under torchrun tell what became of their children."""

from __future__ import annotations

from meshwright.bench.joined import STOPPED, _joined
from meshwright.bench.result import DONE, FAILED, OUT_OF_MEMORY, REFUSED, TIMED_OUT
from meshwright.train.launch.failures import Failure

ECHO = Failure(1, 10.0, "RuntimeError", "Connection closed by peer [127.0.0.1]:4242")


def test_a_child_that_the_kernel_killed_is_the_cause_and_its_peers_errors_are_echoes() -> None:
    found = _joined([(-9, None, []), (1, None, [ECHO])], 60)
    assert found.status == OUT_OF_MEMORY
    assert "SIGKILL" in found.reason


def test_a_timeout_stays_one_though_peers_lose_their_connection_meanwhile() -> None:
    assert _joined([(TIMED_OUT, None, []), (1, None, [ECHO])], 60).status == TIMED_OUT
    assert _joined([(TIMED_OUT, None, []), (STOPPED, None, [])], 60).reason == "still running after 60 s"


def test_what_a_rank_says_itself_counts_more_than_how_it_ended() -> None:
    own = Failure(0, 9.0, "ValueError", "shapes differ")
    found = _joined([(1, None, [own]), (STOPPED, None, [ECHO])], 60)
    assert (found.status, found.reason) == (FAILED, "ValueError: shapes differ")
    wrong = Failure(0, 9.0, "ConfigError", "no such key", is_request=True, exit_code=2)
    assert _joined([(2, None, [wrong]), (STOPPED, None, [])], 60).status == REFUSED


def test_all_numbers_together_are_a_run_that_is_done() -> None:
    assert _joined([(0, {"rank": 0}, []), (0, {"rank": 1}, [])], 60).status == DONE
    assert _joined([(0, {"rank": 0}, []), (0, None, [])], 60).status == FAILED
