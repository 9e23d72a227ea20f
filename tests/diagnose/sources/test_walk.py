"""Files, folders and archives, as they come from a cluster."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.sources import walk
from meshwright.diagnose.sources.walk import sources
from meshwright.diagnose.told import lines_of
from meshwright.spec.errors import RequestError

LINE = "init.cc:497 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 2000\n"


def in_tar(data: bytes, mode: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        info = tarfile.TarInfo("logs/rank_1.log")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def in_zip(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("logs/rank_1.log", data)
    return out.getvalue()


@pytest.mark.parametrize(
    ("pack", "inside"),
    [
        (lambda data: data, ""),
        (gzip.compress, ""),
        (bz2.compress, ""),
        (lzma.compress, ""),
        (in_zip, "!logs/rank_1.log"),
        (lambda data: in_tar(data, "w"), "!logs/rank_1.log"),
        (lambda data: in_tar(data, "w:gz"), "!logs/rank_1.log"),
        (lambda data: in_tar(data, "w:xz"), "!logs/rank_1.log"),
        (lambda data: in_tar(gzip.compress(data), "w:gz"), "!logs/rank_1.log"),
        (lambda data: in_zip(in_tar(data, "w")), "!logs/rank_1.log!logs/rank_1.log"),
    ],
)
def test_a_log_is_read_however_it_is_packed_and_whatever_the_file_is_called(
    pack: Callable[[bytes], bytes], inside: str, tmp_path: Path
) -> None:
    (tmp_path / "thing").write_bytes(pack(LINE.encode()))
    found = diagnose([tmp_path])
    assert [one.category for one in found.findings] == ["device_mapping"]
    assert found.findings[0].evidence[0].path == f"{tmp_path}/thing{inside}"
    assert list(tmp_path.iterdir()) == [tmp_path / "thing"]  # nothing is unpacked beside it


@pytest.mark.parametrize("pack", [gzip.compress, in_zip, lambda data: in_tar(data, "w:gz")])
def test_a_damaged_archive_is_listed_and_the_rest_is_read(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    whole = pack(bytes(range(256)) * 999)
    (tmp_path / "a").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "b").write_text(LINE)
    found = diagnose([tmp_path])
    assert found.findings
    assert any(one.problem for one in found.inputs)


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "LARGEST", 1000)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"INFO line\n" * 100_000))
    with pytest.raises(RequestError, match="unpacks to more than"):
        diagnose([tmp_path])


def test_what_torch_save_wrote_is_no_archive_of_files(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("model/data.pkl", LINE)
    assert [one.path for one in sources(tmp_path)] == [f"{tmp_path}/model.pt"]


def test_a_folder_that_cannot_be_listed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.log").write_text(LINE)
    (tmp_path / "closed").mkdir()
    scan = os.scandir

    def refusing(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refusing)
    found = diagnose([tmp_path])
    assert found.findings
    assert [one.path for one in found.inputs if one.problem] == [f"{tmp_path}/closed"]


def test_a_path_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="There is no"):
        diagnose([tmp_path / "absent"])


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "rank_0.log").write_text(LINE)
    assert [one.path for one in diagnose([tmp_path]).inputs] == [str(tmp_path / "rank_0.log")]


def test_a_file_that_is_reached_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "rank_0.log").write_text(LINE)
    (tmp_path / "latest.log").symlink_to("rank_0.log")
    (tmp_path / "rank_0.copy.log").hardlink_to(tmp_path / "rank_0.log")
    found = diagnose([tmp_path, tmp_path / "rank_0.log"])
    assert [one.path for one in found.inputs] == [str(tmp_path / "rank_0.copy.log")]
    assert len(found.findings[0].evidence) == 1


def test_a_name_cannot_write_lines_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a\n2. All is well\x1b[2K.log").write_text(LINE)
    (finding,) = diagnose([tmp_path]).findings
    assert all(line.isprintable() for line in lines_of(finding))


def test_a_name_that_is_no_text_is_read(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/bad\xff.log", "w") as file:
        file.write(LINE)
    assert diagnose([tmp_path]).findings[0].category == "device_mapping"
