"""Runs tessera-relief as it is shipped, on two ranks: on land and on sea, plain and weighted, the model must be nearer
to the truth than bicubic interpolation where it was trained and where it was not, within the ten minutes that two
cores are promised.
"""
import json
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
from programs import Program  # noqa: E402

SOURCE = pathlib.Path(sys.argv[3])
SECONDS = 600
program = Program(*sys.argv[1:3])


def main():
    with tempfile.TemporaryDirectory() as name:
        config = ["--config", str(SOURCE / "examples/relief/relief.toml"), "--out", name]
        code, output, seconds = program.run(2, config, limit=SECONDS)
        program.report(f"the shipped run ends, after {seconds:.0f} s", code == 0, f"{code}\n{output}")
        if code != 0:
            return 1
        print(output)
        lines = [json.loads(line) for line in (pathlib.Path(name) / "metrics.jsonl").read_text().splitlines()]
    scores = {(l["name"], l["where"]): l for l in lines if l["kind"] == "score"}
    for where in ("held out", "training"):
        bicubic, model = scores["bicubic interpolation", where], scores["the model", where]
        for figure in ("land_plain", "land_weighted", "sea_plain", "sea_weighted"):
            program.report(f"{where}, {figure}: the model {model[figure]:.1f} m, bicubic {bicubic[figure]:.1f} m",
                           0 < model[figure] < bicubic[figure])
    return 1 if program.failures else 0


if __name__ == "__main__":
    sys.exit(main())
