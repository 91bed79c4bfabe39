"""Runs tessera-winds as people do: good runs, and every kind of bad input on one rank and on several.

Bad input is answered by one line, printed once, exit code 1, within seconds.
"""
import json
import pathlib
import re
import sys
import tempfile

sys.dont_write_bytecode = True
from programs import Program, data_file, more_on_rank_1, other_data_on_rank_1, write  # noqa: E402

SOURCE = pathlib.Path(sys.argv[3])
CONFIG = ["--config", str(SOURCE / "examples/winds/winds.toml")]
program = Program(*sys.argv[1:3])
run, report, refused = program.run, program.report, program.refused


def bad_input(folder):
    winds = data_file("monthly_navy_winds.cdf")
    short = folder / "short.cdf"
    short.write_bytes(winds.read_bytes()[:200000])
    text = folder / "text.cdf"
    text.write_text("not a NetCDF file")
    untouched = folder / "untouched"
    for ranks in (1, 3):
        refused("unknown option", ranks, ["--stepz", "3"], "stepz", "steps")
        refused("wrong type", ranks, ["--steps", "many"], "steps", "many")
        refused("unknown key", ranks, ["--config", str(write(folder / "bad.toml", "[model]\nwidht = 3\n"))], "widht", "width")
        refused("no such config", ranks, ["--config", "nowhere.toml"], "nowhere.toml")
        refused("no such file", ranks, ["--data", "nowhere.cdf"], "nowhere.cdf")
        refused("truncated file", ranks, ["--data", str(short)], "short.cdf")
        refused("another file", ranks, ["--data", str(winds.parent / "etopo60.cdf")], "UWND", "ROSE")
        refused("no NetCDF file", ranks, ["--data", str(text)], "text.cdf")
        refused("patch", ranks, CONFIG + ["--patch", "4,5"], "5", "144", "1, 2, 3, 4, 6, 8, 9, 12, 16, 18, 24, 36, 48, 72")
        refused("no folder", ranks, CONFIG + ["--out", ""], "output.dir")
        refused("a line break in a value", ranks, ["--dtype", "f\n16"], r"'f\n16'", "f32, f64")
        refused("a line break in a name", ranks, ["--data", "/tmp/no\nfile"], r"/tmp/no\nfile")
        refused("a line break in an option", ranks, ["--st\neps", "3"], r"--st\neps")
        refused("a line break in a key", ranks, ["--config", str(write(folder / "key.toml", '"st\\neps" = 3\n'))], r"st\neps")
        refused("patch taller than the map", ranks, CONFIG + ["--patch", "74,144", "--out", str(untouched)], "74 rows",
                "1 to 73")
        refused("patch of zero", ranks, CONFIG + ["--patch", "0,4"], "0,4", "at least 1")
        refused("absurd depth", ranks, CONFIG + ["--depth", "1000000000"], "1000000000", "at most 10000")
        refused("mixed list", ranks, ["--config", str(write(folder / "mixed.toml", '[model]\npatch = [4, "a"]\n'))],
                "patch", "[ 4, 'a' ]", "list of integers")
        refused("hidden width", ranks, CONFIG + ["--mlp-ratio", "1e30"], "1e30", "at most 1024")
        refused("batch of more than all samples", ranks, CONFIG + ["--batch", "106", "--out", str(untouched)], "106",
                "1 to 105", "months 3 to 107", "24 are held out")
        refused("batch beyond integers", ranks, CONFIG + ["--batch", "99999999999"], "99999999999",
                "at least 1 and at most 2147483647")
        refused("heads", ranks, CONFIG + ["--heads", "5"], "96", "5")
        refused("device", ranks, CONFIG + ["--device", "cuda"], "cuda", "cpu")
        refused("graph of the CPU", ranks, CONFIG + ["--cuda-graph"], "cuda_graph", "cpu")
        refused("messages of the CPU", ranks, CONFIG + ["--comm", "mpi"], "comm mpi", "cpu")
        refused("unknown way of messages", ranks, CONFIG + ["--comm", "post"], "post", "auto, nccl, mpi")
        refused("mesh too large", ranks, CONFIG + ["--mesh", "ddp=2,domain=4"], "8", str(ranks))
        refused("mesh text", ranks, CONFIG + ["--mesh", "domain"], "domain")
        refused("month", ranks, CONFIG + ["--month", "3", "--out", str(folder / "m")], "3", "108")
    refused("batch below ddp", 2, CONFIG + ["--mesh", "ddp=2,domain=1", "--batch", "1", "--out", str(folder / "b")], "1", "ddp=2")


def one_rank_only(folder):
    # A good file for rank 0 and another path for rank 1.
    short = folder / "short.cdf"
    for name, path, text in (("missing", "/nowhere.cdf", "does not exist"), ("truncated", str(short), "truncated")):
        launcher = other_data_on_rank_1(folder, data_file("monthly_navy_winds.cdf"), path)
        refused(f"{name} on rank 1 only", 3, [], path, text, "rank 1", launcher=launcher)


    for option, key, value, usual in (("--heads 2", "model.heads", "2", "4"), ("--seed 7", "seed", "7", "1"),
                                      ("--steps 1", "steps", "1", "120"), ("--mesh ddp=3", "mesh", "ddp=3", '""'),
                                      ("--held-out 30", "data.held_out", "30", "24"), ("--help", "--help", "true", "false")):
        refused(f"{option} on rank 1 only", 3, ["--out", str(folder / "alone")], f"{key} must be the same on every rank",
                f"given {usual} on ranks 0, 2", f"{value}", "on rank 1 (command line)",
                launcher=more_on_rank_1(folder, option))
    report("these were refused before anything was written", not (folder / "alone").exists())


