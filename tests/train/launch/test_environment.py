"""Who a process is, from the variables that launchers set."""

from __future__ import annotations

import pytest

from meshwright.spec.notation import parse_layout
from meshwright.train.launch.environment import ALONE, Place, check_world, fitting_layouts, read_place
from meshwright.train.launch.errors import LaunchError

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29400",
}
SRUN = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "9",
    "SLURM_NTASKS": "11",
    "SLURM_STEP_NUM_TASKS": "11",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
    "SLURM_STEP_NODELIST": "gpu[08-10]",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2),3",
}


def test_torchruns_variables_say_who_a_process_is() -> None:
    assert read_place(TORCHRUN) == Place(5, 8, 1, 4, 1, "10.0.0.1", 29400, "torchrun")


def test_ranks_of_the_own_launcher_have_torchruns_variables_and_a_mark() -> None:
    assert read_place({**TORCHRUN, "MESHWRIGHT_LAUNCHER": "local"}).launcher == "local"


def test_torchrun_inside_a_slurm_step_counts() -> None:
    assert read_place({**SRUN, **TORCHRUN}).launcher == "torchrun"


def test_a_slurm_step_says_who_a_process_is() -> None:
    place = read_place(SRUN)
    assert place == Place(9, 11, 1, 3, 2, "gpu08", place.port, "slurm")


def test_all_ranks_of_a_slurm_step_find_one_port_and_another_step_another() -> None:
    ports = {read_place({**SRUN, "SLURM_PROCID": str(rank)}).port for rank in range(8, 11)}
    assert len(ports) == 1
    assert read_place({**SRUN, "SLURM_STEP_ID": "1"}).port not in ports
    assert read_place({**SRUN, "SLURM_JOB_ID": "4712"}).port not in ports
    assert 1024 < ports.pop() < 32768


def test_a_slurm_step_takes_address_and_port_that_are_set() -> None:
    place = read_place({**SRUN, "MASTER_ADDR": "head", "MASTER_PORT": "1234"})
    assert (place.address, place.port) == ("head", 1234)


def test_a_process_without_a_launcher_is_alone() -> None:
    assert read_place({"HOME": "/"}) == ALONE


def test_a_slurm_step_of_one_task_is_alone() -> None:
    one = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "1"}
    assert read_place({**one, "SLURM_STEP_NODELIST": "gpu1"}) == ALONE


def test_the_batch_script_of_one_task_is_alone() -> None:
    assert read_place({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}) == ALONE


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"RANK": "0"}, "RANK is set, but not WORLD_SIZE, LOCAL_RANK"),
        ({"WORLD_SIZE": "4"}, "WORLD_SIZE is set, but RANK is not"),
        ({**TORCHRUN, "RANK": "8"}, r"RANK=8 cannot be\. Legal: 0 to 7 \(below WORLD_SIZE\)"),
        ({**TORCHRUN, "RANK": "-1"}, "RANK='-1' is not a whole number"),
        ({**TORCHRUN, "RANK": "one"}, "RANK='one' is not a whole number"),
        ({**TORCHRUN, "WORLD_SIZE": "0"}, r"WORLD_SIZE=0 cannot be\. Legal: 1 or more"),
        ({**TORCHRUN, "LOCAL_RANK": "4"}, r"LOCAL_RANK=4 cannot be\. Legal: 0 to 3"),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "9"}, r"LOCAL_WORLD_SIZE=9 cannot be\. Legal: 1 to 8"),
        ({**TORCHRUN, "MASTER_PORT": "99999"}, r"MASTER_PORT=99999 cannot be\. Legal: 1 to 65535"),
        ({**SRUN, "SLURM_PROCID": "11"}, r"SLURM_PROCID=11 cannot be\. Legal: 0 to 10 \(below SLURM_STEP_NUM_TASKS\)"),
        ({**SRUN, "SLURM_LOCALID": "3"}, r"SLURM_LOCALID=3 cannot be\. Legal: 0 to 2"),
        ({**SRUN, "SLURM_NODEID": "3"}, "has no node 3, which SLURM_NODEID names"),
        ({**SRUN, "SLURM_STEP_TASKS_PER_NODE": "4x2"}, "SLURM_STEP_TASKS_PER_NODE='4x2' is not a list of counts"),
        ({**SRUN, "SLURM_STEP_NODELIST": "gpu[08-"}, r"SLURM_STEP_NODELIST='gpu\[08-' is not a list of hosts"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, "Start the ranks with `srun meshwright train"),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, "OMPI_COMM_WORLD_SIZE=4: ranks started by mpirun are not told apart"),
    ],
)
def test_a_contradictory_environment_is_refused_by_the_variables_name(
    environment: dict[str, str], message: str
) -> None:
    with pytest.raises(LaunchError, match=message):
        read_place(environment)


def test_as_many_ranks_as_the_layout_needs_are_let_pass() -> None:
    check_world(read_place(TORCHRUN), parse_layout("fsdp4 tp2"))


def test_a_world_that_does_not_match_is_refused_with_layouts_that_fit() -> None:
    with pytest.raises(LaunchError) as caught:
        check_world(read_place(TORCHRUN), parse_layout("fsdp8 tp2"))
    message = str(caught.value)
    assert message.startswith(
        "The layout 'fsdp8 tp2' needs 16 ranks, torchrun started 8 ranks. Legal: 16 ranks, layout '"
    )
    assert "layout 'fsdp4 tp2'" in message


@pytest.mark.parametrize("world", [1, 2, 3, 6, 8, 24])
@pytest.mark.parametrize("layout", ["ddp4", "fsdp8 tp2 pp2:interleaved1f1b:2", "hsdp2x4 cp2 tp2", "fsdp4 tp2 ep8"])
def test_layouts_that_are_named_have_the_ranks_that_are_there(layout: str, world: int) -> None:
    found = fitting_layouts(parse_layout(layout), world)
    assert found
    for one in found:
        assert one.devices == world
        assert parse_layout(str(one)) == one
