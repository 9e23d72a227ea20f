"""Data parallelism, measured: every rank has the whole model, gradients are summed while backward runs.

torchrun --standalone --nproc-per-node 8 examples/bench_ddp.py --model gpt_small --seq-len 2048 --global-batch 128 \
    --precision fp16
"""

from meshwright.bench.here import arguments, bench_here

parser = arguments("Data parallelism (DDP) on the ranks that torchrun starts.")

if __name__ == "__main__":
    bench_here(parser.parse_args(), lambda ranks: f"ddp{ranks}")
