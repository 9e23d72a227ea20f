"""Hosts: what nvidia-smi, the kernel, lspci, df, p2pBandwidthLatencyTest and py-spy print, as in public reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import CERTAIN, INFO, LIKELY, POSSIBLE, Finding


def said(folder: Path, **texts: str) -> tuple[Finding, ...]:
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
    return diagnose([folder]).findings


def only(found: tuple[Finding, ...]) -> Finding:
    assert len(found) == 1, found
    return found[0]


# pytorch#23138: four processes, all of which have a context on GPU 0.
SHARED = """\
|  GPU       PID   Type   Process name                             Usage      |
|=============================================================================|
|    0     62250      C   /usr/bin/python3.6                          4903MiB |
|    0     62251      C   /usr/bin/python3.6                           725MiB |
|    0     62252      C   /usr/bin/python3.6                           725MiB |
|    1     62251      C   /usr/bin/python3.6                          4903MiB |
|    2     62252      C   /usr/bin/python3.6                          4903MiB |
"""


def test_processes_that_also_hold_memory_on_the_first_gpu_are_a_skew_of_rank_zero(tmp_path: Path) -> None:
    found = only(said(tmp_path, smi=SHARED))
    assert (found.category, found.confidence) == ("oom_rank0_skew", LIKELY)
    assert "2 processes" in found.cause
    assert "1,450 MiB" in found.cause  # 2 x 725
    assert {one.line for one in found.evidence} == {4, 5, 6, 7}


def test_the_table_with_instances_of_newer_drivers_is_read_too(tmp_path: Path) -> None:
    # Layout of pytorch#64130.
    rows = [(0, 331903, 1733), (0, 331904, 500), (1, 331904, 1717)]
    table = "".join(f"|    {gpu}   N/A  N/A    {pid}      C   ...bin/python     {mib}MiB |\n" for gpu, pid, mib in rows)
    assert only(said(tmp_path, smi=table)).category == "oom_rank0_skew"


@pytest.mark.parametrize(
    "rows",
    [
        [(0, 1001, 9000), (1, 1001, 9000), (2, 1001, 9000)],  # one process with all GPUs: DataParallel, device_map
        [(0, 1001, 9000), (1, 1002, 9000), (2, 1003, 9000)],
        [(0, 331903, 1733), (0, 331904, 0), (1, 331903, 0), (1, 331904, 1717)],  # pytorch#64130: rows of 0 MiB
    ],
)
def test_one_process_with_all_gpus_and_a_gpu_for_each_process_are_healthy(
    tmp_path: Path, rows: list[tuple[int, int, int]]
) -> None:
    table = "".join(f"|    {gpu}   N/A  N/A   {pid}      C   python        {mib}MiB |\n" for gpu, pid, mib in rows)
    assert said(tmp_path, smi=table) == ()


GPUS = """\
| NVIDIA-SMI 470.63.01    Driver Version: 470.63.01    CUDA Version: 11.4     |
|===============================+======================+======================|
|   0  NVIDIA A100-SXM...  On   | 00000000:4B:00.0 Off |                    0 |
| N/A   34C    P0    64W / 400W |   8559MiB / 40536MiB |      0%      Default |
|   1  NVIDIA A100-SXM...  On   | 00000000:4C:00.0 Off |                    {ecc} |
| {fan}   34C    P0    64W / 400W |   8559MiB / 40536MiB |      0%      Default |
"""


def test_uncorrectable_errors_and_unreadable_values_in_the_gpu_table_are_faults_of_that_gpu(tmp_path: Path) -> None:
    assert said(tmp_path, smi=GPUS.format(ecc=0, fan="N/A")) == ()
    found = said(tmp_path, smi=GPUS.format(ecc=3, fan="ERR!"))
    assert {one.category for one in found} == {"hardware_fault"}
    assert all(one.cause.startswith("GPU 1:") for one in found)
    assert len(found) == 2


REASONS = """\
GPU 00000000:3B:00.0
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Active
        HW Slowdown                       : {slow}
            HW Thermal Slowdown           : Not Active
        SW Thermal Slowdown               : Not Active
