"""What docs/several-machines.md shows is what torchrun, the shell, Kubernetes and this program read."""

from __future__ import annotations

import re
import shlex
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from meshwright.cli.frame import build_app
from meshwright.spec.notation import parse_layouts
from meshwright.train.config.read import read_config

PAGE = (Path(__file__).parents[2] / "docs" / "several-machines.md").read_text()
SCRIPTS = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
MANIFESTS = [one for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) for one in yaml.safe_load_all(text)]


def _pod(manifest: dict[str, Any]) -> dict[str, Any]:
    spec = manifest["spec"]
    spec = spec["pytorchReplicaSpecs"]["Master"] if manifest["kind"] == "PyTorchJob" else spec
    return dict(spec["template"]["spec"])


PODS = [_pod(manifest) for manifest in MANIFESTS if manifest["kind"] != "Service"]
COMMANDS = [
    line.replace("'", "")
    for text in [*SCRIPTS, *(pod["containers"][0]["args"][0] for pod in PODS)]
    for line in text.replace("\\\n", " ").splitlines()
    if "meshwright " in line
]


def test_the_page_shows_every_way_to_start() -> None:
    assert [manifest["kind"] for manifest in MANIFESTS] == ["Service", "Job", "PyTorchJob"]
    assert {command.split()[0] for command in COMMANDS} == {"torchrun", "srun", "exec"}
    assert {re.search(r"meshwright (\w+)", command)[1] for command in COMMANDS} == {"train", "comms", "bench"}  # type: ignore[index]


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_shell_reads_every_script(script: str) -> None:
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize("command", [command for command in COMMANDS if "torchrun " in command])
def test_torchrun_reads_its_options_and_hands_on_ours(command: str) -> None:
    from torch.distributed.run import get_args_parser

    words = shlex.split(re.sub(r"\$\w+", "2", command[command.index("torchrun ") :]))[1:]
    read = get_args_parser().parse_args(words)
    assert (read.nnodes, read.nproc_per_node, read.module, read.training_script) == ("2", "8", True, "meshwright")
    assert read.training_script_args == _own_words(command)


@pytest.mark.parametrize("command", COMMANDS)
def test_this_program_reads_what_it_is_given(command: str) -> None:
    verb, *words = _own_words(command)
    # Parsed, and not run.
    context = get_command(build_app([verb])).commands[verb].make_context(verb, words)  # type: ignore[attr-defined]
    given = dict(pairwise(words))
    if verb == "train":
        read_config(None, {name[2:]: value for name, value in given.items() if name.startswith("--")})
    assert context.params
    layouts = given.get("--layout") or given.get("--layouts")
    assert not layouts or {layout.devices for layout in parse_layouts(layouts)} == {16}


def _own_words(command: str) -> list[str]:
    return shlex.split(command.split("meshwright ", 1)[1])


def test_a_pod_mounts_the_volumes_that_it_has() -> None:
    for pod in PODS:
        (container,) = pod["containers"]
        assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}


def test_the_service_gives_the_pods_of_the_job_their_names() -> None:
    service, job, _ = MANIFESTS
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert _pod(job)["subdomain"] == service["metadata"]["name"]
    first = f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert f"--master-addr {first} " in _pod(job)["containers"][0]["args"][0]
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 2
