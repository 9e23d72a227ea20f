"""Every preset's parameters against Hugging Face `transformers`."""

from __future__ import annotations

import pytest

from meshwright.cost.parameters import parameters
from meshwright.spec.model_config import list_models, load_model

# Counted by transformers 5.24.0 on the meta device, from each preset's configuration (Megatron's as GPT-2).
COUNTED = {
    "bert-base": 109_514_298,
    "bert-large": 335_174_458,
    "bloom-176b": 176_247_271_424,
    "bloom-1b1": 1_065_314_304,
    "bloom-1b7": 1_722_408_960,
    "bloom-3b": 3_002_557_440,
    "bloom-560m": 559_214_592,
    "bloom-7b1": 7_069_016_064,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_404_352,
    "falcon-180b": 178_557_088_768,
    "falcon-40b": 41_303_293_952,
    "falcon-7b": 6_921_720_704,
    "gemma-2-27b": 27_227_128_320,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2b": 2_506_172_416,
    "gemma-3-1b": 999_885_952,
    "gemma-7b": 8_537_680_896,
    "gpt-j-6b": 6_050_882_784,
    "gpt-neox-20b": 20_554_567_680,
    "gpt-oss-120b": 116_829_156_672,
    "gpt-oss-20b": 20_914_757_184,
    "gpt2-large": 774_030_080,
    "gpt2-medium": 354_823_168,
    "gpt2-xl": 1_557_611_200,
    "gpt2": 124_439_808,
    "gpt3-1.3b": 1_315_723_264,
    "gpt3-125m": 125_226_240,
    "gpt3-13b": 12_853_386_240,
    "gpt3-175b": 174_604_259_328,
    "gpt3-2.7b": 2_651_553_280,
    "gpt3-350m": 355_871_744,
    "gpt3-6.7b": 6_658_404_352,
    "gpt3-760m": 760_300_032,
    "kimi-k2": 1_026_408_209_408,
    "llama-13b": 13_015_864_320,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-2-7b": 6_738_415_616,
    "llama-3-70b": 70_553_706_496,
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.3-70b": 70_553_706_496,
    "llama-33b": 32_528_943_616,
    "llama-4-maverick-17b-128e": 400_711_848_960,
    "llama-4-scout-17b-16e": 107_769_861_120,
    "llama-65b": 65_285_660_672,
    "llama-7b": 6_738_415_616,
    "megatron-1.7b": 1_652_230_656,
    "megatron-145b": 145_622_261_760,
    "megatron-175b": 174_615_846_912,
    "megatron-18b": 18_449_756_160,
    "megatron-1t": 1_008_038_758_400,
    "megatron-22b": 22_074_273_792,
    "megatron-3.6b": 3_562_168_320,
    "megatron-310b": 310_130_540_544,
    "megatron-39b": 39_096_041_472,
    "megatron-530b": 529_600_819_200,
    "megatron-7.5b": 7_467_786_240,
    "megatron-76b": 76_050_739_200,
    "mistral-7b-v0.3": 7_248_023_552,
    "mistral-7b": 7_241_732_096,
    "mistral-large-2407": 122_610_069_504,
    "mixtral-8x22b": 140_620_634_112,
    "mixtral-8x7b": 46_702_792_704,
    "moonlight-16b-a3b": 15_960_108_544,
    "mpt-30b": 29_957_200_896,
    "mpt-7b": 6_649_286_656,
    "nanotron-1.34b": 1_342_244_864,
    "nanotron-3.57b": 3_573_722_112,
    "nanotron-8.86b": 8_858_636_288,
    "nanotron-80b": 79_995_084_800,
    "nemotron-4-340b": 341_029_195_776,
    "olmo-2-13b": 13_716_198_400,
    "olmo-2-7b": 7_298_617_344,
    "olmoe-1b-7b": 6_919_161_856,
    "opt-1.3b": 1_315_758_080,
    "opt-125m": 125_239_296,
    "opt-13b": 12_853_473_280,
    "opt-175b": 174_604_468_224,
    "opt-2.7b": 2_651_596_800,
    "opt-30b": 29_974_540_288,
    "opt-350m": 331_196_416,
    "opt-6.7b": 6_658_473_984,
    "opt-66b": 65_719_701_504,
    "phi-1.5": 1_418_270_720,
    "phi-2": 2_779_683_840,
    "phi-3-medium": 13_960_238_080,
    "phi-3-mini": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "pythia-1.4b": 1_414_647_808,
    "pythia-12b": 11_846_072_320,
    "pythia-14m": 14_067_712,
    "pythia-160m": 162_322_944,
    "pythia-1b": 1_011_781_632,
    "pythia-2.8b": 2_775_208_960,
    "pythia-410m": 405_334_016,
    "pythia-6.9b": 6_857_302_016,
    "pythia-70m": 70_426_624,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "qwen2-0.5b": 494_032_768,
    "qwen2-1.5b": 1_543_714_304,
    "qwen2-57b-a14b": 57_408_658_944,
    "qwen2-72b": 72_706_203_648,
    "qwen2-7b": 7_615_616_512,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-72b": 72_706_203_648,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-14b": 14_768_307_200,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-32b": 32_762_123_264,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "smollm2-1.7b": 1_711_376_384,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "starcoder": 15_517_456_384,
    "starcoder2-15b": 15_957_889_024,
    "tinyllama-1.1b": 1_100_048_384,
}
BALANCED = {"deepseek-v3": 58 * 256, "kimi-k2": 60 * 384, "moonlight-16b-a3b": 26 * 64}
"""Router biases of the mixture layers: in the checkpoint, but buffers and not parameters in transformers."""
ELSEWHERE = {"baichuan2-7b", "baichuan2-13b", "grok-1", "internlm-7b", "internlm2-7b", "qwen-7b"}
"""Architectures that transformers does not have."""


