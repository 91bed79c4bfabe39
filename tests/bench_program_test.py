"""Runs tessera-bench --quick: every group that it lists measures something, and its JSON lines can be read.

Usage: bench_program_test.py MPIRUN PROGRAM RANKS [DEVICE]
"""
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

MPIRUN, PROGRAM, RANKS = sys.argv[1:4]
DEVICE = sys.argv[4] if len(sys.argv) > 4 else "cpu"
SCRIPTS = pathlib.Path(__file__).resolve().parent.parent / "bench"


def bench(*arguments):
    done = subprocess.run([MPIRUN, "-q", "-n", RANKS, PROGRAM, "--device", DEVICE, *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}"
    return done.stdout


def check_line(line):
    r = json.loads(line)
    assert r["ranks"] == int(RANKS) and r["case"] and r["variant"] and r["shape"], r
    assert re.search(r"\[\d+(, \d+)*\]|\d+ x \d+", r["shape"]), ("the sizes of a tensor", r)
    for key in ("best_s", "median_s", "ratio", "paired_ratio"):
        assert math.isfinite(r[key]) and r[key] > 0, (key, r)
    assert r["best_s"] <= r["median_s"], r
    assert r["threads"] >= 1 and r["cpu"] and isinstance(r["features"], list) and r["isa"], r
    assert r["device"] == DEVICE, r
    return r


def main():
    groups = [line.split()[0] for line in bench("--list").splitlines()]
    assert len(groups) >= (8 if DEVICE == "cpu" else 4), groups
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "bench.jsonl"
        text = bench("--quick", "--json", str(path))
        print(text)
        lines = [check_line(line) for line in path.read_text().splitlines()]
    assert [g for g in dict.fromkeys(l["group"] for l in lines)] == groups, "every group, in order"
    if DEVICE != "cpu":
        variants = {(l["group"], l["variant"]) for l in lines}
        for group in ("vit_step", "conv_step"):
            for name in ("replayed as a CUDA graph", "its library calls alone", "these as a CUDA graph"):
                assert (group, name) in variants, (group, name, sorted(variants))
            # No step is done before what it asks the libraries for is.
            assert all(l["over_library"] > 0.8 for l in lines if l["group"] == group), group
        half = {(l["case"], l["variant"]) for l in lines if l["group"] == "device_kernels" and l["dtype"] == "bf16"}
        for name in ("attention, forward, bf16", "attention, backward, bf16"):
            assert {(name, "bare cuDNN"), (name, "attention")} <= half, sorted(half)
        assert any(l["group"] == "overhead" and l["case"].endswith(", backward") for l in lines)
    for group in groups:
        # The first variant of a case is what the others are compared with.
        first = next(l for l in lines if l["group"] == group)
        assert first["ratio"] == 1 and first["paired_ratio"] == 1 and first["ratio_to"] == first["variant"], first
    assert all(l["variant"] in text and l["case"] in text for l in lines), "the table shows what the lines say"


def refuses(command, start):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and len(lines) == 1 and lines[0].startswith(start), (done.returncode, done.stderr)


def refused():
    refuses([PROGRAM, "--bogus"], "tessera-bench: ")


def nothing_matched():
    program = [PROGRAM, "--quick", "--match", "no such case", "--only"]
    for groups in (["kernels"], ["kernels", "overhead"]):
        done = subprocess.run([*program, *groups], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wanted = f'--match: no case of {", ".join(groups)} contains "no such case"'
        assert done.returncode == 1 and wanted in done.stderr.splitlines(), (done.returncode, done.stderr)
    command = [sys.executable, str(SCRIPTS / "compare_kernels.py"), "--build", str(pathlib.Path(PROGRAM).parent.parent)]
    refuses([*command, "--quick", "--match", "no such case"],
            'compare_kernels: --match: no case of kernels contains "no such case"')


def kernels():
    text = bench("kernels", "--quick", "--match", "softmax")
    assert "softmax" in text and "GB/s" in text and "layer_norm" not in text, text


def compare(script, end, *arguments):
    """Beside a stand-in for PyTorch the scripts end with a table."""
    arguments = (*arguments, "--python", str(pathlib.Path(__file__).parent / "pytorch_stub.py"))
    command = [sys.executable, str(SCRIPTS / script), "--build", str(pathlib.Path(PROGRAM).parent.parent), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    assert done.returncode == 0, f"{script}: exit code {done.returncode}\n{done.stdout}"
    assert "skipped" not in done.stdout and end in done.stdout, done.stdout


if __name__ == "__main__":
    main()
    refused()
    if DEVICE == "cpu":
        kernels()
        nothing_matched()
        compare("compare_kernels.py", "geometric mean", "--quick", "--rounds", "1")
        compare("compare_kernels.py", "geometric mean", "--quick", "--rounds", "1", "--match", "softmax", "--processor-time")
        compare("compare_pytorch.py", "without overlap", "--model", "vit", "--rounds", "1", "--repeats", "1")
