"""Which link failed, by counting ends. Lines as in NVIDIA/nccl#1405 and #1814."""

from __future__ import annotations

from pathlib import Path

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import LIKELY, Finding


def failed(host: str, peer: str, hca: str, status: int = 12, vendor: int = 129) -> str:
    return (
        f"{host}:984:1357 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer {peer}<44206> with "
        f"status={status} opcode=129 len=65536 vendor err {vendor} (Recv) localGid ::ffff:10.0.0.1 remoteGids"
        f"::ffff:10.0.0.2 hca {hca}\n"
    )


def first(folder: Path, text: str) -> Finding:
    (folder / "job.log").write_text(text)
    return next(one for one in diagnose([folder]).findings if "transfers" in one.cause)


def test_the_device_in_most_pairs_is_held_for_the_faulty_one(tmp_path: Path) -> None:
    text = "".join(failed("node-a", f"10.0.0.{at}", "mlx5_10") for at in range(2, 7)) + failed(
        "node-b", "10.0.0.2", "mlx5_0"
    )
    found = first(tmp_path, text)
    assert (found.category, found.confidence) == ("network_error", LIKELY)
    assert "mlx5_10 of node-a is in most of them" in found.cause


def test_a_peer_that_nobody_reaches_is_held_for_the_faulty_end(tmp_path: Path) -> None:
    found = first(tmp_path, "".join(failed(f"node-{at}", "10.0.0.9", f"mlx5_{at}") for at in range(4)))
    assert "peer 10.0.0.9 is in most of them" in found.cause


def test_of_one_pair_no_end_is_blamed(tmp_path: Path) -> None:
    found = first(tmp_path, failed("node-a", "10.0.0.2", "mlx5_0") * 3)
    assert "in most of them" not in found.cause


def test_flushed_transfers_are_consequences(tmp_path: Path) -> None:
    text = failed("node-a", "10.0.0.2", "mlx5_0") + failed("node-a", "10.0.0.2", "mlx5_0", 5, 249) * 7
    found = first(tmp_path, text)
    assert found.cause.startswith("1 transfers")
    assert "7 flushed" in found.cause
    assert "retries exceeded" in found.cause
