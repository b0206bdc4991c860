"""What nvcc made of the kernels, without a GPU: registers, stack and shared memory of each, for every architecture.

usage: kernel_resources.py CUOBJDUMP ARCHIVE...

Prints a table and fails where a kernel keeps more in local memory than `spills` below says, or where its largest block
(its __launch_bounds__) does not fit the registers of a multiprocessor. Ends with 77 where CUOBJDUMP is not there.
"""

import re
import struct
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

REGISTERS = 65536  # per multiprocessor
GRANULE = 8  # a thread's registers are allocated in multiples of this

# Known bytes of local memory per thread, by file and kernel. Spilled registers are in the first-level cache.
SPILLS = [
    # Rows of more than 8192 channels, which 512 threads keep in registers: five arrays of 32 floats each.
    ("norm_cuda", r"backward_kernel<0, float, 8, 4>", 1280),
    ("norm_cuda", r"backward_kernel<0, \w+, 4, 8>", 384),
    ("norm_cuda", r"backward_kernel<1, float, 8, 4>", 200),
    ("norm_cuda", r"backward_kernel<1, \w+, 4, 8>", 104),
    ("norm_cuda", r"backward_kernel<1, \w+, 8, 1>", 8),
    # Eight sines and cosines, and the channels of two halves of a head that they rotate.
    ("rotary_cuda", r"rotary_kernel<8, \w+>", 8),
    # Two blocks per multiprocessor are worth more than registers for the complete tile: a few accesses compared with 96
    # to 256 products per warp. Dropout's numbers need more.
    ("tensor_attention_cuda", r"forward_kernel<\w+, 128, \w+, \w+>", 208),
    ("tensor_attention_cuda", r"forward_kernel<\w+, 64, true, \w+>", 96),
    ("tensor_attention_cuda", r"query_gradient_kernel<\w+, 64, \w+, \w+>", 128),
    ("plain_attention_cuda", r"forward_kernel<4, \w+, \w+>", 8),
    ("plain_attention_cuda", r"query_gradient_kernel<[24], \w+, \w+>", 16),
    ("plain_attention_cuda", r"key_gradient_kernel<8, false, \w+>", 96),  # halves in heads of more than 128 channels
]


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def launch_bounds(cubin):
    """Threads of the largest block of each kernel: EIATTR_MAX_THREADS of its section .nv.info.NAME."""
    data = cubin.read_bytes()
    (headers_at,) = struct.unpack_from("<Q", data, 40)
    entry_size, count, names = struct.unpack_from("<HHH", data, 58)
    sections = [struct.unpack_from("<IIQQQQ", data, headers_at + i * entry_size) for i in range(count)]
    names_at = sections[names][4]
    bounds = {}
    for name, _, _, _, begin, size in sections:
        text = data[names_at + name : data.index(b"\0", names_at + name)].decode()
        if not text.startswith(".nv.info."):
            continue
        at = begin
        while at < begin + size:
            form, attribute, value = struct.unpack_from("<BBH", data, at)
            at += 4
            if form != 4:  # skip a value of that many bytes
                continue
            if attribute == 5:
                x, y, z = struct.unpack_from("<III", data, at)
                bounds[text.removeprefix(".nv.info.")] = x * y * z
            at += value
    return bounds


def kernels(cuobjdump, archive):
    """(architecture, mangled name, threads, output of cuobjdump) of each."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([cuobjdump, "-xelf", "all", archive], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        for cubin in sorted(Path(folder).iterdir()):
            architecture = re.search(r"sm_\d+", cubin.name)[0]
            bounds = launch_bounds(cubin)
            usage = output(cuobjdump, "--dump-resource-usage", cubin)
            for name, text in re.findall(r"Function (\S+):\s+(REG:.*)", usage):
                used = {key: int(value) for key, value in re.findall(r"([A-Z]+):(\d+)", text)}
                yield architecture, name, bounds.get(name), used


def file_of(name):
    found = re.search(r"_GLOBAL__N__[0-9a-f]+_\d+_(\w+?)_cu_[0-9a-f]{8}", name)
    return found[1] if found else ""


def allowed_bytes(file, kernel):
    return max((most for of, pattern, most in SPILLS if of == file and re.search(pattern, kernel)), default=0)


def main():
    cuobjdump, *archives = sys.argv[1:]
    if not Path(cuobjdump).is_file():
        print("skipped: cuobjdump is not there; it comes with CUDA's toolkit, or as nvidia-cuda-cuobjdump from PyPI")
        return 77
    found = [kernel for archive in archives for kernel in kernels(cuobjdump, Path(archive).resolve())]
    demangled = output("c++filt", *(name for _, name, _, _ in found)).splitlines()
    wrong, table = [], defaultdict(list)
    for (architecture, name, threads, used), kernel in zip(found, demangled):
        file = file_of(name)
        kernel = kernel.replace("(anonymous namespace)::", "")
        kernel = re.sub(r"^void |\(anonymous namespace\)|\([\w:]+\)(?=\d)|\(.*$", "", kernel)
        kernel = re.sub(r"ranvier::\w+::(cuda::)?", "", kernel)
        spilled = used["STACK"] + used["LOCAL"]
        if spilled > allowed_bytes(file, kernel):
            wrong.append(f"{architecture} {file}: {kernel} keeps {spilled} bytes a thread in local memory")
        registers = -(-used["REG"] // GRANULE) * GRANULE
        if threads is None:
            wrong.append(f"{architecture} {file}: {kernel} has no __launch_bounds__")
        elif registers * threads > REGISTERS:
            wrong.append(f"{architecture} {file}: {threads} threads of {kernel} take {registers} registers each")
        table[architecture, file, kernel.split("<")[0]].append((used["REG"], threads, spilled, used["SHARED"]))
    print(f"{'':6} {'file':24} {'kernel':28} {'kinds':>5} {'registers':>9} {'threads':>7} {'local':>5} {'shared':>6}")
    for (architecture, file, kernel), kinds in sorted(table.items()):
        registers, threads, spilled, shared = (max(column) for column in zip(*kinds))
        print(f"{architecture:6} {file:24} {kernel:28} {len(kinds):5} {registers:9} {threads:7} {spilled:5} {shared:6}")
    for line in wrong:
        print(line)
    if not found:
        print("no kernel was found")
    return 1 if wrong or not found else 0


if __name__ == "__main__":
    sys.exit(main())
