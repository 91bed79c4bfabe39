"""Runs tessera-relief as people do: a short run with table and pictures, and every kind of bad input on one rank and on
several, which is answered by one line, printed once, exit code 1, within seconds.
"""
import json
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
from programs import Program, data_file, more_on_rank_1, other_data_on_rank_1, write  # noqa: E402

SOURCE = pathlib.Path(sys.argv[3])
CONFIG = ["--config", str(SOURCE / "examples/relief/relief.toml")]
# 72 x 144 cells of 2.5 degrees and a model to match: a step takes a fraction of a second.
SMALL = CONFIG + ["--reduce", "30", "--coarsen", "4", "--widths", "8,16,16"]
program = Program(*sys.argv[1:3])
run, report, refused = program.run, program.report, program.refused


def bad_input(folder):
    relief = data_file("etopo5.cdf")
    short = folder / "short.cdf"
    short.write_bytes(relief.read_bytes()[:200000])
    for ranks in (1, 3):
        refused("unknown option", ranks, ["--stepz", "3"], "stepz", "steps")
        refused("wrong type", ranks, ["--steps", "many"], "steps", "many")
        refused("unknown key", ranks, ["--config", str(write(folder / "bad.toml", "[data]\nreduse = 3\n"))], "reduse",
                "reduce")
        refused("no such config", ranks, ["--config", "nowhere.toml"], "nowhere.toml")
        refused("no such file", ranks, ["--data", "nowhere.cdf"], "nowhere.cdf")
        refused("truncated file", ranks, ["--data", str(short)], "short.cdf")
        refused("another file", ranks, ["--data", str(relief.parent / "monthly_navy_winds.cdf")], "ROSE", "UWND")
        refused("a reduction that does not divide", ranks, CONFIG + ["--reduce", "7"], "7", "2160", "4320")
        refused("blocks that do not divide", ranks, CONFIG + ["--coarsen", "7"], "56", "432", "864")
        refused("levels that do not divide", ranks, CONFIG + ["--widths", "8,8,8,8,8,8,8"], "64", "432")
        refused("blocks larger than the map", ranks, CONFIG + ["--coarsen", "2160"], "2160", "432", "864")
        refused("a reduction larger than the map", ranks, CONFIG + ["--reduce", "2161"], "2161", "2160", "4320")
        refused("a reduction beyond integers", ranks, CONFIG + ["--reduce", "99999999999"], "99999999999",
                "at least 1 and at most 2147483647")
        refused("groups", ranks, CONFIG + ["--groups", "5"], "16", "5")
        refused("held out", ranks, CONFIG + ["--held_out", "1,2,3"], "3 numbers")
        refused("region", ranks, CONFIG + ["--region", "7"], "7", "0 to 6")
        refused("device", ranks, CONFIG + ["--device", "cuda"], "cuda", "cpu")
        refused("messages of the CPU", ranks, CONFIG + ["--comm", "nccl"], "comm nccl", "cpu")
        refused("mesh too large", ranks, CONFIG + ["--mesh", "lat=2,lon=4"], "8", str(ranks))
        refused("mesh text", ranks, CONFIG + ["--mesh", "lat"], "lat")
        refused("ddp", ranks, CONFIG + ["--mesh", f"ddp={ranks}"], "ddp", "samples")
    refused("three axes", 1, CONFIG + ["--mesh", "a=1,b=1,c=1"], "two dims")
    refused("truncated on rank 1 only", 3, SMALL, "short.cdf", "rank 1",
            launcher=other_data_on_rank_1(folder, relief, short))
    refused("another seed on rank 1 only", 3, SMALL, "seed must be the same on every rank, given 1 on ranks 0, 2",
            "7 on rank 1 (command line)", launcher=more_on_rank_1(folder, "--seed 7"))
    refused("a region without cells", 3, SMALL + ["--held_out=-80,-50,-30,0,10,11,10,11", "--region", "1"],
            "10,11,10,11", "no cells")
    refused("no folder", 3, SMALL + ["--out", ""], "output.dir")


def lines_of(out, kind):
    return [l for l in map(json.loads, (out / "metrics.jsonl").read_text().splitlines()) if l["kind"] == kind]


def good_run(folder):
    out = folder / "run"
    code, output, _ = run(2, SMALL + ["--steps", "20", "--warmup", "1", "--out", str(out), "--check_replicas",
                                      "--trace", str(folder / "trace.json")])
    good = code == 0 and "the model" in output and output.count("step 20/20") == 1
    report("a short run on 2 ranks", good, output)
    if not good:
        return
    steps = lines_of(out, "step")
    report("the loss falls", len(steps) == 20 and steps[-1]["loss"] < 0.97 < steps[0]["loss"], str(steps))
    scores = {(l["name"], l["where"]): l for l in lines_of(out, "score")}
    bicubic, model = scores["bicubic interpolation", "held out"], scores["the model", "held out"]
    report("scores held out and in training", len(scores) == 6 and model["plain"] != bicubic["plain"], str(scores))
    for figure in ("land_plain", "sea_weighted"):
        report(f"the table has {figure}", f"{bicubic[figure]:.1f}" in output and f"{model[figure]:.1f}" in output, output)
    program.draws("region.png", SOURCE / "examples/relief/relief.gp", out / "region.png", f"data='{out}/region.dat';")
    program.draws("loss.png", SOURCE / "examples/winds/loss.gp", out / "loss.png", f"data='{out}/loss.dat';")


def sea_alone(folder):
    code, output, _ = run(2, SMALL + ["--held_out", "200,220,0,10", "--region", "0", "--steps", "1", "--out", str(folder / "sea")])
    report("no land is held out", code == 0 and output.count("none") == 6 and "nan" not in output, output)


def meshes(folder):
    losses, pictures = {}, {}
    for ranks, mesh in ((1, "domain=1"), (4, "lat=2,lon=2"), (3, "lon=3")):
        out = folder / mesh.replace(",", "-")
        # A region across the map's seam.
        code, output, _ = run(ranks, SMALL + ["--mesh", mesh, "--steps", "3", "--region", "6", "--out", str(out)])
        report(f"mesh {mesh} on {ranks} ranks", code == 0, output)
        losses[mesh] = [l["loss"] for l in lines_of(out, "step")] if code == 0 else []
        pictures[mesh] = (out / "region.dat").read_text().split() if code == 0 else []
    first = losses["domain=1"]
    good = all(len(l) == 3 and all(abs(a - b) <= 1e-4 * abs(b) for a, b in zip(l, first)) for l in losses.values())
    report(f"the same losses on every mesh: {first}", good, str(losses))
    # Longitude, latitude, coarse, bicubic, model, true; after seven words of a heading.
    one = pictures["domain=1"][7:]
    same = all(len(p) == len(one) + 7 and all(abs(float(a) - float(b)) <= 0.11 for a, b in zip(p[7:], one))
               for p in pictures.values())
    report("the same picture on every mesh", same and float(one[0]) < 0 < float(one[-6]), str(one[:60]))


def main():
    code, output, _ = run(2, ["--help"])
    report("--help", code == 0 and output.count("--mesh") >= 1 and "data.reduce" in output, output)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with program.several():
            bad_input(folder)
        good_run(folder)
        sea_alone(folder)
        meshes(folder)
    return 1 if program.failures else 0


if __name__ == "__main__":
    sys.exit(main())
