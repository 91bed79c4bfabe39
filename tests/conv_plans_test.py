"""TESSERA_CONV_PLANS: choices between the ways of a convolution are added to the file when a program ends, the next one
goes by what the file says, and one that is none of ours is refused with one line.

Usage: conv_plans_test.py MPIRUN PROGRAM
"""
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
from programs import Program, write  # noqa: E402

NAME = "tessera convolution plans 1"
PASSES = ["forward", "backward_data", "backward_weight"]
WAYS = ("channels_last", "any", "own")
SMALL, LARGE = "24", "32"  # channels
program = Program(*sys.argv[1:3])


def bits(ranks, channels, **environment):
    code, output, _ = program.run(ranks, [channels], environment=environment)
    assert code == 0 and len(output.splitlines()) == 1, (code, output)
    return output


def added_at_exit(path, ranks):
    bits(ranks, SMALL, TESSERA_CONV_PLANS=str(path))
    first, *lines = path.read_text().splitlines()
    program.report(f"{ranks} ranks write a line for every pass", first == NAME and
                   sorted(l.split()[0] for l in lines) == sorted(PASSES) and all(l.split()[-1] in WAYS for l in lines),
                   path.read_text())


def kept(path, ranks):
    before = path.read_text()
    bits(ranks, SMALL, TESSERA_CONV_PLANS=str(path))
    program.report("what the file has is not written again", path.read_text() == before, path.read_text())
    bits(ranks, LARGE, TESSERA_CONV_PLANS=str(path))
    after = path.read_text()
    program.report("other convolutions are added behind it",
                   after.startswith(before) and after.count("\n") == before.count("\n") + len(PASSES), after)


def gone_by(path):
    """Whatever a clock would say: each way has its own rounding."""
    results = set()
    text = path.read_text()
    for way in WAYS:
        told = "".join(line if line.startswith(NAME) else line.rsplit(" ", 1)[0] + f" {way}\n"
                       for line in text.splitlines(keepends=True))
        write(path, told)
        got, wanted = bits(1, SMALL, TESSERA_CONV_PLANS=str(path)), bits(1, SMALL, TESSERA_CONV_CHOICE=way)
        program.report(f"a file that says {way} is gone by", got == wanted and path.read_text() == told, f"{got}{wanted}")
        results.add(got)
    program.report("the ways differ", len(results) > 1, str(results))


def broken(path):
    good = path.read_text()
    for name, text, says in (("another first line", "somebody's notes\n", f"does not begin with the line '{NAME}'"),
                             ("a line of something else", f"{good}sideways\n", "is 'sideways'")):
        write(path, text)
        for ranks in (1, 2):
            program.refused(name, ranks, [SMALL], "convolution plans: ", str(path), says,
                            environment={"TESSERA_CONV_PLANS": str(path)})
        program.report(f"{name}: the file is left alone", path.read_text() == text, path.read_text())


def main():
    with tempfile.TemporaryDirectory() as folder:
        for ranks in (1, 2):
            path = pathlib.Path(folder) / f"plans{ranks}"
            added_at_exit(path, ranks)
            kept(path, ranks)
        gone_by(path)
        broken(path)
    return 1 if program.failures else 0


if __name__ == "__main__":
    sys.exit(main())
