"""What one rank alone can know ends the job: with one line that says it, printed once, and exit code 1, whether the
first rank meets it or the last."""
import sys

sys.dont_write_bytecode = True
from programs import Program  # noqa: E402

OUT = "index {} is out of range for dim {} of size 9"
REFUSALS = {
    "embedding": OUT.format(9, 0), "index_select": OUT.format(-1, 0), "gather": OUT.format(9, 0),
    "take_along_dim": OUT.format(-10, 0), "scatter_add": OUT.format(9, 0), "one_hot": OUT.format(9, 1),
    "cross_entropy": "target 4 is out of range for 4 classes", "nll_loss": "target 4 is out of range for 4 classes",
    "binary_cross_entropy": "needs inputs between 0 and 1, given others",
}
program = Program(*sys.argv[1:3])


def main():
    with program.several():
        for ranks in (1, 3):
            program.refused("a file", ranks, [], "reader: the last rank cannot go on")
        for op, text in REFUSALS.items():
            program.refused(op, 2, [op, "0"], f"{op}: {text}")
        for op in ("embedding", "scatter_add", "cross_entropy", "binary_cross_entropy"):
            program.refused(op, 3, [op, "2"], f"{op}: {REFUSALS[op]}")
        program.refused("index_select on one", 1, ["index_select", "0"], f"index_select: {REFUSALS['index_select']}")
    return 1 if program.failures else 0


if __name__ == "__main__":
    sys.exit(main())
