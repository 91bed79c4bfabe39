#!/usr/bin/env python3
"""A training step of the same networks in PyTorch and in Tessera, interleaved in one run.

    python3 bench/compare_pytorch.py [--model vit] [--build build/cpu] [--python python3] [--rounds 5] [--isa avx2]

One round is PyTorch on one thread, Tessera on 1 rank, Tessera on 2 ranks, one thread each; the best of all
rounds counts. PyTorch runs as it comes, and told to keep its memory (page faults then do not decide); the
convolution network also in channels-last memory. Ratios are PyTorch's time over Tessera's, against PyTorch as
it comes and against the best of its variants: above 1, Tessera is faster. `cpu` compares processor time, which
other programs on the machine disturb less (of 2 ranks: of the busier one, which also polls while it waits).
Peak is the most that tensors take at once; of 2 ranks, on rank 0. Without PyTorch the script says so and ends
with status 0.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from compare_kernels import AVX2

HERE = pathlib.Path(__file__).resolve().parent
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMP_NUM_THREADS": "1"}
WAITING = ("waiting", "waiting_without_overlap")  # of 2 ranks: the medians, not the least
KEEP, LAST = "--keep-memory", "--channels-last"
PYTORCH = {"vit": {"PyTorch": [], "PyTorch, keeps memory": [KEEP]},
           "conv": {"PyTorch": [], "PyTorch, keeps memory": [KEEP], "PyTorch, channels last": [LAST],
                    "PyTorch, channels last, keeps": [LAST, KEEP]}}


def last_line(command, environment):
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"compare_pytorch: {' '.join(command)} failed:\n{done.stderr}{done.stdout}")
    return done.stdout.strip().splitlines()[-1]


def pytorch(given, model, flags, environment):
    command = [given.python, str(HERE / "pytorch" / "train_step.py"), "--model", model, *flags,
               "--steps", "3", "--repeats", str(given.repeats)]
    return json.loads(last_line(command, environment))


def tessera(given, model, ranks, environment):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "bench.jsonl"
        program = str(given.build / "bin" / "tessera-bench")
        command = [program, "--only", model + "_step", "--repeats", str(given.repeats), "--json", str(out)]
        if ranks > 1:
            bind = "core" if ranks <= (os.cpu_count() or 1) else "none"
            command = ["mpirun", "-q", "-n", str(ranks), "--bind-to", bind, *command]
        last_line(command, {**environment, **MPI})
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        for line in lines[1:]:
            if line["variant"].endswith("no overlap"):
                lines[0]["without_overlap_s"] = line["best_s"]
        return lines[0]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("vit", "conv", "both"), default="both")
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build" / "cpu",
                        help="build folder, with bin/tessera-bench")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2, help="timings of 3 steps per program and round")
    parser.add_argument("--isa", choices=("best", "avx2"), default="best")
    parser.add_argument("--json", type=pathlib.Path, help="writes the best times and ratios to this file")
    given = parser.parse_args()
    for name in ("rounds", "repeats"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} is {getattr(given, name)}, allowed is 1 or more")
    if not (given.build / "bin" / "tessera-bench").exists():
        parser.error(f"{given.build}/bin/tessera-bench does not exist; build it, or name the folder with --build")
    return given


def measure(given, model, environment):
    """{name: best figures}, or why there is nothing to compare with."""
    best, waits = {}, {}

    def keep(name, line):
        so_far = best.setdefault(name, dict(line))
        for key in ("best_s", "cpu_s", "peak_bytes", "page_faults", "without_overlap_s"):
            if key in line:
                so_far[key] = min(so_far[key], line[key])
        for key in WAITING:
            if key in line:
                waits.setdefault(key, []).append(line[key])
                so_far[key] = statistics.median(waits[key])
        print(f"  {name:<30}{line['best_s'] * 1e3:9.1f} ms   cpu {line['cpu_s'] * 1e3:9.1f} ms", flush=True)

    for index in range(given.rounds):
        print(f"{model}: round {index + 1} of {given.rounds}, load {os.getloadavg()[0]:.1f}", flush=True)
        for name, flags in PYTORCH[model].items():
            line = pytorch(given, model, flags, environment)
            if "skipped" in line:
                return line["skipped"]
            keep(name, line)
        for ranks in (1, 2):
            keep(f"Tessera, {ranks} rank" + ("s" if ranks > 1 else ""), tessera(given, model, ranks, environment))
    return best


def heading(model, best):
    """What was run where: a figure without it says nothing."""
    ours, theirs = best["Tessera, 1 rank"], best["PyTorch"]
    return (f"{model}: input {ours['shape']}, float32, 1 thread a rank, {ours['cpu']} ({' '.join(ours['features'])}), "
            f"running {ours['isa']}, PyTorch {theirs['torch']}")


AIMS = {"Tessera, 1 rank": 1.2, "Tessera, 2 ranks": 2.0}  # times as fast as PyTorch as it comes


def table(model, best):
    """Prints it, and returns what misses its aim."""
    print(f"\n{heading(model, best)}", end="")
    theirs = {name: times for name, times in best.items() if name in PYTORCH[model]}
    as_it_comes, fastest = theirs["PyTorch"]["best_s"], min(t["best_s"] for t in theirs.values())
    print(f"\n{model + ', best of all rounds':<30}{'ms/step':>10}{'ratio':>8}{'to best':>9}{'cpu ms':>10}"
          f"{'peak MiB':>10}{'faults/step':>13}")
    for name, times in best.items():
        times["ratio"] = as_it_comes / times["best_s"]
        times["ratio_to_best"] = fastest / times["best_s"]
        aim = f"  (at least {AIMS[name]})" if name in AIMS else ""
        print(f"{name:<30}{times['best_s'] * 1e3:10.1f}{times['ratio']:8.2f}{times['ratio_to_best']:9.2f}"
              f"{times['cpu_s'] * 1e3:10.1f}{times['peak_bytes'] / 2**20:10.1f}{times['page_faults']:13.1f}{aim}")
    two = best["Tessera, 2 ranks"]
    print(f"on 2 ranks {100 * two['waiting']:.2f} % of a step is communication and waiting for it; without overlap "
          f"{100 * two['waiting_without_overlap']:.2f} %, and a step takes {two['without_overlap_s'] * 1e3:.1f} ms\n",
          flush=True)
    return [f"{model}: {name}" for name, aim in AIMS.items() if best[name]["ratio"] < aim]


def main():
    given = arguments()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(AVX2 if given.isa == "avx2" else {})}
    results = {}
    missed = []
    for model in ("vit", "conv") if given.model == "both" else (given.model,):
        best = measure(given, model, environment)
        if isinstance(best, str):
            print(f"skipped: {best}")
            return 0
        missed += table(model, best)
        results[model] = best
    print(f"{len(missed)} of {len(AIMS) * len(results)} aims missed" + "".join(f"; {one}" for one in missed))
    if given.json:
        given.json.write_text(json.dumps({"cores": os.cpu_count(), "models": results}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
