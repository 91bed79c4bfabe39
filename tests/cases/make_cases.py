#!/usr/bin/env python3
"""Write the conformance cases of this folder, or check the stored ones.

    pip install torch numpy safetensors
    python3 make_cases.py                 # writes every case beside this file
    python3 make_cases.py conv attention  # only the cases whose names contain one of the words
    python3 make_cases.py --check         # compares the stored files with what would be written

A case says: these inputs, through these operations, give these outputs and gradients, all worked out in
float64 from float32 inputs. It says nothing of ranks; `tessera-verify` splits the tensors in every way and
the numbers must not change.
"""
import argparse
import importlib
import os
import pkgutil
import sys
import warnings

import torch

import generator
from generator.case import ALL_CASES

for module in pkgutil.iter_modules(generator.__path__):  # each registers its cases
    importlib.import_module(f"generator.{module.name}")

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="write only cases whose names contain one of these")
    parser.add_argument("--out", default=HERE, help="the folder to write to (default: this one)")
    parser.add_argument("--check", action="store_true", help="write nothing, compare with the stored files")
    parser.add_argument("--list", action="store_true", help="print the names and operations only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    chosen = [c for n, c in ALL_CASES.items() if not options.words or any(w in n for w in options.words)]
    if options.list:
        for case in chosen:
            print(case.name, *(s["op"] for s in case.program))
        return 0
    if options.check:
        bad = {c.name: c.differences(options.out) for c in chosen}
        stored = {f[:-len(".safetensors")] for f in os.listdir(options.out) if f.endswith(".safetensors")}
        for extra in sorted(stored - set(ALL_CASES)):
            bad[extra] = ["no such case in the generator"]
        for name, lines in bad.items():
            for line in lines:
                print(f"{name}: {line}")
        return 1 if any(bad.values()) else 0
    os.makedirs(options.out, exist_ok=True)
    for case in chosen:
        case.write(options.out)
    names = [os.path.join(options.out, f"{c.name}.safetensors") for c in chosen]
    print(f"{len(names)} cases, {sum(map(os.path.getsize, names)) / 1024:.0f} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
