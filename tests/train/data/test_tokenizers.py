"""Tokenizers made here by their own libraries: what they say is what is stored."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
import tiktoken
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from meshwright.train.data import DataError, check_vocabulary, open_tokenizer
from meshwright.train.data.readers import PIECE_BYTES

from .corpora import dataset, write_lines

TEXT = "the cat sat on the mat; the rat ate the cat's hat. größer — 你好\n"


def library_tokenizer(end: str = "<|endoftext|>") -> Tokenizer:
    """A byte-level BPE of 300 ids that adds a token at the start and cuts at 3 tokens, as files in the wild do."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<s>", end], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator([TEXT] * 5, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.enable_truncation(3)
    return tokenizer


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A tokenizer.json."""
    library_tokenizer().save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_a_tokenizer_file_gives_the_librarys_ids_and_nothing_added(tmp_path: Path, file: Path) -> None:
    library = library_tokenizer()
    library.no_truncation()
    ids = library.encode(TEXT, add_special_tokens=False).ids
    assert len(ids) > 3
    path = write_lines(tmp_path / "a.jsonl", {"text": TEXT}, {"text": TEXT[:10]})
    for name in (file, tmp_path):
        data = dataset(tmp_path, path, tokenizer=str(name), seq_len=len(ids) + 1)
        assert data.sample(0).tokens.tolist() == [*ids, 1]
        assert data.sample(0).targets.tolist()[-1] == library.encode(TEXT[:10], add_special_tokens=False).ids[0]


def test_pieces_of_a_long_file_give_the_ids_of_the_whole(tmp_path: Path, file: Path) -> None:
    library = library_tokenizer()
    library.no_truncation()
    count = PIECE_BYTES // len(TEXT.encode()) + 100
    (tmp_path / "a.txt").write_text(TEXT * count, encoding="utf-8")
    data = dataset(tmp_path, tmp_path / "a.txt", tokenizer=str(file), seq_len=1000, shuffle=False)
    stored = np.concatenate([data.sample(i).tokens for i in range(len(data))])
    line = library.encode(TEXT, add_special_tokens=False).ids
    assert np.array_equal(stored, np.resize(np.array(line), len(stored)))


def test_a_file_beside_or_the_user_names_the_end_of_a_document(tmp_path: Path, file: Path) -> None:
    assert open_tokenizer(str(file)).facts.end == 1
    assert open_tokenizer(str(file), "<s>").facts.end == 0
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<s>"}}))
    assert open_tokenizer(str(file)).facts.end == 0
    with pytest.raises(DataError, match=r"no token '<eot>' to end a document\. Legal: <\|endoftext\|>"):
        open_tokenizer(str(file), "<eot>")
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(DataError, match=r"tokenizer_config\.json: no readable"):
        open_tokenizer(str(file))
    library_tokenizer("<|my end|>").save(str(tmp_path / "other.json"))
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(DataError, match=r"no token is known to end a document\. Legal: data\.end_token"):
        open_tokenizer(str(tmp_path / "other.json"))


def test_a_tokenizer_with_more_ids_than_the_model_is_refused_with_both_numbers(tmp_path: Path, file: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", {"text": TEXT})
    size = max(library_tokenizer().get_vocab().values()) + 1
    message = f"ids up to {size - 1}, which needs a vocabulary of {size}; the model's is {size - 1}"
    with pytest.raises(DataError, match=message):
        dataset(tmp_path, path, vocab=size - 1, tokenizer=str(file), seq_len=1)
    assert not (tmp_path / "cache").exists()
    dataset(tmp_path, path, vocab=size, tokenizer=str(file), seq_len=1)
    with pytest.raises(
        DataError, match=r"bytes has ids up to 256, which needs a vocabulary of 257; the model's is 256"
    ):
        check_vocabulary(open_tokenizer("bytes"), 256)


def test_a_vocabulary_beyond_16_bits_is_stored_in_32(tmp_path: Path) -> None:
    words = {f"w{i}": i for i in range(70_000)} | {"</s>": 70_000}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    path = write_lines(tmp_path / "a.jsonl", {"text": "w69999 w1 w65536"})
    data = dataset(tmp_path, path, vocab=70_001, tokenizer=str(tmp_path), seq_len=3)
    assert data.sample(0).tokens.tolist() == [69999, 1, 65536]
    assert data.sample(0).targets.tolist() == [1, 65536, 70_000]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.json", r"'nowhere\.json': no such file\. Legal: bytes"),
        ("bad.json", r"bad\.json: no readable tokenizer file"),
        ("folder", r"tokenizer\.json: no readable tokenizer file"),
        ("tiktoken:nobody", r"no encoding 'nobody'\. Legal: .*cl100k_base"),
        ("bad.tiktoken", r"bad\.tiktoken, line 2: not a token in base64 and its rank"),
        ("few.tiktoken", r"not those of a byte-pair encoding"),
        ("nowhere.bpe", r"nowhere\.bpe: No such file"),
        ("tiktoken:nobody:few.tiktoken", r"not those of a byte-pair encoding"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "bad.json").write_text('{"model": ')
    (tmp_path / "bad.tiktoken").write_text("YQ== 0\nYg==\n")
    (tmp_path / "few.tiktoken").write_text("YQ== 0\n")
    with pytest.raises(DataError, match=message):
        open_tokenizer(name)


def test_bytes_have_no_named_end() -> None:
    with pytest.raises(DataError, match=r"data\.end_token"):
        open_tokenizer("bytes", "</s>")


def rank_file(path: Path, extra: tuple[bytes, ...]) -> dict[bytes, int]:
    """Every byte and some longer tokens, as a file of ranks."""
    ranks = {bytes([b]): b for b in range(256)} | {token: 256 + i for i, token in enumerate(extra)}
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()))
    return ranks


def test_a_rank_file_gives_tiktokens_ids(tmp_path: Path) -> None:
    path = tmp_path / "small.tiktoken"
    ranks = rank_file(path, (b"th", b"the", b" t", b"at"))
    plain = tiktoken.Encoding(
        "plain",
        pat_str=r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+",
        mergeable_ranks=ranks,
        special_tokens={},
    )
    ids = plain.encode(TEXT)
    tokenizer = open_tokenizer(f"tiktoken:gpt2:{path}")
    assert (tokenizer.facts.size, tokenizer.facts.end) == (261, 260)
    source = write_lines(tmp_path / "a.jsonl", {"text": TEXT})
    data = dataset(tmp_path, source, tokenizer=f"tiktoken:gpt2:{path}", seq_len=len(ids))
    assert data.sample(0).tokens.tolist() == ids
    assert data.sample(0).targets.tolist()[-1] == 260


def test_a_rank_file_of_unknown_size_must_say_how_words_are_split(tmp_path: Path) -> None:
    rank_file(tmp_path / "small.bpe", (b"th",))
    with pytest.raises(DataError, match=r"257 ranks, as no known encoding.*Legal: tiktoken:gpt2:"):
        open_tokenizer(str(tmp_path / "small.bpe"))
    with pytest.raises(DataError, match=r"tiktoken:nobody:FILE.*Legal: gpt2"):
        open_tokenizer(f"tiktoken:nobody:{tmp_path / 'small.bpe'}")


def test_a_rank_file_with_the_ranks_of_gpt2_is_gpt2(tmp_path: Path) -> None:
    extra = [b"%05d" % i for i in range(50_000)]
    rank_file(tmp_path / "gpt2.bpe", tuple(extra))
    facts = open_tokenizer(str(tmp_path / "gpt2.bpe")).facts
    assert (facts.size, facts.end) == (50_257, 50_256)
