#!/usr/bin/env python3
"""Merges what TESSERA_CUDNN_RECORD wrote into a file of distinct graphs. Usage: collect_graphs.py OUT.jsonl RECORD...

Types are dropped (the test judges every graph in all of them), and so is the order. What OUT held stays. --limit N
keeps, of graphs that are new, every so many-th, so that about N are added: for random tests.
"""
import argparse
import json
import pathlib


def read(path):
    graphs = []
    for line in path.read_text().splitlines() if path.exists() else []:
        graph = json.loads(line)
        graph.update({"dtype": "bf16"} if graph["kind"].startswith("attention") else {"dtype": "f32", "tf32": False})
        graphs.append(json.dumps(graph, separators=(",", ":")))
    return graphs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("records", type=pathlib.Path, nargs="+")
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    held = set(read(options.out))
    new = sorted({g for path in options.records for g in read(path)} - held)
    if options.limit and len(new) > options.limit:
        new = new[:: -(-len(new) // options.limit)]
    options.out.write_text("".join(g + "\n" for g in sorted(held | set(new))))
    print(f"{options.out}: {len(held)} graphs, {len(new)} added")


main()
