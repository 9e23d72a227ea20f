"""Samples written down by hand: windows, documents, masks, the part held out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meshwright.train.batch import IGNORED
from meshwright.train.data import DataError, Loader

from .corpora import dataset, letters, write_lines

END = 256


def test_documents_become_one_stream_cut_in_windows_that_share_a_token(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", {"text": "abc"}, {"text": "de"}, {"text": "fgh"})
    data = dataset(tmp_path, path, seq_len=4)
    # a b c END d e END f g h END: 11 tokens, (11 - 1) // 4 = 2 samples
    assert len(data) == 2
    first, second = data.sample(0), data.sample(1)
    assert first.tokens.tolist() == [97, 98, 99, END]
    assert first.targets.tolist() == [98, 99, END, 100]
    assert second.tokens.tolist() == [100, 101, END, 102]
    assert second.targets.tolist() == [101, END, 102, 103]
    assert first.positions.tolist() == [0, 1, 2, 3]
    assert first.documents is None
    assert first.tokens.dtype == first.targets.dtype == first.positions.dtype == np.int64


def test_isolated_documents_do_not_leak(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", {"text": "abc"}, {"text": "de"}, {"text": "fghijk"})
    data = dataset(tmp_path, path, seq_len=6, isolate_documents=True)
    # a b c END d e | END f g h i j | k END: the window of 7 overlaps by one
    first, second = data.sample(0), data.sample(1)
    assert first.tokens.tolist() == [97, 98, 99, END, 100, 101]
    assert first.targets.tolist() == [98, 99, END, IGNORED, 101, END]
    assert first.positions.tolist() == [0, 1, 2, 3, 0, 1]
    assert first.documents is not None
    assert first.documents.tolist() == [0, 0, 0, 0, 1, 1]
    # The second document goes on with its END, and its positions start anew.
    assert second.tokens.tolist() == [END, 102, 103, 104, 105, 106]
    assert second.targets.tolist() == [IGNORED, 103, 104, 105, 106, 107]
    assert second.positions.tolist() == [0, 0, 1, 2, 3, 4]
    assert second.documents is not None
    assert second.documents.tolist() == [0, 1, 1, 1, 1, 1]


def test_isolation_over_a_whole_corpus_agrees_with_cutting_each_document_by_itself(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [bytes(rng.integers(97, 123, int(rng.integers(1, 30))).tolist()).decode() for _ in range(60)]
    path = write_lines(tmp_path / "a.jsonl", *({"text": text} for text in texts))
    data = dataset(tmp_path, path, seq_len=16, isolate_documents=True)
    stream = [(token, number) for number, text in enumerate(texts) for token in [*text.encode(), END]]
    for index in range(len(data)):
        sample = data.sample(index)
        window = stream[16 * index : 16 * index + 17]
        assert sample.documents is not None
        for place in range(16):
            (token, number), (following, next_number) = window[place], window[place + 1]
            assert sample.tokens[place] == token
            assert sample.targets[place] == (following if number == next_number else IGNORED)
            same = [p for p in range(16) if window[p][1] == number]
            assert sample.positions[place] == place - same[0]
            assert np.flatnonzero(sample.documents == sample.documents[place]).tolist() == same


def test_a_prompt_is_no_target_and_a_completion_is_to_its_end(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", {"prompt": "ab", "completion": "cd"}, {"text": "ef"})
    sample = dataset(tmp_path, path, seq_len=7).sample(0)
    # a b c d END e f END
    assert sample.targets.tolist() == [IGNORED, 99, 100, END, 101, 102, END]


def test_a_loss_mask_marks_tokens_that_are_given(tmp_path: Path) -> None:
    masked = {"tokens": [5, 6, 7, 8], "loss_mask": [0, 1, 1, 0]}
    path = write_lines(tmp_path / "a.jsonl", {"tokens": [1, 2]}, masked, {"tokens": [9]})
    data = dataset(tmp_path, path, seq_len=9)
    # 1 2 END 5 6 7 8 END 9 END; the end after a token that is no target is none either
    assert data.sample(0).tokens.tolist() == [1, 2, END, 5, 6, 7, 8, END, 9]
    assert data.sample(0).targets.tolist() == [2, END, IGNORED, 6, 7, IGNORED, IGNORED, 9, END]
    assert ", 3 of them no targets" in data.describe()


def test_a_first_prompt_after_many_texts_masks_its_own_tokens(tmp_path: Path) -> None:
    """The texts before it are written by then, without any mark."""
    texts = [{"text": "abc"}] * 3000
    path = write_lines(tmp_path / "a.jsonl", *texts, {"prompt": "xyz", "completion": "d"}, *texts)
    data = dataset(tmp_path, path, seq_len=4)
    for index in (0, 2998, 3001, 4000):
        assert IGNORED not in data.sample(index).targets
    # … a b c END | x y z d | END a b c | …
    assert data.sample(3000).tokens.tolist() == [120, 121, 122, 100]
    assert data.sample(3000).targets.tolist() == [IGNORED, IGNORED, 100, END]
    assert data.sample(2999).targets.tolist() == [98, 99, END, IGNORED]


def test_an_end_of_document_in_the_text_is_no_border(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", {"tokens": [1, END, 2]}, {"tokens": [3]})
    sample = dataset(tmp_path, path, seq_len=5, isolate_documents=True).sample(0)
    assert sample.documents is not None
    assert sample.documents.tolist() == [0, 0, 0, 0, 1]


def test_held_out_samples_are_no_training_samples(tmp_path: Path) -> None:
    data = letters(tmp_path, 40, validation_share=0.25)
    held_out = data.validation
    assert held_out is not None
    assert (len(data), len(held_out)) == (30, 10)
    texts = [[bytes(part.sample(i).tokens.tolist()).decode() for i in range(len(part))] for part in (data, held_out)]
    assert texts[1] == [f"{i:04d}" for i in range(3, 40, 4)]
    assert sorted(texts[0] + texts[1]) == [f"{i:04d}" for i in range(40)]
    assert letters(tmp_path, 40).validation is None
    # Held-out samples come in the same order under every seed.
    first = Loader(held_out, 5, prefetch=0).batches(0)[0]
    assert bytes(first.tokens[:, 3].tolist()) == b"37159"


@pytest.mark.parametrize(("share", "samples"), [(0.01, 4), (0.99, 4)])
def test_a_share_that_leaves_one_side_without_a_sample_is_refused(tmp_path: Path, share: float, samples: int) -> None:
    with pytest.raises(DataError, match=f"validation_share {share} of {samples} samples"):
        letters(tmp_path, samples, validation_share=share)


def test_text_shorter_than_a_sample_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ten bytes!")
    assert len(dataset(tmp_path, tmp_path / "a.txt", seq_len=10)) == 1
    with pytest.raises(DataError, match=r"11 tokens are fewer than one sample, which takes data.seq_len \+ 1 = 12"):
        dataset(tmp_path, tmp_path / "a.txt", seq_len=11)


def test_a_sample_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    data = letters(tmp_path, 4)
    for index in (-1, 4):
        with pytest.raises(IndexError):
            data.sample(index)


def test_the_log_line_says_how_much_there_is(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "some.jsonl", {"text": "abc"}, {"text": ""}, {"text": "fghij"})
    line = dataset(tmp_path, path, seq_len=3).describe(9)
    assert line == ("some: 2 documents (1 empty), 10 tokens (bytes, 257 ids), 3 samples of 3; 3 epochs of 9 samples")


def test_the_standard_library_is_megabytes_of_text_on_every_machine(tmp_path: Path) -> None:
    data = dataset(tmp_path, "stdlib", vocab=257, seq_len=256)
    assert len(data) * 256 > 5_000_000
    text = bytes(t for i in range(0, len(data), 40) for t in data.sample(i).tokens.tolist() if t < 256)
    assert b"self." in text
    import __future__

    with open(__future__.__file__, "rb") as file:  # the first file by name
        assert bytes(data.sample(0).tokens.tolist()) == file.read(256)
