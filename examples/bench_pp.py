"""Pipeline parallelism, measured: layers are cut into stages, micro-batches flow through them.

torchrun --standalone --nproc-per-node 4 examples/bench_pp.py --pp 4 --micro-batches 8 --schedule 1f1b \
    --model gpt_small --seq-len 2048 --global-batch 128
"""

from meshwright.bench.here import arguments, bench_here

parser = arguments("A pipeline on the ranks that torchrun starts.", micro_batch=False)
parser.add_argument("--pp", type=int, default=2, help="pipeline ranks; the others replicate it")
parser.add_argument("--micro-batches", type=int, default=8, help="of each replica, a step")
parser.add_argument("--schedule", default="1f1b", help="gpipe, 1f1b, interleaved1f1b, …, as in docs/layouts.md")

if __name__ == "__main__":
    options = parser.parse_args()

    def layout(ranks: int) -> str:
        """pp4:1f1b, or ddp2 pp4:1f1b on twice the ranks."""
        replicas = max(ranks // options.pp, 1)
        sequences, left = divmod(options.global_batch, replicas * options.micro_batches)
        if left or not sequences:
            parser.error(f"{options.global_batch} sequences are not {replicas} × {options.micro_batches} micro-batches")
        options.micro_batch = sequences
        return (f"ddp{replicas} " if replicas > 1 else "") + f"pp{options.pp}:{options.schedule}"

    bench_here(options, layout)
