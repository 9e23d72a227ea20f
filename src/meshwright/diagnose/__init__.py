"""What is wrong with a job, from what it left behind: nothing here imports torch.

`sources` opens files and archives, `inputs` recognises them, `topics` lists who reads them: each room below is a
`sources` opens files and archives, `inputs` recognises them, `topics` lists who reads them: each room below is a
first, `diagnosis` is the whole, `told` prints a Finding.

- `recorder`: the Flight Recorder's dumps; `watchdog`: hangs from logs alone
- `memory`: failed allocations and snapshots; `host`: nvidia-smi, the kernel's log, py-spy
- `network`, `nccl_tests`: what NCCL says and what links reach; `traces`: where time goes
- `metrics`: convergence; `configuration`: commands and configurations
- `signatures`: messages that name a fault; `described`: a person's words, as a last resort
"""