"""


def test_a_hardware_slowdown_is_a_straggler_and_a_power_cap_is_not(tmp_path: Path) -> None:
    # open_clip#703: a software power cap is usual under load, the hardware's slowdown is not.
    assert said(tmp_path, smi=REASONS.format(slow="Not Active") + "2024-01-01 00:00:00 INFO\n") == ()
    found = only(said(tmp_path, smi=REASONS.format(slow="Active")))
    assert (found.category, found.confidence) == ("straggler_gpu", LIKELY)
    assert "00000000:3B:00.0" in found.cause


def test_an_xid_that_names_broken_hardware_is_certain_and_one_of_a_program_is_not_blamed_on_it(tmp_path: Path) -> None:
    # NVIDIA's XID catalogue: 79 the bus, 31 an illegal address of the program.
    lost = "[1843.30] NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
    found = only(said(tmp_path, dmesg=lost))
    assert (found.category, found.confidence) == ("hardware_fault", CERTAIN)
    assert "0000:44:00" in found.cause
    (tmp_path / "dmesg.txt").unlink()
    fault = "[1843.30] NVRM: Xid (PCI:0000:44:00): 31, pid=77, name=python, Ch 00000008, intr 10000000. MMU Fault\n"
    assert only(said(tmp_path, other=fault)).severity == INFO


def test_a_device_that_nvidia_smi_has_lost_and_a_broken_link_are_faults(tmp_path: Path) -> None:
    # returnn#1486
    lost = "Unable to determine the device handle for GPU0000:03:00.0: Unknown Error\n"
    link = "pcieport 0000:00:03.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)\n"
    found = said(tmp_path, smi=lost, dmesg=link)
    assert [(one.category, one.confidence) for one in found] == [("hardware_fault", LIKELY)] * 2
    assert "0000:03:00.0" in found[0].cause
    (tmp_path / "smi.txt").unlink()
    assert only(said(tmp_path, dmesg=link)).confidence == POSSIBLE  # corrected errors alone are common


def test_acs_that_redirects_is_likely_and_without_redirection_possible(tmp_path: Path) -> None:
    on = "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir{0} CmpltRedir{0} UpstreamFwd+ EgressCtrl- DirectTrans-\n"
    off = "\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-\n"
    found = only(said(tmp_path, lspci=off + on.format("+")))
    assert (found.category, found.confidence) == ("p2p_acs_iommu", LIKELY)
    assert only(said(tmp_path, lspci=off + on.format("-"))).confidence == POSSIBLE
    assert said(tmp_path, lspci=off + "INFO\n") == ()


BANDWIDTH = """\
Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1      2
     0 673.20  13.15  13.15
     1  13.15 673.20  13.15
     2  13.15  13.15 673.20
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1      2
     0 673.49  {pair}   {pair}
     1  {pair} 673.49   {pair}
     2  {pair}  {pair}  673.49
P2P=Disabled Latency Matrix (us)
   GPU     0      1      2
     0   1.60  14.60  14.60
