"""Reading and writing safetensors files of fp32 tensors: 8 bytes of header length, a JSON header, the data. Whole numbers are
written as int64."""

import json
import struct

import numpy as np


def read(path):
    """Tensors by name, fp32. Names lose a leading "transformer."."""
    with open(path, "rb") as file:
        (header_bytes,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(header_bytes))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "F32":
            raise ValueError(f"{path}: {name} is {entry['dtype']}, expected F32")
        begin, end = entry["data_offsets"]
        values = np.frombuffer(data[begin:end], dtype="<f4").reshape(entry["shape"])
        tensors[name.removeprefix("transformer.")] = values
    return tensors


def write(path, tensors):
    header, offset = {}, 0
    for name, values in tensors.items():
        whole = values.dtype.kind == "i"
        end = offset + (8 if whole else 4) * values.size
        header[name] = {"dtype": "I64" if whole else "F32", "shape": list(values.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(np.ascontiguousarray(values, dtype="<i8" if values.dtype.kind == "i" else "<f4").tobytes())