@pytest.mark.parametrize("name", COUNTED)
def test_total_is_what_transformers_counts(name: str) -> None:
    assert parameters(load_model(name)).total == COUNTED[name] + BALANCED.get(name, 0)


def test_every_preset_is_counted_by_transformers_or_by_its_authors() -> None:
    uncounted = {model.name for model in list_models()} - set(COUNTED) - ELSEWHERE
    assert uncounted == {"mpt-125m", "mpt-350m", "mpt-760m", "mpt-1b", "mpt-3b", "mpt-13b", "mpt-70b"}


# https://github.com/mosaicml/llm-foundry, scripts/train/benchmarking/README.md, column NumParams at 2048 tokens.
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("mpt-125m", 125_311_488),
        ("mpt-350m", 355_985_408),
        ("mpt-760m", 760_470_528),
        ("mpt-1b", 1_315_950_592),
        ("mpt-3b", 2_651_837_440),
        ("mpt-13b", 12_853_954_560),
        ("mpt-70b", 64_862_437_376),
    ],
)
def test_total_is_what_llm_foundry_prints(name: str, count: int) -> None:
    assert parameters(load_model(name)).total == count


# Billions on the cards of internlm-7b, internlm2-7b, Qwen-7B, Baichuan2-7B-Base and Baichuan2-13B-Base.
@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("internlm-7b", 7.32),
        ("internlm2-7b", 7.74),
        ("qwen-7b", 7.72),
        ("baichuan2-7b", 7.51),
        ("baichuan2-13b", 13.90),
    ],
)
def test_total_rounds_to_what_the_card_says(name: str, billions: float) -> None:
    assert round(parameters(load_model(name)).total / 1e9, 2) == billions


def test_grok_is_within_one_percent_of_the_published_size() -> None:
    assert abs(parameters(load_model("grok-1")).total / 314e9 - 1) < 0.01  # README of xai-org/grok-1: 314B
