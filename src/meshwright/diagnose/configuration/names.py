"""The words that frameworks have for a quantity, and the one name that it has here.

From the arguments of Megatron-LM (training/arguments.py), DeepSpeed (runtime/constants.py), torchtitan (job_config.py),
Hugging Face (TrainingArguments and configuration files), accelerate, nanotron, torchrun and Slurm.
"""

from __future__ import annotations

WORDS = {
    "world": "world_size gpus num_gpus_total total_gpus num_processes ranks",
    "nodes": "nnodes num_nodes nodes num_machines n_nodes",
    "per_node": "gpus_per_node n_gpus_per_node num_gpus_per_node devices_per_node num_gpus",
    "nproc": "nproc nproc_per_node",
    "tp": "tensor_model_parallel_size tensor_parallel_size tensor_parallel_degree tensor_parallel tp_size tp tp_degree "
    "mp_size model_parallel_size autotp_size",
    "pp": "pipeline_model_parallel_size transformer_pipeline_model_parallel_size pipeline_parallel_size "
    "pipeline_parallel_degree pp_size pp pp_degree",
    "vpp": "virtual_pipeline_model_parallel_size vpp vp_size",
    "layers_per_chunk": "num_layers_per_virtual_pipeline_stage",
    "first_layers": "decoder_first_pipeline_num_layers num_layers_in_first_pipeline_stage",
    "last_layers": "decoder_last_pipeline_num_layers num_layers_in_last_pipeline_stage",
    "cp": "context_parallel_size context_parallel_degree cp_size cp cp_degree",
    "ulysses": "ulysses_sequence_parallel_size ulysses_sp_size ulysses_degree ulysses_size sp_size "
    "sequence_parallel_size",
    "ep": "expert_model_parallel_size expert_parallel_size expert_parallel_degree ep_size ep ep_degree",
    "dp": "data_parallel_size dp dp_size dp_world_size",
    "dp_shard": "data_parallel_shard_degree dp_shard dp_shard_size",
    "dp_replicate": "data_parallel_replicate_degree dp_replicate dp_replicate_size",
    "micro": "micro_batch_size micro_batch train_micro_batch_size_per_gpu per_device_train_batch_size mbs "
    "local_batch_size micro_batch_per_gpu",
    "accumulation": "gradient_accumulation_steps grad_accum accumulation gradient_accumulation grad_accum_steps "
    "gradient_acc_step batch_accumulation_per_replica accumulate_grad_batches",
    "global_batch": "global_batch_size global_batch gbs",
    "sequence": "seq_length seq_len sequence_length seq max_seq_len encoder_seq_length",
    "batch": "batch_size per_gpu_batch_size",
    "length": "max_seq_length max_sequence_length model_max_length cutoff_len block_size max_length n_ctx sequence_len",
    "layers": "num_layers num_hidden_layers n_layer n_layers",
    "heads": "num_attention_heads n_head n_heads num_heads num_q_heads",
    "kv_heads": "num_query_groups num_key_value_heads n_kv_heads num_kv_heads",
    "vocabulary": "vocab_size vocabulary_size",
    "padded_vocabulary": "padded_vocab_size",
    "hidden": "hidden_size n_embd d_model",
    "ffn": "ffn_hidden_size intermediate_size",
    "experts": "num_experts n_routed_experts num_local_experts moe_num_experts",
    "zero": "zero_stage zero_optimization_stage",
    "hpz": "zero_hpz_partition_size",
    "bucket_size": "bucket_size ddp_bucket_size",
    "bucket_mb": "bucket_cap_mb ddp_bucket_cap_mb bucket_mb",
    "workers": "num_workers dataloader_num_workers",
    "sequence_parallel": "sequence_parallel",
    "grouped": "group_query_attention",
    "tied": "tie_word_embeddings tied_embeddings",
    "untied": "untie_embeddings_and_output_weights",
    "swiglu": "swiglu",
    "distributed_optimizer": "use_distributed_optimizer",
    "fp16": "fp16",
    "bf16": "bf16",
    "lr": "lr learning_rate",
    "steps": "train_iters max_steps total_steps train_steps num_training_steps max_train_steps",
    "port": "master_port main_process_port",
    "tasks": "ntasks",
    "tasks_per_node": "ntasks_per_node",
}  # fmt: skip
NAME = {word: name for name, words in WORDS.items() for word in words.split()}
FLAGS = frozenset({"sequence_parallel", "grouped", "tied", "untied", "fp16", "bf16", "swiglu", "distributed_optimizer"})
"""Quantities that are true or false."""
PRECISIONS = frozenset({"mixed_precision", "precision", "amp_dtype", "dtype"})
"""Words whose value is a name of a number format (accelerate, Lightning, nanoGPT, torchtitan)."""
_FORMATS = {
    "swiglu": "swiglu",
    "distributed_optimizer": "use_distributed_optimizer",
    "fp16": "fp16", "float16": "fp16", "half": "fp16", "16-mixed": "fp16", "torch.float16": "fp16", "16": "fp16",
    "bf16": "bf16", "bfloat16": "bf16", "bf16-mixed": "bf16", "torch.bfloat16": "bf16", "bf16-true": "bf16",
}  # fmt: skip
ONLY_IN_FILES = frozenset("gpus nodes tp pp cp ep dp seq vpp mbs gbs ranks lr learning_rate".split())
"""Words too common to be believed in any line of a log."""


def name_of(word: str) -> str | None:
    """The name here of an argument, a key or an attribute, however it is spelt; None: no quantity that is read."""
    return NAME.get(word.strip().strip("-").replace("-", "_").rsplit(".", 1)[-1].lower())


def format_of(word: str, value: object) -> str | None:
    """`fp16` or `bf16`, where a setting of that name says one of them."""
    last = word.strip().strip("-").replace("-", "_").rsplit(".", 1)[-1].lower()
    return _FORMATS.get(value.strip("\"', ").lower()) if last in PRECISIONS and isinstance(value, str) else None
