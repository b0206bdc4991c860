#!/usr/bin/env python3
"""PyTorch's distributed checkpoint (torch.distributed.checkpoint.async_save) of as many bytes as ours.

usage: pytorch_checkpoint.py [--directory DIR] [--mib MIB] [--rounds N]

Two processes, each with half of the tensors, 32 MiB each. Both compute matrix products on one thread, as a training
does, with and without a checkpoint under way. One JSON line: the seconds for which the save held up the training, those
until it was on the disk, and the rate of the products meanwhile as a share of their rate alone. Needs PyTorch 2.4 or
newer.
"""
import argparse
import json
import os
import shutil
import statistics
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp


def products_for(seconds, matrix, until=None):
    """Products a second for so long, or until the future is done."""
    count, begin = 0, time.perf_counter()
    while (not until.done()) if until is not None else time.perf_counter() - begin < seconds:
        matrix @ matrix
        count += 1
    return count / max(time.perf_counter() - begin, 1e-9)


def work(rank, options, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    tensors = {f"{rank}.{i}": torch.randn(8 << 20) for i in range(max(1, options.mib // 2 // 32))}
    matrix = torch.randn(512, 512)
    blocked, whole, slowed = [], [], []
    for number in range(options.rounds + 1):
        folder = os.path.join(options.directory, f"pytorch-{number}")
        alone = products_for(1.0, matrix)
        dist.barrier()
        begin = time.perf_counter()
        future = dcp.async_save(tensors, checkpoint_id=folder)
        blocked.append(time.perf_counter() - begin)
        meanwhile = products_for(0, matrix, future)
        future.result()
        os.sync()
        whole.append(time.perf_counter() - begin)
        slowed.append(meanwhile / alone)
        dist.barrier()
        if rank == 0:
            shutil.rmtree(folder)
    if rank == 0:
        mib = 2 * len(tensors) * 32
        seconds = statistics.median(whole[1:])
        print(json.dumps({"bench": f"torch {torch.__version__} async_save", "checkpoint_mib": mib,
                          "blocked_seconds": round(statistics.median(blocked[1:]), 3),
                          "checkpoint_seconds": round(seconds, 3), "mib_per_second": round(mib / seconds),
                          "products_meanwhile": round(statistics.median(slowed[1:]), 3)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--directory", default="/tmp")
    parser.add_argument("--mib", type=int, default=1422)
    parser.add_argument("--rounds", type=int, default=3)
    mp.spawn(work, args=(parser.parse_args(), 29511), nprocs=2)
