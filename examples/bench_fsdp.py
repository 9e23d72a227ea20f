"""Fully sharded data parallelism, measured: parameters, gradients and optimizer states are split over the ranks.

torchrun --standalone --nproc-per-node 8 examples/bench_fsdp.py --model gpt_small --seq-len 2048 --global-batch 128 \
    --precision bf16 --replicas 2
"""

from meshwright.bench.here import arguments, bench_here

parser = arguments("FSDP2 on the ranks that torchrun starts.")
parser.add_argument("--replicas", type=int, default=1, help="hybrid sharding: groups that each hold everything")

if __name__ == "__main__":
    options = parser.parse_args()

    def layout(ranks: int) -> str:
        """fsdp8, or hsdp2x4 with two replicas."""
        return f"fsdp{ranks}" if options.replicas == 1 else f"hsdp{options.replicas}x{ranks // options.replicas}"

    bench_here(options, layout)
