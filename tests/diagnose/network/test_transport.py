"""What NCCL says of its transport. Lines have the form that NCCL 2.13 to 2.27 print (issues of NVIDIA/nccl)."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import INFO, LIKELY, POSSIBLE, WARNING, Finding
from meshwright.diagnose.network.transport import matches


def info(host: str, text: str, device: int = 0) -> str:
    return f"{host}:4210:4260 [{device}] NCCL INFO {text}\n"


def findings(folder: Path, text: str) -> tuple[Finding, ...]:
    (folder / "job.log").write_text(text)
    return diagnose([folder]).findings


def healthy(host: str) -> str:
    """Two nodes of H100 that speak over InfiniBand with GPUDirect RDMA."""
    return "".join(
        info(host, text)
        for text in (
            "Bootstrap : Using eth0:10.100.62.64<0>",
            "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.100.62.64<0>",
            "Using network IB",
            "ncclCommInitRank comm 0x8ec0ac0 rank 6 nranks 16 cudaDev 6 busId c8000 commId 0x49bb - Init START",
            "Channel 00/0 : 1[1] -> 8[0] [send] via NET/IB/0/GDRDMA",
            "Channel 01/0 : 8[0] -> 0[0] [receive] via NET/IB/1/GDRDMA",
            "Channel 00/0 : 1[1] -> 2[2] via P2P/CUMEM/read",
            "Connected all rings, use ring PXN 0 GDR 1",
        )
    )


def test_two_nodes_with_gpudirect_rdma_are_healthy(tmp_path: Path) -> None:
    assert findings(tmp_path, healthy("node-a") + healthy("node-b")) == ()


def test_sockets_on_one_node_are_no_fault(tmp_path: Path) -> None:
    text = info("node-a", "NET/IB : No device found.") + info("node-a", "NET/Socket : Using [0]eth0:10.0.0.3<0>")
    text += info("node-a", "Using network Socket") + info("node-a", "Channel 00 : 0[0] -> 1[1] via P2P/IPC")
    assert findings(tmp_path, text) == ()


def test_sockets_between_nodes_where_no_device_was_found(tmp_path: Path) -> None:
    text = "".join(
        info(host, "NET/IB : No device found.") + info(host, f"NET/Socket : Using [0]eth0:10.0.0.{at}<0>")
        + info(host, "Using network Socket") + info(host, "Channel 00/0 : 1[0] -> 0[0] [send] via NET/Socket/0")
        for at, host in enumerate(("node-a", "node-b"))
    )  # fmt: skip
    (first,) = findings(tmp_path, text)
    assert (first.category, first.severity, first.confidence) == ("slow_network_wrong_transport", WARNING, LIKELY)
    assert "no RDMA device was found" in first.cause


def test_infiniband_that_was_turned_off_is_said_to_be(tmp_path: Path) -> None:
    text = "".join(
        info(host, "NCCL_IB_DISABLE set by environment to 1.") + info(host, "Using network Socket")
        for host in ("node-a", "node-b")
    )
    (first,) = findings(tmp_path, text)
    assert (first.category, first.confidence) == ("slow_network_wrong_transport", LIKELY)
    assert first.change[0].startswith("Unset NCCL_IB_DISABLE")


def test_one_host_of_three_on_sockets_is_named(tmp_path: Path) -> None:
    text = healthy("node-a") + healthy("node-b") + info("node-c", "Using network Socket")
    first = findings(tmp_path, text)[0]
    assert first.category == "slow_network_wrong_transport"
    assert first.cause.startswith("node-c took sockets")


def test_a_plug_in_without_efa_falls_back(tmp_path: Path) -> None:
    # NVIDIA/nccl#398
    text = "[7] ofi_init:700 NCCL WARN NET/OFI Only EFA provider is supported\n" + info(
        "ip-1", "NET/IB : No device found."
    )
    (first,) = findings(tmp_path, text + info("ip-1", "NET/Socket : Using [0]ens5:10.0.0.1<0>"))
    assert (first.category, first.confidence) == ("slow_network_wrong_transport", LIKELY)
    assert "FI_PROVIDER=efa" in first.change[0]


@pytest.mark.parametrize(
    ("name", "wanted", "fits"),
    [
        ("eth0", "eth", True), ("eth0", "=eth", False), ("eth0", "=eth0", True), ("docker0", "^docker,lo", False),
        ("ib0", "^docker,lo", True), ("ens5", "eth0,ens5", True), ("eno1", "enp37s0f0", False),
    ],
)  # fmt: skip
def test_interfaces_are_asked_for_as_nccls_documentation_says(name: str, wanted: str, fits: bool) -> None:
    assert matches(name, wanted) is fits


def test_another_interface_than_asked_for(tmp_path: Path) -> None:
    text = info("node-a", "NCCL_SOCKET_IFNAME set by environment to enp37s0f0") + info(
        "node-a", "NET/Socket : Using [0]eno1:192.168.1.4<0>"
    )
    first = findings(tmp_path, text)[0]
    assert (first.category, first.severity, first.confidence) == ("slow_network_wrong_nic", WARNING, LIKELY)
    assert "took eno1" in first.cause


def test_a_bridge_of_docker_leads_to_no_other_node(tmp_path: Path) -> None:
    text = "".join(info(host, "Bootstrap : Using docker0:172.17.0.1<0>") for host in ("node-a", "node-b"))
    first = findings(tmp_path, text)[0]
    assert (first.category, first.confidence) == ("slow_network_wrong_nic", LIKELY)


def test_channels_without_gdrdma_go_through_the_host(tmp_path: Path) -> None:
    text = healthy("node-a").replace("/GDRDMA", "").replace("GDR 1", "GDR 0")
    (first,) = findings(tmp_path, text + healthy("node-b").replace("/GDRDMA", "").replace("GDR 1", "GDR 0"))
    assert (first.category, first.severity, first.confidence) == ("gpudirect_rdma_off", WARNING, LIKELY)
    assert "none of 4 channels" in first.cause


def test_a_few_channels_without_gdrdma_are_nccls_choice(tmp_path: Path) -> None:
    text = healthy("node-a") + info("node-a", "Channel 02/0 : 3[3] -> 9[1] [send] via NET/IB/5")
    assert findings(tmp_path, text) == ()


def test_the_level_that_turns_gpudirect_off_is_named(tmp_path: Path) -> None:
    text = info("node-a", "NCCL_NET_GDR_LEVEL set by environment to LOC") + healthy("node-a").replace("/GDRDMA", "")
    text = text.replace("GDR 1", "GDR 0")
    first = findings(tmp_path, text)[0]
    assert first.category == "gpudirect_rdma_off"
    assert "NCCL_NET_GDR_LEVEL" in first.cause


def test_nvlink_without_peer_to_peer_is_likely_acs(tmp_path: Path) -> None:
    text = info("node-a", "P2P is disabled between NVLINK connected GPUs 1 and 0. This should not be the case.")
    text += info("node-a", "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct")
    first = findings(tmp_path, text)[0]
    assert (first.category, first.confidence) == ("p2p_acs_iommu", LIKELY)


def test_shared_memory_alone_is_only_told(tmp_path: Path) -> None:
    found = findings(tmp_path, info("node-a", "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"))
    assert [(one.category, one.severity, one.confidence) for one in found] == [("p2p_acs_iommu", INFO, POSSIBLE)]


def test_a_segment_that_cannot_be_made_is_told_with_its_size(tmp_path: Path) -> None:
    # NVIDIA/nccl-tests#166; 5,967,872 bytes are 5.69 MiB.
    text = "misc/shmutils.cc:112 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x (size 5967872)\n"
    found = [one for one in findings(tmp_path, text) if "5.69 MiB" in one.cause]
    assert [one.category for one in found] == ["shm_too_small"]


def test_gpudirect_that_the_driver_refuses_is_off(tmp_path: Path) -> None:
    # NVIDIA/nccl#1537
    text = info("node-a", "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.10.10.10<0>")
    (first,) = findings(tmp_path, text + info("node-a", "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"))
    assert (first.category, first.confidence) == ("gpudirect_rdma_off", LIKELY)


def test_one_pair_that_is_too_far_apart_is_no_fault(tmp_path: Path) -> None:
    # NVIDIA/nccl#1151
    text = healthy("node-a") + info("node-a", "GPU Direct RDMA Disabled for GPU ca000 / HCA 0 (distance 7 > 4)")
    assert findings(tmp_path, text) == ()


def test_one_node_has_nothing_to_send_by_gpudirect_rdma(tmp_path: Path) -> None:
    text = info("node-a", "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.10.10.10<0>")
    text += info("node-a", "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM") + info("node-a", "Connected all rings, GDR 0")
    assert findings(tmp_path, text) == ()
