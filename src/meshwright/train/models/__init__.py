"""The models that `train` trains: one decoder for GPT-2, Llama, DeepSeek and their kin, dense or mixtures of experts.

`build.load_architecture` reads a preset or a Hugging Face `config.json`, `build.build_model` makes the `Decoder`,
`init.init_part` and `safetensors_read.Weights` fill any box of any parameter, `safetensors_write.save_weights` writes a
checkpoint that `transformers` loads. Nothing here knows of distribution: `Decoder.recipe` tells the modes where they
apply, and they replace `attention.kernel`, `moe.exchange`, `moe.count_reduce` and `moe.local_rows` from outside.
"""
