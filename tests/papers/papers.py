"""Figures from the papers, and the flags of the same training runs: the rows of compare.py."""

from predictions import (Result, between, checkpoints, first_keeps_most, fits, last_keeps_least, rate, states,
                         tera_done, tera_of_deep, tera_of_large)

SUMMIT = "--profile v100-16g-summit --node-size 6 --precision fp16 --gradient-dtype half"
P3DN = "--profile v100-32g-p3dn --node-size 8 --precision fp16 --gradient-dtype half --sequence-length 512"
P4D = "--profile a100-40g-p4d --node-size 8 --precision fp16 --gradient-dtype half --sequence-length 512"
P4DE = "--profile a100-80g-p4de --node-size 8 --precision bf16 --gradient-dtype half"
DGX = ("--profile a100-80g-hdr --node-size 8 --precision bf16 --gradient-dtype half --sequence-length 512 "
       "--g-inter 1 --group-size 8")
DGX2 = "--profile v100-32g-dgx2 --node-size 16 --precision fp16 --gradient-dtype half --sequence-length 1024"


def myelin(model: str, stages: int, rows: int, micro: int, batch: int, more: str = "--offload myelin",
           at: str = "") -> str:
    """Checkpoints every N layers, as in the paper: N is the factor of a stage's layers nearest to their root."""
    summit = SUMMIT.replace(" --node-size", f"{at} --node-size", 1)
    more += f" --recompute {48 // stages if model in ('gpt-12b', 'gpt-24b') else 96 // stages}"
    return (f"{summit} --model {model} --world {stages * rows} --g-inter {stages} --g-data {rows} "
            f"--microbatch-size {micro} --batch-size {batch} --policy message-driven --shard ddp {more}")


def mics(model: str, world: int, shard: str, group: int = 8, batch: int = 8192, micro: int = 8, more: str = "",
         cluster: str = P3DN, at: str = "") -> str:
    cluster = cluster.replace(" --node-size", f"{at} --node-size", 1)
    if group > 8 and shard == "mics" and "--all-gather" not in more:
        more += " --all-gather hierarchical"  # as in the paper if groups span nodes (3.3)
    group_flag = "" if shard in ("zero1", "zero2", "zero3") else f"--group-size {group}"
    return (f"{cluster} --model {model} --world {world} --g-inter 1 --shard {shard} {group_flag} --batch-size {batch} "
            f"--microbatch-size {micro} --recompute 1 {more}")


def hundred(world: int, shard: str, more: str = "", at: str = "") -> str:
    """C14 to C16: 100 B parameters, 4 microbatches of 16 samples; Myelin's shape, because the paper states none."""
    cluster = P4D.replace(" --node-size", f"{at} --node-size", 1)
    groups = "--group-size 128 --all-gather hierarchical" if shard == "mics" else ""
    return (f"{cluster} --model gpt-100b --world {world} --g-inter 1 --shard {shard} {groups} "
            f"--batch-size {64 * world} --microbatch-size 16 --recompute 1 {more}")


def wide(shard: str, at: str = "") -> str:
    return (f"--profile v100-32g-p3dn{at} --node-size 8 --model wide-resnet-3b --data synthetic --world 64 --g-inter 1 "
            f"--shard {shard} --batch-size 512 --microbatch-size 8 --recompute off")


def paro(model: str, world: int, shard: str, at: str = "", more: str = "") -> str:
    dgx = DGX.replace(" --node-size", f"{at} --node-size", 1)
    more += " --recompute 1" if model.endswith("65b") else " --recompute off"
    return f"{dgx} --model {model} --world {world} --shard {shard} --microbatch-size 4 --batch-size {40 * world} {more}"


def plus(shard: str, more: str = "") -> str:
    """Every pass gathers all parameters, as ZeRO++ counts bytes (§3)."""
    return (f"{DGX2} --model gpt-12b --world 64 --g-inter 1 --group-size 16 --shard {shard} --microbatch-size 4 "
            f"--batch-size 256 --recompute off --reuse off {more}")


def infinity(layers: int, hidden: int, world: int, micro: float, offload: str, more: str = "", at: str = "") -> str:
    batch = int(micro * world)
    # Large buckets, as in DeepSpeed (its sub-groups have 10^9 elements): the simulation handles them one by one.
    files = f"--nvme /nvme {BUCKET}" if offload == "infinity-nvme" else ""
    dgx2 = DGX2.replace(" --node-size", f"{at} --node-size", 1)
    return (f"{dgx2} --model gpt --layers {layers} --hidden {hidden} --heads {hidden // 128} --vocab-size 50257 "
            f"--world {world} --g-inter 1 --shard zero3 --offload {offload} {files} --recompute 1 "
            f"--microbatch-size {max(1, int(micro))} --batch-size {batch} {more}")


