"""Whether the plan is right on this very machine: measure network and device, predict layouts, then run them.

    python benchmarks/plan_accuracy.py [RANKS] [FOLDER]

`comms --compute` writes a cluster file, `bench` runs the layouts of RANKS ranks with it. Printed: Spearman's
correlation of the two orders, regret, and the median error of the step time, beside the goals.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

LAYOUTS = {
    4: "ddp4, zero1:4, zero2:4, fsdp4, hsdp2x2, ddp2 tp2, fsdp2 tp2, tp4, cp2 ddp2, ddp2 pp2:1f1b, fsdp2 pp2:1f1b, "
    "tp2 pp2:1f1b, pp4:{gpipe,1f1b}, pp2:{interleaved1f1b,zbvzerobubble} ddp2, ddp4 ac:full",
}
GOALS = (("spearman", ">=", 0.8), ("regret", "<=", 0.05), ("median_step_error", "<=", 0.2))


def meshwright(*words: str) -> str:
    """What a verb prints on stdout."""
    return subprocess.run(
        [sys.executable, "-m", "meshwright", *words], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def main() -> None:
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp(prefix="meshwright-accuracy-"))
    cluster = folder / "cluster.toml"
    if not cluster.exists():
        folder.mkdir(parents=True, exist_ok=True)
        meshwright("comms", "--ranks", str(ranks), "--compute", "--out", str(cluster))
    found = json.loads(
        meshwright(
            "bench", "--layouts", LAYOUTS[ranks], "--model", "bench-6m", "--seq-len", "256", "--global-batch", "8",
            "--steps", "5", "--warm-up", "2", "--trace", "0", "--repeats", "2", "--cluster", str(cluster),
            "--no-single", "--out", str(folder / "bench"), "--json",
        )
    )  # fmt: skip
    print(
        "| layout | measured | predicted | off | place | predicted place |\n| --- | ---: | ---: | ---: | ---: | ---: |"
    )
    for row in found["rows"]:
        if row["step"] and row["predicted"]:
            measured, predicted = row["step"]["median"], row["predicted"]["step_seconds"]
            print(
                f"| `{row['label']}` | {measured:.3f} s | {predicted:.3f} s | {predicted / measured - 1:+.0%} | "
                f"{row['measured_place']} | {row['predicted_place']} |"
            )
        else:
            print(f"| `{row['label']}` | {row['status']} | | | | |")
    print("\n| figure | reached | goal | met |\n| --- | ---: | ---: | --- |")
    for name, sign, goal in GOALS:
        value = found["agreement"][name]
        met = value >= goal if sign == ">=" else value <= goal
        print(f"| {name.replace('_', ' ')} | {value:.3f} | {sign} {goal} | {'yes' if met else 'no'} |")


if __name__ == "__main__":
    main()
