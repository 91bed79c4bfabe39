#!/usr/bin/env python3
"""Stands in for a Python with PyTorch, as bench/compare_*.py call one: prints made-up times in the form of bench/pytorch/*.py."""
import json
import pathlib
import sys

program = pathlib.Path(sys.argv[1]).name
if program == "train_step.py":
    print(json.dumps({"library": "pytorch", "torch": "0.0", "best_s": 1.0, "cpu_s": 1.0, "peak_bytes": 2.0**20, "page_faults": 0.0}))
else:
    recipes = [json.loads(line)["recipe"] for line in pathlib.Path(sys.argv[2]).read_text().splitlines()]
    for recipe in recipes:
        for layout in ("contiguous", "channels_last"):
            print(json.dumps({"recipe": recipe, "layout": layout, "torch": "0.0", "isa": "none", "forward_s": 1.0,
                              "forward_cpu_s": 1.0, "backward_s": 1.0, "backward_cpu_s": 1.0}))