def chunks(k: str, more: str = "", rows: int = 8) -> str:
    """The optimizer updates reduced buckets, as in the paper, and does not wait for a decision of all ranks."""
    return myelin("gpt-12b", 6, rows, 1, 256 * rows,
                  f"--offload myelin {BUCKET} --clip 0 --loss-scale 1024 --optimizer-commit flip --chunk-buckets {k} "
                  + more)


SENT = int(100e9 / 15) // 65536 * 65536  # each of 16 ranks sends 15 sixteenths of it
GATHERED = int(100e9) // 65536 * 65536
# C23: gathers in a forward pass take 2.85 times as long as computing, which runs at 42 % of the peak (C4). The 2 x 10 B
# x 8 x 512 FLOP of a microbatch take 1.56 s at 52.5 TFLOP/s, so a node receives 20 GB at 4.5 GB/s.
C23 = "@node=4.5e9,products=0.45"
# Between 32 nodes gathers take up to 4.9 times as long as between 4.
C25 = "@node=8.7e9"
P2 = "@node=56e9,rank=14e9"
HUNDRED = "@node=100e9,rank=14e9"  # per node, as in section 4.1
# Efficiency of matrix multiplications for each paper and kind of GPU, besides the profiles' own. Myelin: nearest to M1,
# M9 and M10. MiCS: C4's model reaches 42 % of a V100's peak; on A100, nearest to C14, C15 and C17. ZeRO-Infinity: a
# single GPU reaches Z12's 70 TFLOP/s; another value is nearest to Z3 and Z5.
MYELIN = "@products=0.555"
C4 = "@products=0.45"
A100 = "@products=0.605"
Z12 = "@products=0.57"
Z3 = "@products=0.43"
APART = "--no-overlap"
BUCKET = "--bucket-size 16000000"
WEAK = [("gpt-12b", 6, 8, 8), ("gpt-24b", 12, 8, 4), ("gpt-50b", 24, 8, 4), ("gpt-100b", 48, 8, 2)]

