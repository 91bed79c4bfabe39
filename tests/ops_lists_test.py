"""docs/ops.md says twice what moves an input: line by line for every call, and in lists for all operations and
pairs. Every line must be in the lists of all that it sends, and the lists must say nothing that the lines do not.
"""
import collections
import pathlib
import re
import sys

PAGE = pathlib.Path(sys.argv[1])
# How each list begins, and the kind of message that puts a call into it.
LISTS = {"Made whole on every rank": "all-gather", "Cut elsewhere": "re-shard", "Made in a cut": "reduce-scatter"}
LINES, PAIRS, END = "", "Pairs that move an input", "Gradients that come placed otherwise"


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def unfolded(text):
    """All placings of a cell such as "a:S0,S1 b:P; c:S0": frozen sets of (input, placement)."""
    for part in text.split("; "):
        choices = [(name, placed.split(",")) for name, placed in (word.split(":") for word in part.split())]
        placings = [frozenset()]
        for name, each in choices:
            placings = [p | {(name, one)} for p in placings for one in each]
        yield from placings


def read(page):
    """The kinds that the lines of every (operation, placing) send, and the members of every list."""
    lines, lists = collections.defaultdict(set), collections.defaultdict(set)
    section, op, listed = LINES, None, None
    for line in page.read_text().splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif match := re.match(r"\*\*(\w+)\*\* ", line):
            op = match[1]
        elif section == END:
            break
        elif section != PAIRS:
            if op and re.match(r"\| \w+:", line):
                placed, forward, _, backward = cells(line)
                for text in [placed] if forward != "–" or backward not in ("–", "") else re.findall(
                        r"([\w: ]+) →", placed):
                    (placing,) = unfolded(text.strip())
                    lines[op, placing] |= {kind for kind in LISTS.values() if kind in f"{forward}, {backward}"}
        elif begins := [kind for start, kind in LISTS.items() if line.startswith(start)]:
            listed = begins[0]
        elif line.startswith("No input moves"):
            listed = None
        elif listed and re.match(r"\| [\w, ]+ \|.*:", line):
            ops, *_, placed = cells(line)
            lists[listed] |= {(one, placing) for one in ops.split(", ") for placing in unfolded(placed)}
    return lines, lists


def said(op, placing, kind, lists):
    """A pair is not listed where one of its parts is, there or among what is made whole."""
    parts = [frozenset([part]) for part in placing] if len(placing) > 1 else []
    return (op, placing) in lists[kind] or any((op, part) in lists[k] for part in parts for k in (kind, "all-gather"))


def main():
    lines, lists = read(PAGE)
    faults = []
    for (op, placing), kinds in lines.items():
        for kind in LISTS.values():
            where = f"{op} with {' '.join(sorted(map(':'.join, placing)))}: {kind}"
            if kind in kinds and not said(op, placing, kind, lists):
                faults.append(f"{where} is in its line and in no list")
            # Of a pair other calls of the operation may have no line.
            if kind not in kinds and len(placing) == 1 and (op, placing) in lists[kind]:
                faults.append(f"{where} is in a list and in no line")
    known = {op for op, _ in lines}
    faults += [f"{op} is in a list and has no lines of its own" for kind in lists for op, placing in lists[kind]
               if op not in known or (len(placing) == 1 and (op, placing) not in lines)]
    counts = {kind: (sum(kind in kinds for kinds in lines.values()), len(lists[kind])) for kind in LISTS.values()}
    if len(known) < 100 or not all(all(count) for count in counts.values()):
        faults.append(f"{PAGE} could not be read: {len(known)} operations, lines and members of lists {counts}")
    print(f"{len(known)} operations, {len(lines)} lines", *faults, sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
