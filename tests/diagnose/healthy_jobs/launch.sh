#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
# The global batch size must be divisible by micro batch size times data parallel size.
# num_attention_heads must be divisible by tensor parallel size; sequence length must be divisible by tp.
# If you see "Address already in use" (EADDRINUSE), change MASTER_PORT. If NCCL hangs set NCCL_P2P_DISABLE=1.
# In case of CUDA out of memory lower MICRO_BATCH.
set -euo pipefail
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NCCL_IB_HCA=mlx5
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=29500
if [ -z "${DATA:-}" ]; then echo "DATA not set: error"; exit 1; fi
trap 'echo "killed"; kill -9 $PID' TERM
torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT pretrain_gpt.py \
  --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --num-layers 32 --hidden-size 4096 \
  --num-attention-heads 32 --group-query-attention --num-query-groups 8 --seq-length 4096 --max-position-embeddings 4096 \
  --micro-batch-size 2 --global-batch-size 256 --bf16 --sequence-parallel --use-distributed-optimizer --train-iters 1000