PAPERS: dict[str, list[Result]] = {
    "Myelin": [
        *[Result(f"M1, {model}", f"{stages} x {rows} GPUs, % of peak with recomputation, batch 16384{note}",
                 (49.4, 54.78), lambda p, q: 100 * tera_of_large(p, q) / 125,
                 [myelin(model, stages, rows, micro, batch, at=at) for batch in (1024, 2048)], "%", heavy=True)
          for at, note in (("", ""), (MYELIN, ", products at 55.5 % of the peak"))
          for model, stages, rows, micro in WEAK],
        Result("M7", "12B, 48 GPUs, batch 2048, pipeline only: 6 stages over 24", (1.22,),
               lambda p, q: rate(p) / rate(q),
               [myelin("gpt-12b", 6, 8, 1, 2048, "--offload none --memory-times 8"),
                myelin("gpt-12b", 24, 2, 1, 2048, "--offload none --memory-times 8")], "x"),
        Result("M9 + M10", "12B, 24 x 2, batch 2048, no offload: seconds of a batch", (46.70,),
               lambda p: p["step_seconds"], [myelin("gpt-12b", 24, 2, 1, 2048, "--offload none")], " s"),
        Result("M9 + M10", "12B, 6 x 8, batch 2048, offload, microbatch 1: seconds of a batch", (38.37,),
               lambda p: p["step_seconds"], [myelin("gpt-12b", 6, 8, 1, 2048, f"--offload myelin {BUCKET}")], " s"),
        Result("M11", "the one over the other", (38.37 / 46.70,), lambda p, q: p["step_seconds"] / q["step_seconds"],
               [myelin("gpt-12b", 6, 8, 1, 2048, f"--offload myelin {BUCKET}"),
                myelin("gpt-12b", 24, 2, 1, 2048, "--offload none")], "x"),
        Result("M9 + M10", "24 x 2, products at 55.5 % of the peak", (46.70,), lambda p: p["step_seconds"],
               [myelin("gpt-12b", 24, 2, 1, 2048, "--offload none", at=MYELIN)], " s"),
        Result("M9 + M10", "6 x 8 with offload, products at 55.5 % of the peak", (38.37,), lambda p: p["step_seconds"],
               [myelin("gpt-12b", 6, 8, 1, 2048, f"--offload myelin {BUCKET}", at=MYELIN)], " s"),
        Result("M11", "the one over the other, products at 55.5 % of the peak", (38.37 / 46.70,),
               lambda p, q: p["step_seconds"] / q["step_seconds"],
               [myelin("gpt-12b", 6, 8, 1, 2048, f"--offload myelin {BUCKET}", at=MYELIN),
                myelin("gpt-12b", 24, 2, 1, 2048, "--offload none", at=MYELIN)], "x"),
        Result("M13", "12B, 24 x 2: GB of all devices without offload", (520,),
               lambda p: p["device_bytes_of_all"] / 1e9, [myelin("gpt-12b", 24, 2, 1, 2048, "--offload none")], " GB"),
        Result("M13", "the same, with the paper's 4 bytes a parameter of fp32 gradients, which Ranvier does not keep",
               (520,), lambda p: p["device_bytes_of_all"] / 1e9 + 4 * 2 * 11.96,
               [myelin("gpt-12b", 24, 2, 1, 2048, "--offload none")], " GB"),
        Result("M13", "12B, 24 x 2: GB of all devices with offload", (130.24,),
               lambda p: p["device_bytes_of_all"] / 1e9,
               [myelin("gpt-12b", 24, 2, 1, 2048, f"--offload myelin {BUCKET}")], " GB"),
        Result("M13", "the same with buckets of 7.1 million: three in flight take what the paper's one of 16 takes",
               (130.24,), lambda p: p["device_bytes_of_all"] / 1e9,
               [myelin("gpt-12b", 24, 2, 1, 2048, "--offload myelin --bucket-size 7111111")], " GB"),
        Result("M14", "12B, 6 stages: fits 16 GB without offload", False, fits,
               [myelin("gpt-12b", 6, 8, 1, 2048, "--offload none")]),
        Result("M16", "12B, 6 x 8: all buckets at once fit 16 GB", True, fits, [chunks("all")]),
        *[Result("M16", f"12B, 6 x {rows} on 32 GB: chunks of {k} buckets are faster than of {other}", True,
                 lambda p, q: rate(p) > rate(q),
                 [chunks(k, "--memory-times 2", rows), chunks(other, "--memory-times 2", rows)])
          for rows in (8, 12)
          for k, other in (("2", "1"), ("4", "1"), ("2", "all"), ("4", "all"), ("all", "1"))],
    ],
    "MiCS": [
        Result("C3", "BERT 10B, 128 V100: MiCS over ZeRO-3", (2.82, 3.24), lambda p, q: rate(p) / rate(q),
               [mics("bert-10b", 128, "mics"), mics("bert-10b", 128, "zero3")], "x"),
        Result("C3", "the same at C23's rates: 4.5 GB/s into a node, products at 45 % of the peak", (2.82, 3.24),
               lambda p, q: rate(p) / rate(q),
               [mics("bert-10b", 128, "mics", at=C23), mics("bert-10b", 128, "zero3", at=C23)], "x"),
        Result("C3", "that times the 1.541 by which MiCS's own ZeRO-3 is faster than DeepSpeed's (C22)", (2.82, 3.24),
               lambda p, q: 1.541 * rate(p) / rate(q),
               [mics("bert-10b", 128, "mics", at=C23), mics("bert-10b", 128, "zero3", at=C23)], "x"),
        Result("C4", "BERT 10B, 128 V100: % of peak with recomputation", (42,), lambda p: 100 * tera_done(p) / 125,
               [mics("bert-10b", 128, "mics")], "%"),
        Result("C1", "BERT 15B, 128 V100: MiCS over ZeRO-3", (2.82,), lambda p, q: rate(p) / rate(q),
               [mics("bert-15b", 128, "mics", 16), mics("bert-15b", 128, "zero3")], "x"),
        Result("C1", "the same at C23's rates", (2.82,), lambda p, q: rate(p) / rate(q),
               [mics("bert-15b", 128, "mics", 16, at=C23), mics("bert-15b", 128, "zero3", at=C23)], "x"),
        Result("C6", "ZeRO-1 of BERT 10B fits 32 GB", False, fits, [mics("bert-10b", 64, "zero1", micro=4)]),
        Result("C6", "ZeRO-2 of BERT 15B fits 32 GB", False, fits, [mics("bert-15b", 64, "zero2", micro=4)]),
        Result("C18", "BERT 10B, 64 V100: groups of 8 over one of 64", (1.6,), lambda p, q: rate(p) / rate(q),
               [mics("bert-10b", 64, "mics", 8), mics("bert-10b", 64, "mics", 64, more="--all-gather auto")], "x"),
        Result("C2 / C22", "BERT 10B, 128 V100: MiCS over MiCS's own ZeRO-3 (C2 to C3 by C22)",
               (3.23 / 1.541, 3.24 / 1.541), lambda p, q: rate(p) / rate(q),
               [mics("bert-10b", 128, "mics"), mics("bert-10b", 128, "zero3")], "x"),
        Result("C2 / C22", "the same at C23's rates", (3.23 / 1.541, 3.24 / 1.541), lambda p, q: rate(p) / rate(q),
               [mics("bert-10b", 128, "mics", at=C23), mics("bert-10b", 128, "zero3", at=C23)], "x"),
        Result("C22", "BERT 10B, 128 V100, C23's rates: ZeRO-3 over ZeRO-3 without overlap", (1.541,),
               lambda p, q: rate(p) / rate(q),
               [mics("bert-10b", 128, "zero3", at=C23), mics("bert-10b", 128, "zero3", at=C23, more=APART)], "x"),
        Result("C3", "C23's rates: MiCS over ZeRO-3 without overlap", (2.82, 3.24), lambda p, q: rate(p) / rate(q),
               [mics("bert-10b", 128, "mics", at=C23), mics("bert-10b", 128, "zero3", at=C23, more=APART)], "x"),
        Result("C3", "the profile's links, products at 45 %: MiCS over ZeRO-3 without overlap", (2.82, 3.24),
               lambda p, q: rate(p) / rate(q),
               [mics("bert-10b", 128, "mics", at=C4), mics("bert-10b", 128, "zero3", at=C4, more=APART)], "x"),
        Result("C4", "the same with products at 45 % of the peak, which this row sets", (42,),
               lambda p: 100 * tera_done(p) / 125, [mics("bert-10b", 128, "mics", at=C4)], "%"),
        *[Result("C1", f"{what}: MiCS over ZeRO-3 without overlap", (2.82,), lambda p, q: rate(p) / rate(q),
                 [mics("bert-15b", 128, "mics", 16, at=at), mics("bert-15b", 128, "zero3", at=at, more=APART)], "x")
          for what, at in (("the profile's links, products at 45 %", C4), ("C23's rates", C23))],
        Result("C1", "ZeRO-3 without overlap at C23's rates, MiCS on 2 nodes at the profile's", (2.82,),
               lambda p, q: rate(p) / rate(q),
               [mics("bert-15b", 128, "mics", 16, at=C4), mics("bert-15b", 128, "zero3", at=C23, more=APART)], "x"),
        Result("C18", "the same at C23's rates", (1.6,), lambda p, q: rate(p) / rate(q),
               [mics("bert-10b", 64, "mics", 8, at=C23),
                mics("bert-10b", 64, "mics", 64, more="--all-gather auto", at=C23)], "x"),
        Result("C24", "64 V100, all-gather of 256 MB: bandwidth in a node over that of all", (128 / 11,),
               lambda p, q: p["nccl"] * 7 / 8 / (q["nccl"] * 63 / 64),
               ["collective v100-32g-p3dn 8 8 all-gather 256e6", "collective v100-32g-p3dn 1 8 all-gather 256e6"], "x"),
        Result("C19", "16 V100 on 2 nodes, all-gather of 128 MB: hierarchical over vanilla", (72.1,),
               lambda p: 100 * p["nccl hierarchical"] / p["nccl"],
               ["collective v100-32g-p3dn 2 8 all-gather 128e6"], "%"),
        *[Result("C20", f"BERT 15B, {world} V100{note}: hierarchical gather over a ring", (1.306, 1.38),
                 lambda p, q: rate(p) / rate(q),
                 [mics("bert-15b", world, "mics", 16, more="--all-gather hierarchical", at=at),
                  mics("bert-15b", world, "mics", 16, more="--all-gather ring", at=at)], "x")
          for note, at in (("", ""), (", products at 45 %", C4)) for world in (16, 32, 64, 128)],
        Result("C21", "BERT 10B, 128 V100, groups of 8: 2-hop over reduction to all ranks", (1.11, 1.249),
               lambda p, q: rate(p) / rate(q),
               [mics("bert-10b", 128, "mics", 8), mics("bert-10b", 128, "IGI", 8)], "x"),
        Result("C21", "the same at C23's rates", (1.11, 1.249), lambda p, q: rate(p) / rate(q),
               [mics("bert-10b", 128, "mics", 8, at=C23), mics("bert-10b", 128, "IGI", 8, at=C23)], "x"),
        Result("C8", "BERT 20B, 64 A100: MiCS over ZeRO-3", (2.21,), lambda p, q: rate(p) / rate(q),
               [mics("bert-20b", 64, "mics", 16, cluster=P4D), mics("bert-20b", 64, "zero3", cluster=P4D)], "x"),
        Result("C8", "the same over ZeRO-3 without overlap", (2.21,), lambda p, q: rate(p) / rate(q),
               [mics("bert-20b", 64, "mics", 16, cluster=P4D),
                mics("bert-20b", 64, "zero3", cluster=P4D, more=APART)], "x"),
        Result("C8", "the same with products at 60.5 % of the peak", (2.21,), lambda p, q: rate(p) / rate(q),
               [mics("bert-20b", 64, "mics", 16, cluster=P4D, at=A100),
                mics("bert-20b", 64, "zero3", cluster=P4D, more=APART, at=A100)], "x"),
        Result("C9", "BERT 15B, A100: efficiency of MiCS from 16 to 64", (96.7,),
               lambda p, q: 100 * rate(p) / rate(q) / 4,
               [mics("bert-15b", 64, "mics", 16, cluster=P4D), mics("bert-15b", 16, "mics", 16, cluster=P4D)], "%"),
        Result("C9", "the same of ZeRO-3", (85.3,), lambda p, q: 100 * rate(p) / rate(q) / 4,
               [mics("bert-15b", 64, "zero3", cluster=P4D), mics("bert-15b", 16, "zero3", cluster=P4D)], "%"),
        Result("C9", "the same of ZeRO-3 without overlap", (85.3,), lambda p, q: 100 * rate(p) / rate(q) / 4,
               [mics("bert-15b", 64, "zero3", cluster=P4D, more=APART),
                mics("bert-15b", 16, "zero3", cluster=P4D, more=APART)], "%"),
        Result("C9", "the same with products at 60.5 % of the peak", (85.3,), lambda p, q: 100 * rate(p) / rate(q) / 4,
               [mics("bert-15b", 64, "zero3", cluster=P4D, more=APART, at=A100),
                mics("bert-15b", 16, "zero3", cluster=P4D, more=APART, at=A100)], "%"),
        Result("C28", "BERT 10B, zero3 on 16 V100: states of a device below 32 % of 32 GB", True,
               lambda p: states(p) < 0.32 * 32e9, [mics("bert-10b", 16, "zero3")]),
        *[Result("C17", f"175B, sequence 2048, 128 A100 80 GB{note}: TFLOP/s of a GPU", (169,), tera_done,
                 [f"{P4DE.replace(' --node-size', at + ' --node-size', 1)} --model gpt --layers 96 --hidden 12288 "
                  "--heads 96 --vocab-size 50257 --sequence-length 2048 --world 128 --g-inter 1 --shard mics "
                  "--group-size 128 --batch-size 512 --microbatch-size 4 --recompute 1 --all-gather hierarchical"], "",
                 heavy=True)
          for note, at in (("", ""), (", products at 60.5 % of the peak", A100))],
        Result("C7", "BERT 20B: 64 V100 with hierarchical gathers over 16 without, by GPU: above 1", True,
               lambda p, q: rate(p) / 4 > rate(q),
               [mics("bert-20b", 64, "mics", 16, at=C23),
                mics("bert-20b", 16, "mics", 16, more="--all-gather ring", at=C23)]),
        *[Result(name, f"100B, {world} A100{groups}{note}: TFLOP/s of a GPU", (says,), tera_done,
                 [hundred(world, "mics", at=at)], heavy=True)
          for note, at in (("", ""), (", products at 60.5 % of the peak", A100))
          for name, world, groups, says in (("C14", 128, "", 171), ("C15", 512, ", groups of 128", 170))],
        Result("C15", "100B: efficiency of MiCS from 128 to 512", (99.4,), lambda p, q: 100 * rate(p) / rate(q) / 4,
               [hundred(512, "mics"), hundred(128, "mics")], "%", heavy=True),
        *[Result("C16", f"100B, 512 A100{what}: MiCS over ZeRO-3", (2.74,), lambda p, q: rate(p) / rate(q),
                 [hundred(512, "mics"), hundred(512, "zero3", more)], "x", heavy=True)
          for what, more in (("", ""), (", without overlap", APART))],
        Result("C16", "100B, 512 A100: MiCS on 16 nodes at the profile's rate over ZeRO-3 without overlap at C25's",
               (2.74,), lambda p, q: rate(p) / rate(q), [hundred(512, "mics"), hundred(512, "zero3", APART, C25)], "x",
               heavy=True),
        Result("C16", "the same with products at 60.5 % of the peak", (2.74,), lambda p, q: rate(p) / rate(q),
               [hundred(512, "mics", at=A100), hundred(512, "zero3", APART, f"{C25},{A100[1:]}")], "x", heavy=True),
        *[Result("C16", f"100B: efficiency of ZeRO-3{what} from 128 to 512", (72,),
                 lambda p, q: 100 * rate(p) / rate(q) / 4,
                 [hundred(512, "zero3", more), hundred(128, "zero3", more)], "%", heavy=True)
          for what, more in (("", ""), (" without overlap", APART))],
        Result("C13", "WideResNet 3B with ZeRO-2 fits 32 GB", False, fits, [wide("zero2")]),
        Result("C13", "WideResNet 3B, 64 V100: MiCS over ZeRO-3", (2.89,), lambda p, q: rate(p) / rate(q),
               [wide("mics"), wide("zero3")], "x"),
        Result("C13", "the same over ZeRO-3 without overlap", (2.89,), lambda p, q: rate(p) / rate(q),
               [wide("mics"), wide("zero3") + " --no-overlap"], "x"),
        Result("C13", "ZeRO-3 without overlap at C23's 4.5 GB/s into a node, MiCS at the profile's", (2.89,),
               lambda p, q: rate(p) / rate(q), [wide("mics"), wide("zero3", "@node=4.5e9") + " --no-overlap"], "x"),
    ],
    "PaRO": [
        Result("P1", "16 A100 on 2 nodes, 100 GB sent by an all-gather, 14 GB/s for one GPU and 56 for a node: ring",
               (459,), lambda p: p["ring"], [f"collective a100-80g-hdr 2 8 all-gather {SENT} 14e9 56e9"],
               " ms"),
        Result("P1", "the same: HO-Ring over ring", (309 / 459,), lambda p: p["ho-ring"] / p["ring"],
               [f"collective a100-80g-hdr 2 8 all-gather {SENT} 14e9 56e9"], "x"),
        Result("P1", "16 A100 on 2 nodes, 100 GB gathered, links at their rates (8 x 25 GB/s, NVLink): ring", (459,),
               lambda p: p["nccl"], [f"collective a100-80g-hdr 2 8 all-gather {GATHERED} 25e9 200e9"], " ms"),
        Result("P1", "the same: HO-Ring over ring", (309 / 459,), lambda p: p["ho-ring"] / p["nccl"],
               [f"collective a100-80g-hdr 2 8 all-gather {GATHERED} 25e9 200e9"], "x"),
        Result("P12", "LLaMA-7B, 64: bytes between nodes grow from IIG and MiCS to IGG and ZeRO++ to ZeRO-3", True,
               lambda iig, mics, igg, plus, three: max(between(iig), between(mics)) < min(between(igg), between(plus))
               and max(between(igg), between(plus)) < between(three),
               [paro("llama-7b", 64, shard) for shard in ("paro-iig", "mics", "paro-igg", "zero++", "zero3")],
               heavy=True),
        *[Result(name, f"LLaMA-{model[6:].upper()}, {world} A100{note}: {ours} over {other}", (says,),
                 lambda p, q: rate(p) / rate(q),
                 [paro(model, world, ours, at, more), paro(model, world, other, at, more)], "x", heavy=world > 32)
          for at, more, note in (("", "", ""), (P2, "", ", at P2's 56 GB/s of a node"),
                                 (P2, APART, ", at P2's rate without overlap"))
          for name, model, ours, other, both in [
              ("P3", "llama-7b", "paro-igg", "zero3", (1.3, 1.4)), ("P4", "llama-7b", "paro-iig", "zero3", (1.9, 2.6)),
              ("P5", "llama-7b", "paro-nig", "zero2", (1.7, 2.2)), ("P6", "llama-65b", "paro-igg", "zero3", (1.2, 1.4)),
              ("P7", "llama-65b", "paro-iig", "zero3", (1.3, 1.8))]
          for world, says in zip((32, 128), both)],
        *[Result(name, f"LLaMA-{model[6:].upper()}, 32 A100, at 4.1's 100 GB/s of a node without overlap: {ours} over "
                 "zero3", (says,), lambda p, q: rate(p) / rate(q),
                 [paro(model, 32, ours, HUNDRED, APART), paro(model, 32, "zero3", HUNDRED, APART)], "x")
          for name, model, ours, says in [
              ("P3", "llama-7b", "paro-igg", 1.3), ("P4", "llama-7b", "paro-iig", 1.9),
              ("P6", "llama-65b", "paro-igg", 1.2), ("P7", "llama-65b", "paro-iig", 1.3)]],
        *[Result("P4", f"LLaMA-7B, {world} A100, that in 8 gathers a layer (--tile 4): paro-iig over zero3", (says,),
                 lambda p, q: rate(p) / rate(q),
                 [paro("llama-7b", world, shard, P2, f"{APART} --tile 4") for shard in ("paro-iig", "zero3")], "x",
                 heavy=world > 32)
          for world, says in ((32, 1.9), (128, 2.6))],
        *[Result("P8", f"LLaMA-65B with {shard} fits 80 GB on 32", expected, fits, [paro("llama-65b", 32, shard)])
          for shard, expected in [("zero3", True), ("zero++", True), ("paro-igg", True), ("paro-iig", True),
                                  ("mics", False), ("zero2", False), ("paro-nig", False)]],
        Result("P9", "LLaMA-7B with zero1 fits 80 GB on 32", False, fits, [paro("llama-7b", 32, "zero1")]),
        *[Result("P11", f"LLaMA-7B, at P2's rate without overlap: of a GPU's rate, from 32 to 128 {what}", True, of,
                 [paro("llama-7b", world, shard, P2, APART)
                  for shard in ("paro-iig", "paro-igg", "paro-nig", "zero3", "zero2") for world in (32, 128)],
                 heavy=True)
          for what, of in (("IIG loses the least", first_keeps_most), ("ZeRO-2 loses the most", last_keeps_least))],
        Result("P10", "LLaMA-7B, 32: IIG over MiCS is above 1", True, lambda p, q: rate(p) > rate(q),
               [paro("llama-7b", 32, "paro-iig"), paro("llama-7b", 32, "mics")]),
        Result("P10", "LLaMA-7B, 32: IGG over ZeRO++ is above 1", True, lambda p, q: rate(p) > rate(q),
               [paro("llama-7b", 32, "paro-igg"), paro("llama-7b", 32, "zero++")]),
    ],
    "ZeRO-Infinity": [
        Result("Z3", "0.5T, 512 V100: TFLOP/s of a GPU", (49,), tera_done,
               [infinity(124, 18432, 512, 7, "none", "--tile 16 --activation-tier host")], "", heavy=True),
        *[Result("Z3", f"the same with products at {note}", (49,), tera_done,
                 [infinity(124, 18432, 512, 7, "none", "--tile 16 --activation-tier host", at)], "", heavy=True)
          for note, at in (("57 % of the peak, where a GPU alone has Z12's 70 TFLOP/s", Z12),
                           ("43 % of the peak", Z3))],
        *[Result("Z5", what, (44,), tera_of_deep,
                 [infinity(layers, 25600, 64, 5, "infinity-nvme", f"--tile 16 {more}", at) for layers in (4, 8)])
          for what, at, more in (("1T, 64 V100, NVMe: TFLOP/s of a GPU", "", ""),
                                 ("the same with products at 57 % of the peak", Z12, ""),
                                 ("and without overlap", Z12, APART),
                                 ("the same with products at 43 % of the peak", Z3, ""),
                                 ("and without overlap, products at 43 % of the peak", Z3, APART))],
        *[Result("Z3", f"{size}, 512 V100, a batch of {512 * micro}, NVMe, products at {share} % of the peak{what}: "
                 "TFLOP/s of a GPU",
                 (says,), lambda p, q, n=layers: tera_of_deep(p, q, n),
                 [infinity(few, hidden, 512, micro, "infinity-nvme", f"--tile {tiles} --activation-tier host {more}",
                           at) for few in (4, 8)], heavy=True)
          for size, layers, hidden, micro, tiles, says in (("10T", 195, 65536, 2, 16, 43),
                                                           ("20T", 205, 90112, 1, 32, 34))
          for share, at, what, more in ((57, Z12, "", ""), (57, Z12, ", without overlap", APART), (43, Z3, "", ""))],
        Result("Z6", "1T: a GPU of 512 over one of 64 is above 1", True,
               lambda *p: tera_of_deep(*p[:2]) > tera_of_deep(*p[2:]),
               [infinity(layers, 25600, world, 5, "infinity-nvme", "--tile 16", Z12)
                for world in (512, 64) for layers in (4, 8)], heavy=True),
        *[Result("Z11", f"hidden size {hidden}, 5 layers, 4 samples, 32 V100: checkpoints on the GPU over on the host",
                 says, lambda p, q: rate(p) / rate(q),
                 [infinity(5, hidden, 32, 4, "infinity-cpu", f"{tiles} {more}", Z12)
                  for more in ("", "--activation-tier host")], "x")
          for hidden, tiles, says in ((2048, "", (1.0, 1.2)), (8192, "", (1.0, 1.2)),
                                      (32768, "--tile 16", (1.0, 1.02)))],
        Result("Z13", "16 V100, a sample each, links of 70 GB/s, without overlap: % of what a GPU alone does above 50",
               True, lambda p, q: tera_done(p) > tera_done(q) / 2,
               [infinity(4, 4096, 16, 1, "none", APART, f"{Z12},inside=70e9"),
                infinity(4, 4096, 1, 1, "none", "", Z12)]),
        Result("Z14", "a GPU, 2 samples, optimizer's states at 1.5 TB/s: % of what it does with them on it", (90,),
               lambda p, q: 100 * tera_done(p) / tera_done(q),
               [infinity(4, 4096, 1, 2, offload, "", f"{Z12},copies=1.5e12") for offload in ("myelin", "none")], "%"),
        *[Result("Z15", f"a GPU, checkpoints of hidden size {hidden} at {speed:g} GB/s: % of what it does with them on "
                 f"it above {share}", True, lambda p, q, share=share: tera_done(p) > share / 100 * tera_done(q),
                 [infinity(layers, hidden, 1, 4, "none", more, f"{Z12},copies={speed:g}e9")
                  for more in ("--activation-tier host", "")])
          for hidden, layers, speed, share in ((2048, 5, 2, 50), (8192, 1, 3, 80))],
        *[Result("Z17", f"{size}: TB of checkpoints of 32 samples in host memory", (says,), checkpoints,
                 [infinity(layers, hidden, 32, 1, "infinity-nvme", f"--tile {tiles} --activation-tier host "
                           "--no-simulation", f"@disk=1e18,host=1e16,device={device}")], " TB")
          for size, layers, hidden, tiles, device, says in (("10T", 195, 65536, 16, 32e9, 0.76),
                                                            ("100T", 315, 163840, 128, 64e9, 3))],
        Result("Z18", "10T with everything on 1536 V100 fits", False, fits,
               [infinity(195, 65536, 1536, 1, "none", "--tile 16")]),
        Result("Z18", "100B with everything on 64 V100 fits", True, fits, [infinity(125, 8192, 64, 1, "none")]),
        Result("Z18", "1T with everything on 512 V100 fits", False, fits,
               [infinity(128, 25600, 512, 1, "none", "--tile 16")]),
        Result("Z18", "the same in four tiles (--tile 4), gathered one after the other", True, fits,
               [infinity(125, 8192, 64, 1, "none", "--tile 4")]),
        Result("Z7", "10B, 16 V100: TFLOP/s of a GPU above 40", True, lambda p: tera_done(p) > 40,
               [infinity(50, 4096, 16, 8, "none")]),
        Result("Z7", "50B, 16 V100, CPU and NVMe: TFLOP/s of a GPU above 40", True, lambda p: tera_done(p) > 40,
               [infinity(62, 8192, 16, 26, "infinity-nvme")]),
        Result("Z7", "100B, 16 V100, CPU and NVMe: TFLOP/s of a GPU above 40", True, lambda p: tera_done(p) > 40,
               [infinity(125, 8192, 16, 24, "infinity-nvme")], heavy=True),
        Result("Z8", "1.4B with data parallelism alone fits 32 GB", True, fits,
               [infinity(24, 2048, 16, 1, "none").replace("zero3", "ddp")]),
        Result("Z8", "10B with data parallelism alone fits", False, fits,
               [infinity(50, 4096, 16, 1, "none").replace("zero3", "ddp")]),
        Result("Z8", "13B with ZeRO-2 and the optimizer on the host fits", True, fits,
               [infinity(64, 4096, 16, 1, "zero-offload").replace("zero3", "zero2")]),
        Result("Z8", "100B in host memory fits a node", True, fits, [infinity(125, 8192, 16, 1, "infinity-cpu")]),
        Result("Z8", "70B, the largest of Table 4 there, in host memory fits a node", True, fits,
               [infinity(87, 8192, 16, 1, "infinity-cpu")]),
        Result("Z8", "1T on NVMe fits a node", True, fits, [infinity(128, 25600, 16, 1, "infinity-nvme", "--tile 16")]),
    ],
    "ZeRO++": [
        Result(name, f"12B, 64 V100: bytes between nodes with {what}, over ZeRO-3's", (says,),
               lambda p, q: between(p) / between(q), [plus(shard, more), plus("zero3")], "x", heavy=True)
        for name, what, says, shard, more in [
            ("Q1", "qwZ", 2 / 3, "zero3", "--gather-dtype int8"),
            ("Q2", "hpZ", 2 / 3, "zero++", ""),
            ("Q3", "qgZ", 3 / 4, "zero3", "--reduce-dtype int4"),
            ("Q4", "all three", 1 / 4, "zero++", "--gather-dtype inter=int8 --reduce-dtype int4")]
    ],
}
