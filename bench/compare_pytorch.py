#!/usr/bin/env python3
"""A training step of the same vision transformer in PyTorch and in Tessera, interleaved in one run.

    python3 bench/compare_pytorch.py [--build build/cpu] [--python python3] [--rounds 5]

One round is PyTorch on one thread, Tessera on 1 rank, Tessera on 2 ranks, one thread each; the best of all
rounds counts. Ratios are PyTorch's time over Tessera's: above 1, Tessera is faster. `cpu` compares processor
time, which other programs on the machine disturb less (of 2 ranks: of the busier one, which also polls while
it waits). PyTorch is told to keep its memory, so that page faults do not decide. Without PyTorch the script
says so and ends with status 0.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMP_NUM_THREADS": "1"}


def pytorch(given):
    command = [given.python, str(HERE / "pytorch" / "train_step.py"), "--model", "vit", "--keep-memory",
               "--steps", "3", "--repeats", str(given.repeats)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        sys.exit(f"compare_pytorch: {' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def tessera(given, ranks):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "bench.jsonl"
        command = ["mpirun", "-q", "-n", str(ranks), "--bind-to", "core" if ranks <= (os.cpu_count() or 1) else "none",
                   str(given.build / "bin" / "tessera-bench"), "--only", "vit_step",
                   "--repeats", str(given.repeats), "--json", str(out)]
        if ranks == 1:
            command = command[command.index(str(given.build / "bin" / "tessera-bench")):]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **MPI})
        if done.returncode != 0:
            sys.exit(f"compare_pytorch: {' '.join(command)} failed:\n{done.stderr}{done.stdout}")
        return json.loads(out.read_text().splitlines()[-1])


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build" / "cpu",
                        help="build folder, with bin/tessera-bench")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2, help="timings of 3 steps per program and round")
    parser.add_argument("--json", type=pathlib.Path, help="writes the best times and ratios to this file")
    given = parser.parse_args()
    for name in ("rounds", "repeats"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} is {getattr(given, name)}, allowed is 1 or more")
    if not (given.build / "bin" / "tessera-bench").exists():
        parser.error(f"{given.build}/bin/tessera-bench does not exist; build it, or name the folder with --build")
    return given


def main():
    given = arguments()
    best = {}

    def keep(name, line):
        so_far = best.setdefault(name, {"best_s": line["best_s"], "cpu_s": line["cpu_s"]})
        for key in so_far:
            so_far[key] = min(so_far[key], line[key])
        print(f"  {name:<18}{line['best_s'] * 1e3:9.1f} ms   cpu {line['cpu_s'] * 1e3:9.1f} ms", flush=True)

    for index in range(given.rounds):
        print(f"round {index + 1} of {given.rounds}, load {os.getloadavg()[0]:.1f}", flush=True)
        line = pytorch(given)
        if "skipped" in line:
            print(f"skipped: {line['skipped']}")
            return 0
        keep("PyTorch", line)
        for ranks in (1, 2):
            keep(f"Tessera, {ranks} rank" + ("s" if ranks > 1 else ""), tessera(given, ranks))

    base = best["PyTorch"]
    print(f"\n{'best of all rounds':<20}{'ms/step':>10}{'ratio':>8}{'cpu ms':>10}{'cpu ratio':>11}")
    for name, times in best.items():
        times["ratio"] = base["best_s"] / times["best_s"]
        times["cpu_ratio"] = base["cpu_s"] / times["cpu_s"]
        print(f"{name:<20}{times['best_s'] * 1e3:10.1f}{times['ratio']:8.2f}{times['cpu_s'] * 1e3:10.1f}"
              f"{times['cpu_ratio']:11.2f}")
    if given.json:
        given.json.write_text(json.dumps({"model": "vit", "cores": os.cpu_count(), "best": best}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
