"""Reads what Ranvier writes for others with their own readers, and prints it line by line.

usage: read_with_others.py tensorboard FOLDER    scalars and texts of the event files, by TensorBoard
       read_with_others.py prometheus FILE       samples, by prometheus_client
Exit status 77: the reader is not installed.
"""

import logging
import sys


def tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    logging.disable(logging.WARNING)  # about repeated steps
    events = EventAccumulator(folder)
    events.Reload()
    for tag in sorted(events.Tags()["scalars"]):
        for event in events.Scalars(tag):
            print(f"{tag} {event.step} {event.value:.6g}")
    for tag in sorted(events.Tags()["tensors"]):
        for event in events.Tensors(tag):
            print(f"{tag} {event.step} {event.tensor_proto.string_val[0].decode()!r}")


def prometheus(path):
    from prometheus_client.parser import text_string_to_metric_families
    with open(path, encoding="utf-8") as file:
        for family in text_string_to_metric_families(file.read()):
            for sample in family.samples:
                print(family.type, sample.name, sample.labels, f"{sample.value:g}")


if __name__ == "__main__":
    try:
        {"tensorboard": tensorboard, "prometheus": prometheus}[sys.argv[1]](sys.argv[2])
    except ImportError as missing:
        print(missing)
        sys.exit(77)
