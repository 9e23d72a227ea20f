"""ZeRO, measured: stage 1 splits optimizer states over the ranks, stage 2 gradients too, stage 3 parameters too.

torchrun --standalone --nproc-per-node 8 examples/bench_zero.py --stage 2 --model gpt_small --seq-len 2048 \
    --global-batch 128 --precision bf16
"""

from meshwright.bench.here import arguments, bench_here

parser = arguments("A ZeRO stage on the ranks that torchrun starts.")
parser.add_argument("--stage", type=int, default=1, choices=(1, 2, 3))

if __name__ == "__main__":
    options = parser.parse_args()
    bench_here(options, lambda ranks: f"zero{options.stage}:{ranks}")