def losses_cannot_be_written(folder):
    """Said once, whether the file cannot be opened or is full; beside the line that says what begins."""
    taken, full = folder / "taken", folder / "full"
    (taken / "loss.dat").mkdir(parents=True)
    full.mkdir()
    (full / "loss.dat").symlink_to("/dev/full")
    for out, why in ((taken, "Is a directory"), (full, "No space left on device")):
        for ranks in (1, 3):
            code, output, _ = run(ranks, CONFIG + ["--steps", "2", "--depth", "1", "--out", str(out)])
            lines = output.splitlines()
            # One goes to stdout, the other to stderr: either may come first.
            said = [line for line in lines if "loss.dat' cannot be written: " + why in line]
            report(f"loss.dat on {ranks} ranks: {said}", code == 1 and len(lines) == 2 and len(said) == 1, output)


def at_the_limits(folder):
    """The whole map in one patch, and every sample in one batch."""
    for name, options in (("patch", ["--patch", "73,144", "--batch", "1"]), ("batch", ["--patch", "73,144", "--batch", "105"])):
        code, output, _ = run(1, CONFIG + [*options, "--width", "4", "--heads", "1", "--depth", "1", "--steps", "1",
                                           "--out", str(folder / f"largest-{name}")])
        report(f"the largest {name} that is allowed", code == 0 and output.count("step 1/1") == 1, output)


def diverged(folder):
    """The file is not blamed for it."""
    code, output, _ = run(1, CONFIG + ["--steps", "1", "--lr", "1e308", "--width", "4", "--heads", "1", "--depth", "1",
                                       "--out", str(folder / "diverged")])
    last = output.splitlines()[-1:]
    report(f"a learning rate of 1e308: {last}", code == 1 and "the errors of the model come to nan" in "".join(last), output)


def good_run(folder):
    out = folder / "run"
    code, output, _ = run(2, CONFIG + ["--steps", "3", "--depth", "1", "--every", "1", "--out", str(out),
                                       "--check_replicas", "--trace", str(folder / "trace.json")])
    kinds = [json.loads(line)["kind"] for line in (out / "metrics.jsonl").read_text().splitlines()] if code == 0 else []
    good = code == 0 and kinds.count("step") == 3 and kinds.count("score") == 5 and "the model" in output
    good = good and output.count("step 3/3") == 1 and "comm" in output and "peak" in output
    report("a short run on 2 ranks", good, output)
    trace = json.loads((folder / "trace.json").read_text())
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    seen = {e.get("cat") for e in events if e.get("ph") == "X"}
    report("the trace has ops, backward and messages", {"op", "backward", "comm"} <= seen, str(seen))
    for script, data, extra in (("loss", "loss.dat", ""), ("map", "map.dat", f"relief='{out}/relief.dat';")):
        program.draws(f"{script}.png", SOURCE / f"examples/winds/{script}.gp", out / f"{script}.png",
                      f"data='{out}/{data}'; {extra}")


def meshes(folder):
    losses = {}
    for ranks, mesh in ((1, "domain=1"), (3, "ddp=3"), (4, "ddp=2,domain=2"), (4, "lat=2,lon=2"), (3, "domain=3")):
        out = folder / mesh.replace(",", "-")
        code, output, _ = run(ranks, CONFIG + ["--mesh", mesh, "--steps", "3", "--depth", "1", "--out", str(out)])
        lines = (out / "metrics.jsonl").read_text().splitlines() if code == 0 else []
        losses[mesh] = [l["loss"] for l in map(json.loads, lines) if l["kind"] == "step"]
        report(f"mesh {mesh} on {ranks} ranks", code == 0 and len(losses[mesh]) == 3, output)
    first = losses["domain=1"]
    good = all(len(l) == len(first) and all(abs(a - b) <= 1e-4 * abs(b) for a, b in zip(l, first)) for l in losses.values())
    report(f"the same losses on every mesh: {first}", good, str(losses))


def same_bits(folder):
    losses = []
    for name in ("a", "b"):  # what convolutions choose by timing may differ
        run(2, CONFIG + ["--steps", "3", "--depth", "1", "--out", str(folder / name)], {"TESSERA_CONV_CHOICE": "rule"})
        lines = [json.loads(l) for l in (folder / name / "metrics.jsonl").read_text().splitlines()]
        losses.append([l["loss"] for l in lines if l["kind"] == "step"])
    report(f"two runs on one mesh give the same bits: {losses[0]}", losses[0] == losses[1] and len(losses[0]) == 3, str(losses))


def main():
    code, output, _ = run(2, ["--help"])
    report("--help", code == 0 and output.count("--mesh") >= 1 and "optimizer.lr" in output, output)
    names = [name for line in output.splitlines() if line.startswith("  --")
             for name in re.findall(r"--[\w.-]+", line.split("  ")[1])]
    report("no option has a name twice", len(names) > 20 and len(set(names)) == len(names), str(sorted(names)))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with program.several():
            bad_input(folder)
        report("these were refused before anything was written", not (folder / "untouched").exists())
        one_rank_only(folder)
        losses_cannot_be_written(folder)
        at_the_limits(folder)
        diverged(folder)
        good_run(folder)
        same_bits(folder)
        meshes(folder)
    return 1 if program.failures else 0


if __name__ == "__main__":
    sys.exit(main())
