"""Figures that Ranvier's programs wrote: values of JSON lines, and numbers of the console if no file has them.

usage: figures.py values FILE KEY [SELECT]     KEY of every JSON line that SELECT matches; default: of every step
       figures.py memory FILE [KIND…]          planned bytes of rank 0 in a metrics file: the sum of these kinds
       figures.py column FILE COLUMN [NUMBER]  cells below COLUMN in a console table of stages or ranks
       figures.py number FILE LABEL UNIT       number with this unit on the last line that has the label
       figures.py amounts FILE LABEL           sum of the bytes at the end of lines that have the label
       figures.py traffic FILE SHARD           bytes between nodes per step, from the sharding table of --dry-run

SELECT is a key that a line has (`checkpoint`) or a value (`bench=file tier read`). KIND is a key of `memory`, or `device`
for all kinds on the device; default: all kinds but `nvme`. COLUMN and LABEL are regular expressions. NUMBER: only this
row. A missing figure ends the program with status 1 and a message.
"""

import json
import re
import sys

OFF_DEVICE = ("pinned", "host", "nvme")
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "%": 0.01, "": 1}
AMOUNT = r"(\d+(?:\.\d+)?) ?(B|[KMGT]iB)\b"


class Missing(Exception):
    """A figure that is not there."""


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as error:
        raise Missing(f"cannot read {path}: {error.strerror}") from None


def records(path, select="step"):
    """JSON lines that `select` matches. A step's line has its seconds; evaluations may have a line without them."""
    name, equals, wanted = select.partition("=")
    text = read(path)
    try:
        lines = json.loads(text)["links"]  # counters of tests/cluster are one object
    except (KeyError, ValueError):
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    found = [line for line in lines if name in line and (not equals or str(line[name]) == wanted)]
    if name == "step" and not equals:
        found = [line for line in found if "seconds" in line]
    if not found:
        raise Missing(f"{path} has no line with {select}")
    return found


def values(path, key, select="step"):
    """`key` of all lines that `select` matches; every one of them must have it."""
    found = [record.get(key) for record in records(path, select)]
    if None in found:
        raise Missing(f"{path}: {found.count(None)} of {len(found)} lines with {select} have no {key}")
    return found


def planned_bytes(path, kinds=()):
    return sum_of(values(path, "memory")[0], kinds, path)


def sum_of(memory, kinds, path):
    """Bytes of these kinds in a step's `memory`."""
    if list(kinds) == ["device"]:
        kinds = [kind for kind in memory if kind not in OFF_DEVICE]
    kinds = kinds or [kind for kind in memory if kind != "nvme"]
    if missing := [kind for kind in kinds if kind not in memory]:
        raise Missing(f"{path}: memory has no {', '.join(missing)}")
    return sum(memory[kind] for kind in kinds)


def cells(line):
    """Tables have two blanks or more between columns."""
    return re.split(r"\s{2,}", line.strip())


def number_of(cell):
    found = re.fullmatch(r"(-?\d+(?:\.\d+)?) ?(%|B|[KMGT]iB|)", cell)
    if not found:
        raise Missing(f"'{cell}' is not a number")
    return float(found[1]) * UNITS[found[2]]


def column(text, name):
    """Cells of a table that has a column `stage`, by the number in their row's first column; the last such table."""
    rows, place, width = {}, None, 0
    for line in text.splitlines():
        row = cells(line)
        if "stage" in row and (found := [i for i, cell in enumerate(row) if re.fullmatch(name, cell)]):
            rows, place, width = {}, found[0], len(row)
        elif place is not None and len(row) == width and row[0].isdigit():
            rows[int(row[0])] = number_of(row[place])
        else:
            place = None
    if not rows:
        raise Missing(f"no table has the columns 'stage' and '{name}'")
    return rows


def number(text, label, unit):
    lines = [line for line in text.splitlines() if re.search(label, line)]
    found = re.findall(rf"(\d+(?:\.\d+)?) ?{re.escape(unit)}(?!\w)", lines[-1]) if lines else []
    if not found:
        raise Missing(f"no line with '{label}' has a number of {unit}")
    return float(found[-1])


def amounts(text, label):
    found = [match for line in text.splitlines() if re.search(label, line)
             if (match := re.search(AMOUNT + r"\s*$", line))]
    if not found:
        raise Missing(f"no line with '{label}' ends with bytes")
    return sum(float(match[1]) * UNITS[match[2]] for match in found)


def bytes_between_nodes(text, shard):
    """A row ends with three amounts sent between nodes, three inside nodes, and the papers' sum."""
    for line in text.splitlines():
        if re.match(rf"[*\s]\s*{re.escape(shard)}\s", line):
            row = re.findall(AMOUNT + "|(–)", line)
            if len(row) >= 11:
                return sum(float(count) * UNITS[unit] for count, unit, none in row[-7:-4] if not none)
    raise Missing(f"no table has a row of {shard} with the bytes that it sends")


def exceeded(text):
    """Lines such as `… 2.4 GiB of 1.0 GiB …` whose first amount is larger: memory that a plan lacks."""
    found = []
    for line in text.splitlines():
        for need, need_unit, has, has_unit in re.findall(rf"{AMOUNT} of\s+{AMOUNT}", line):
            if float(need) * UNITS[need_unit] > float(has) * UNITS[has_unit]:
                found.append(" ".join(line.split()))
    return found


def main(what, path, *words):
    if what == "values":
        return values(path, *words)
    if what == "memory":
        return [planned_bytes(path, words)]
    text = read(path)
    try:
        if what == "column":
            rows = column(text, words[0])
            if len(words) > 1 and int(words[1]) not in rows:
                raise Missing(f"the table with '{words[0]}' has no row {words[1]}")
            return [rows[int(words[1])]] if len(words) > 1 else rows.values()
        return [{"number": number, "amounts": amounts, "traffic": bytes_between_nodes}[what](text, *words)]
    except Missing as error:
        raise Missing(f"{path}: {error}") from None


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    try:
        for figure in main(*sys.argv[1:]):
            # Whole numbers without a fraction, as the shell computes with them.
            print(int(figure) if isinstance(figure, float) and figure.is_integer() else figure)
    except Missing as error:
        sys.exit(f"figures.py: {error}")
