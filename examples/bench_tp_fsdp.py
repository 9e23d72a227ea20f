"""Tensor parallelism inside, FSDP across, measured: each matrix is cut over `--tp` ranks, shards over `--dp` groups.

torchrun --standalone --nproc-per-node 8 examples/bench_tp_fsdp.py --tp 4 --dp 2 --model gpt_small --seq-len 2048 \
    --global-batch 128 --precision bf16
"""

from meshwright.bench.here import arguments, bench_here

parser = arguments("Tensor parallelism with FSDP2 on the ranks that torchrun starts.")
parser.add_argument("--tp", type=int, default=2, help="tensor-parallel ranks")
parser.add_argument("--dp", type=int, default=1, help="groups of them that share parameters")

if __name__ == "__main__":
    options = parser.parse_args()
    bench_here(options, lambda ranks: f"fsdp{options.dp} tp{options.tp}" if options.dp > 1 else f"tp{options.tp}")