"""


def test_peers_that_are_slower_with_p2p_than_without_are_behind_acs_or_an_iommu(tmp_path: Path) -> None:
    # ml-engineering#1: 2.6 and 1.6 GB/s with P2P, 13 without. nccl#1264: a healthy NVLink machine has ten times more.
    found = only(said(tmp_path, p2p=BANDWIDTH.format(pair="2.60")))
    assert (found.category, found.confidence) == ("p2p_acs_iommu", LIKELY)
    assert "6 pairs" in found.cause
    assert said(tmp_path, p2p=BANDWIDTH.format(pair="371.02")) == ()
    assert said(tmp_path, p2p=BANDWIDTH.format(pair="12.40")) == ()  # within the test's own variance


def test_gpus_that_are_all_across_sockets_are_told_and_nvlink_is_not(tmp_path: Path) -> None:
    header = "        GPU0    GPU1    GPU2    NIC0    CPU Affinity    NUMA Affinity\n"
    rows = "".join(
        f"GPU{row}    " + "    ".join("X" if row == col else "{link}" for col in range(3)) + "    {nic}    0-15   0\n"
        for row in range(3)
    )
    # transformers#9371
    found = only(said(tmp_path, topo=header + rows.format(link="SYS", nic="PIX")))
    assert (found.category, found.confidence) == ("p2p_acs_iommu", POSSIBLE)
    assert said(tmp_path, topo=header + rows.format(link="NV18", nic="PIX")) == ()
    assert only(said(tmp_path, topo=header + rows.format(link="NV18", nic="SYS"))).category == "gpudirect_rdma_off"


@pytest.mark.parametrize(
    ("line", "small"),
    [
        ("shm              64M     0   64M   0% /dev/shm\n", True),  # df -h in a container of Docker's default
        ("shm               65536       0     65536   0% /dev/shm\n", True),
        ("tmpfs           252G  250G  2.0G  99% /dev/shm\n", True),
        ("tmpfs           252G     0  252G   0% /dev/shm\n", False),
    ],
)
def test_a_small_or_full_shm_is_told(tmp_path: Path, line: str, small: bool) -> None:
    assert [one.category for one in said(tmp_path, df=line)] == (["shm_too_small"] if small else [])


@pytest.mark.parametrize(
    ("line", "pinned"),
    [
        ("worker 3: os.sched_getaffinity(0) = {5}\n", True),
        ("pid 4242's current affinity list: 0\n", True),
        ("Cpus_allowed_list:\t7\n", True),
        ("pid 4242's current affinity list: 0-63\n", False),
        ("INFO worker 3: sched_getaffinity(0) = {0, 1, 2, 3}\n", False),
    ],
)
def test_a_process_on_one_core_is_told(tmp_path: Path, line: str, pinned: bool) -> None:
    assert [one.category for one in said(tmp_path, host=line)] == (["cpu_affinity"] if pinned else [])


def dump(pid: int, *frames: str) -> str:
    lines = "".join(f"    {one}\n" for one in frames)
    tail = 'Thread 928 (idle): "Thread-1"\n    wait (threading.py:324)\n    run (tqdm/_monitor.py:60)\n'
    return f'Process {pid}: python -u train.py\nPython v3.11.7\n\nThread {pid} (active): "MainThread"\n{lines}{tail}'


IN_COLLECTIVE = (
    "all_gather_into_tensor (torch/distributed/distributed_c10d.py:2709)",
    "wrapper (torch/distributed/c10d_logger.py:72)",
    "train (train.py:9)",
)


@pytest.mark.parametrize(
    ("frames", "category"),
    [
        (("compile_fx (torch/_inductor/compile_fx.py:100)", "train (train.py:7)"), "compile_skew"),
        (("_try_get_data (torch/utils/data/dataloader.py:1120)", "train (train.py:5)"), "dataloader_bound"),
        (("save (torch/serialization.py:850)", "save_checkpoint (train.py:40)"), "long_non_collective_section"),
        (("preprocess (data.py:12)", "main (train.py:3)"), "long_non_collective_section"),
    ],
)
def test_the_rank_that_is_elsewhere_while_others_wait_is_named(
    tmp_path: Path, frames: tuple[str, ...], category: str
) -> None:
    texts = {f"rank{rank}": dump(100 + rank, *(frames if rank == 2 else IN_COLLECTIVE)) for rank in range(4)}
    found = only(said(tmp_path, **texts))
    assert (found.category, found.confidence, found.ranks) == (category, POSSIBLE, (2,))


def test_when_all_ranks_are_in_a_collective_nobody_is_blamed(tmp_path: Path) -> None:
    assert said(tmp_path, **{f"rank{rank}": dump(100 + rank, *IN_COLLECTIVE) for rank in range(4)}) == ()


def test_a_launcher_and_workers_of_a_loader_are_not_blamed(tmp_path: Path) -> None:
    launcher = dump(1, "sleep (time.py:1)", "_monitor_workers (torch/distributed/elastic/agent/server/api.py:900)")
    worker = dump(2, "get (multiprocessing/queues.py:113)", "_worker_loop (torch/utils/data/_utils/worker.py:275)")
    texts = {f"rank{rank}": dump(100 + rank, *IN_COLLECTIVE) for rank in range(2)}
    assert said(tmp_path, launcher=launcher, loader=worker, **texts) == ()
