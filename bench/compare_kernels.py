#!/usr/bin/env python3
"""Single operations, forward and backward, in Tessera and PyTorch, interleaved in one run on one thread.

    python3 bench/compare_kernels.py [--build build/cpu] [--python python3] [--rounds 5] [--isa avx2] [--processor-time]

A round times every kernel of `tessera-bench --only kernels` and then the same in PyTorch, on contiguous tensors
as it comes and in channels-last memory, and inputs of 4 MiB and more once again with PyTorch told to keep its
memory; the best of all rounds counts. The columns are GF/s (or GB/s) of
Tessera, its share of the core's peak, and PyTorch's time over Tessera's for both of PyTorch's layouts and for the
better one where it keeps its memory: above 1, Tessera is faster. "Best" is the least of the three; rows in which
Tessera gives a view and PyTorch writes memory are in no mean. --isa avx2 keeps both libraries from using AVX-512. --processor-time compares what the
programs computed for rather than the clock on the wall: on a machine where others compute, the one that says
something (one thread each, so on a quiet machine they are the same). Without PyTorch the script says so and ends
with status 0.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE / "pytorch"))
from train_step import KEEP_MEMORY  # noqa: E402

AVX2 = {"TESSERA_ISA": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
LAYOUTS = ("contiguous", "channels_last")
VIEW = 100.0  # our result is a view of less memory, PyTorch writes the map: such a row says nothing of kernels
SLOW = 2.0  # PyTorch has no good code for a row in which even its best takes this many times as long


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build" / "cpu",
                        help="build folder, with bin/tessera-bench")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=12, help="repeats, of 5 ms, of each kernel in a round")
    parser.add_argument("--match", default="", help="only kernels whose name and input contain this text")
    parser.add_argument("--processor-time", action="store_true", help="compare the time that processors were busy")
    parser.add_argument("--quick", action="store_true", help="few small kernels: does it run at all")
    parser.add_argument("--isa", choices=("best", "avx2"), default="best")
    parser.add_argument("--json", type=pathlib.Path, help="writes the results to this file")
    parser.add_argument("--markdown", type=pathlib.Path, help="writes them as a table for people")
    given = parser.parse_args()
    if given.rounds < 1 or given.repeats < 1:
        parser.error("--rounds and --repeats must be 1 or more")
    if not (given.build / "bin" / "tessera-bench").exists():
        parser.error(f"{given.build}/bin/tessera-bench does not exist; build it, or name the folder with --build")
    return given


def run(command, environment):
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        for line in done.stderr.splitlines():
            if line.startswith("--match: "):
                sys.exit(f"compare_kernels: {line}")
        sys.exit(f"compare_kernels: {' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def pinned(command):
    """On one core, where the system can do that: both programs on the same one."""
    core = str(max(os.sched_getaffinity(0)))
    return ["taskset", "-c", core, *command] if pathlib.Path("/usr/bin/taskset").exists() else command


def one_round(given, environment, folder, ours, theirs):
    lines = folder / "lines.jsonl"
    command = [str(given.build / "bin" / "tessera-bench"), "--only", "kernels", "--json", str(lines),
               "--repeats", str(given.repeats), "--match", given.match, *(["--quick"] if given.quick else [])]
    run(pinned(command), environment)
    for text in lines.read_text().splitlines():
        line = json.loads(text)
        if given.processor_time:
            unit = "GF/s" if "GF/s" in line else "GB/s"
            line[unit] *= line["best_s"] / line["cpu_s"]
            line["best_s"] = line["cpu_s"]
        key = (line["case"], json.dumps(line["recipe"]), line["variant"])
        if key not in ours or line["best_s"] < ours[key]["best_s"]:
            ours[key] = line
    return pytorch_round(given, environment, lines, theirs)


def pytorch_round(given, environment, lines, theirs):
    """None, or why there is nothing to compare with."""
    command = [given.python, str(HERE / "pytorch" / "kernels.py"), str(lines), "--repeats", str(given.repeats)]
    for keeps in (False, True):
        output = run(pinned([*command, "--at-least-mib", "4"] if keeps else command),
                     {**environment, **(KEEP_MEMORY if keeps else {})})
        for text in output.splitlines():
            result = json.loads(text)
            if "skipped" in result:
                return result["skipped"]
            given.torch = result["torch"]
            for variant in ("forward", "backward"):
                clock = variant + ("_cpu_s" if given.processor_time else "_s")
                if clock not in result:
                    continue
                key = (json.dumps(result["recipe"]), variant, result["layout"], keeps)
                theirs[key] = min(theirs.get(key, math.inf), result[clock])
    return None


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def table(ours, theirs):
    rows = []
    # Every program measures the peak for itself, some while another one disturbs it.
    peak = max((line["peak"] for line in ours.values() if "peak" in line), default=math.nan)
    print(f"\n{'kernel':<45}{'input':<22}{'rate':>12}{'of peak':>9}{'contiguous':>12}{'channels last':>15}{'keeps':>8}")
    for (_, recipe, variant), line in ours.items():
        ratios = [theirs[key] / line["best_s"] if (key := (recipe, variant, layout, False)) in theirs else None
                  for layout in LAYOUTS]
        kept = [theirs[key] for layout in LAYOUTS if (key := (recipe, variant, layout, True)) in theirs]
        ratios.append(min(kept) / line["best_s"] if kept else None)
        unit = "GF/s" if "GF/s" in line else "GB/s"
        share = f"{100 * line[unit] / peak:.0f} %" if "peak" in line else ""
        shown = [f"{r:.2f}" if r else "" for r in ratios]
        rate = f"{line[unit]:.1f} {unit}"
        print(f"{line['case']:<45}{line['shape']:<22}{rate:>12}{share:>9}{shown[0]:>12}{shown[1]:>15}{shown[2]:>8}")
        best = min(r for r in ratios if r)
        rows.append({"case": line["case"], "family": line["family"], "shape": line["shape"], "pass": variant,
                     "rate": rate, "of_peak": share, "best_s": line["best_s"], "contiguous": ratios[0],
                     "channels_last": ratios[1], "keeps_memory": ratios[2], "best": best})
    return rows


def write_markdown(path, heading, rows, groups):
    def ratio(value):
        return f"{value:.2f}" if value else ""

    lines = [heading, "", "| kernel | input | rate | of peak | contiguous | channels last | keeps memory |",
             "|---|---|---|---|---|---|---|"]
    for r in rows:
        lines.append(f"| {r['case']} | {r['shape']} | {r['rate']} | {r['of_peak']} | {ratio(r['contiguous'])} "
                     f"| {ratio(r['channels_last'])} | {ratio(r['keeps_memory'])} |")
    lines += ["", "| geometric mean | contiguous | best | lowest |", "|---|---|---|---|"]
    for name, members in groups:
        lines.append(f"| {name} | {mean([r['contiguous'] for r in members]):.2f} "
                     f"| {mean([r['best'] for r in members]):.2f} | {min(r['best'] for r in members):.2f} |")
    path.write_text("\n".join(lines) + "\n")


def families_of(rows):
    rows = [r for r in rows if r["best"] < VIEW]
    families = list(dict.fromkeys(r["family"] for r in rows))
    groups = [(f, [r for r in rows if r["family"] == f]) for f in families]
    goal = {"conv", "norm", "linear", "pointwise"}
    of_goal = [r for r in rows if r["family"] in goal]
    groups.append(("conv, norm, linear, pointwise", of_goal))
    groups.append((f"of these where PyTorch takes less than {SLOW:g} times as long", [r for r in of_goal if r["best"] < SLOW]))
    return [(name, members) for name, members in [*groups, ("all", rows)] if members]


def summary(groups):
    print(f"\n{'geometric mean of ratios':<56}{'contiguous':>12}{'best':>8}{'lowest':>9}")
    for name, members in groups:
        lowest = min(members, key=lambda r: r["best"])
        print(f"{name:<56}{mean([r['contiguous'] for r in members]):>12.2f}"
              f"{mean([r['best'] for r in members]):>8.2f}{lowest['best']:>9.2f}  {lowest['case']} {lowest['shape']}")


def main():
    given = arguments()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(AVX2 if given.isa == "avx2" else {})}
    ours, theirs = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for index in range(given.rounds):
            print(f"round {index + 1} of {given.rounds}, load {os.getloadavg()[0]:.1f}", flush=True)
            skipped = one_round(given, environment, pathlib.Path(folder), ours, theirs)
            if skipped:
                print(f"skipped: {skipped}")
                return 0
    line = next(iter(ours.values()))
    heading = f"{line['cpu']} ({' '.join(line['features'])}), running {line['isa']}, 1 thread, "
    heading += f"PyTorch {given.torch}, best of {given.rounds} round{'s, interleaved' if given.rounds > 1 else ''}"
    if given.processor_time:
        heading += ", processor time"
    print(f"\n{heading}")
    rows = table(ours, theirs)
    groups = families_of(rows)
    summary(groups)
    if given.markdown:
        write_markdown(given.markdown, heading, rows, groups)
    if given.json:
        given.json.write_text(json.dumps({"cpu": line["cpu"], "isa": line["isa"], "rows": rows}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
