"""Text files of every kind, whole and damaged."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from meshwright.train.data import DataConfig, DataError, open_dataset
from meshwright.train.data.readers import PIECE_BYTES, read_pieces
from meshwright.train.data.sources import find_files

from .corpora import dataset, write_lines

TEXTS = ["first", "zweites — größer", "third\nline"]


def stream(tmp_path: Path, source: Path | str, **options: Any) -> bytes:
    """The whole token stream of a source as bytes, `|` for an end of document."""
    data = dataset(tmp_path, source, seq_len=1, **options)
    samples = [data.sample(i) for i in range(len(data))]
    ids = [int(samples[0].tokens[0]), *(int(sample.targets[0]) for sample in samples)]
    return bytes(ord("|") if token == 256 else token for token in ids)


def expected() -> bytes:
    """TEXTS as three documents."""
    return "".join(text + "|" for text in TEXTS).encode()


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json.gz"])
def test_json_lines_are_documents(tmp_path: Path, name: str) -> None:
    lines = "\n\n".join(json.dumps({"text": text, "id": 1}) for text in TEXTS).encode()
    (tmp_path / name).write_bytes(gzip.compress(lines) if name.endswith("gz") else lines)
    assert stream(tmp_path, tmp_path / name) == expected()


def test_parquet_rows_are_documents(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, 2, 3], "body": TEXTS}), tmp_path / "a.parquet", row_group_size=2)
    assert stream(tmp_path, tmp_path / "a.parquet", text_key="body") == expected()


def test_parquet_has_prompts_and_tokens_too(tmp_path: Path) -> None:
    columns = {"prompt": ["ab", None], "completion": ["c", None], "tokens": pa.array([None, [100, 101]])}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    data = dataset(tmp_path, tmp_path / "a.parquet", seq_len=6)
    assert data.sample(0).tokens.tolist() == [97, 98, 99, 256, 100, 101]
    assert data.sample(0).targets.tolist() == [-100, 99, 256, 100, 101, 256]


def test_files_of_a_folder_are_documents_in_the_order_of_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    (folder / "b").mkdir(parents=True)
    (folder / "c.txt").write_text(TEXTS[2])
    (folder / "b" / "x.txt.gz").write_bytes(gzip.compress(TEXTS[1].encode()))
    write_lines(folder / "a.jsonl", {"text": TEXTS[0]})
    (folder / "README.md").write_text("not text")
    (folder / ".hidden.txt").write_text("not text")
    assert stream(tmp_path, folder) == expected()
    assert "1 files of other kinds left out" in dataset(tmp_path, folder, seq_len=1).describe()
    assert stream(tmp_path, folder / "**" / "*.txt*") == "".join(f"{text}|" for text in TEXTS[1:]).encode()


def test_several_sources_keep_their_order(tmp_path: Path) -> None:
    paths = []
    for name, text in zip("zay", TEXTS, strict=True):
        paths.append(tmp_path / f"{name}.txt")
        paths[-1].write_text(text)
    config = DataConfig(source=[str(path) for path in paths])  # type: ignore[arg-type]
    assert [path.name for path in find_files(config.sources).paths] == ["z.txt", "a.txt", "y.txt"]


@pytest.mark.parametrize("newlines", [True, False])
def test_long_text_is_read_in_pieces_that_cut_no_line_and_no_character(tmp_path: Path, newlines: bool) -> None:
    line = "ein größerer Satz — 你好 🙂" + ("\n" if newlines else "")
    text = line * (2 * PIECE_BYTES // len(line.encode()) + 1)
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    pieces = list(read_pieces(tmp_path / "a.txt", "text", raw=False))
    assert len(pieces) >= 3
    assert "".join(str(piece.content) for piece in pieces) == text
    assert [piece.ends for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert all(len(str(piece.content).encode()) <= 2 * PIECE_BYTES for piece in pieces)
    if newlines:
        assert all(str(piece.content).endswith("\n") for piece in pieces[:-1])


def test_bytes_take_text_of_any_encoding_and_tokenizers_only_utf_8(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("eins\nzwei\ngröße".encode("latin-1"))
    assert stream(tmp_path, tmp_path / "a.txt") == b"eins\nzwei\ngr\xf6\xdfe|"
    with pytest.raises(DataError, match=r"a\.txt, line 3: no UTF-8 \(invalid start byte, byte 0xf6\)"):
        list(read_pieces(tmp_path / "a.txt", "text", raw=False))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "cut', r"line 2: no JSON .*The file ends inside a record"),
        ("not json\n", r"line 2: no JSON"),
        ("[1]\n", r"line 2: list, not an object with a key 'text'"),
        ('{"body": "x", "id": 3}\n', r"line 2: no key 'text' \(keys: body, id\)\. Legal: data\.text_key"),
        ('{"text": 5}\n', r"line 2: 'text' is int, not a string"),
        ('{"text": null}\n', r"line 2: 'text' is NoneType"),
        ('{"text": "\\ud800"}\n', r"line 2: 'text' holds half a surrogate pair"),
        ('{"text": "x", "loss_mask": [1]}\n', r"line 2: a loss_mask counts tokens"),
        ('{"prompt": "x", "completion": 1}\n', r"line 2: 'completion' is int"),
        ('{"tokens": [1, 2.5]}\n', r"line 2: 'tokens' must be a list of integers"),
        ('{"tokens": [1, 257]}\n', r"line 2: token id 257; the tokenizer has ids 0 to 256"),
        ('{"tokens": [1, -1]}\n', r"line 2: token id -1"),
        ('{"tokens": [99999999999999999999]}\n', r"line 2: 'tokens' holds an integer beyond 64 bits"),
        ('{"tokens": [1, 2], "loss_mask": [1]}\n', r"line 2: loss_mask must be 2 zeros and ones"),
        ('{"tokens": [1, 2], "loss_mask": [1, 2]}\n', r"line 2: loss_mask must be 2 zeros and ones"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_kept(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "fine"}\n' + line)
    with pytest.raises(DataError, match=r"a\.jsonl, " + message):
        dataset(tmp_path, path, seq_len=1)
    assert [entry.name for entry in (tmp_path / "cache").iterdir() if not entry.name.endswith(".lock")] == []


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.txt.gz"])
@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_damaged_gzip_is_refused(tmp_path: Path, name: str, damage: str) -> None:
    lines = "".join(json.dumps({"text": f"number {i * 7919 % 10007}"}) + "\n" for i in range(5000)).encode()
    packed = bytearray(gzip.compress(lines))
    if damage == "cut":
        del packed[len(packed) // 2 :]
    else:
        packed[-6] ^= 1  # in the checksum
    (tmp_path / name).write_bytes(packed)
    with pytest.raises(DataError, match=rf"{name}, after line \d+: the compressed data are damaged or cut"):
        dataset(tmp_path, tmp_path / name, seq_len=1)


def test_cut_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [str(i) for i in range(9999)]}), path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"a\.parquet, after row 0: no readable Parquet"):
        dataset(tmp_path, path, seq_len=1)


def test_parquet_damaged_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"row {i} of many" for i in range(9999)]}), path, row_group_size=3000)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 2000] = bytes(2000)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.parquet, after row \d+: "):
        dataset(tmp_path, path, seq_len=1)


def test_parquet_without_the_column_says_which_there_are(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "body": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"no column 'text'\. Legal: id, body"):
        dataset(tmp_path, tmp_path / "a.parquet", seq_len=1)
    pq.write_table(pa.table({"text": ["x", None]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet, row 2: no key 'text'"):
        dataset(tmp_path, tmp_path / "b.parquet", seq_len=1)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere.txt", r"'nowhere\.txt': no such file"),
        ("nowhere/*.jsonl", r"no such file"),
        ("https://example.org/a.jsonl", r"is no local file; download it first"),
        ("a.csv", r"a\.csv: no known kind of text file\. Legal: \.txt"),
        ("empty", r"empty holds no text file \(1 others\)"),
        ("other.bin", r"only our own tokens\.bin"),
        ("void.txt", r"data\.source void: no text in 1 files"),
        (["a.txt", "stdlib"], r"'stdlib' does not mix with others"),
        (["a.txt", "./a.txt"], r"names .*a\.txt more than once"),
    ],
)
def test_a_source_that_names_no_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for name in ("empty/a.csv", "a.csv", "a.txt", "other.bin"):
        (tmp_path / name).write_text("text")
    (tmp_path / "void.txt").touch()
    with pytest.raises(DataError, match=message):
        open_dataset(DataConfig(source=source, cache_dir="cache", seq_len=1), vocab=300)  # type: ignore[arg-type]
