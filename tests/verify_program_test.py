"""Runs tessera-verify under mpirun: exit codes, first and last line, refusals in one line, no hang."""
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

MPIRUN, PROGRAM, CASES = sys.argv[1], sys.argv[2], sys.argv[3]
failures = []


def run(ranks, *args, launcher=(), **environment):
    done = subprocess.run([MPIRUN, "-q", "-n", str(ranks), *launcher, PROGRAM, *args], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60, env={**os.environ, **environment})
    return done.returncode, done.stdout.splitlines()


def check(what, good, output):
    print(("ok: " if good else "FAILED: ") + what)
    if not good:
        failures.append(what)
        print("\n".join(output))


def wrong_copy(source, target):
    """The case with the first element of out.y moved far away."""
    with open(source, "rb") as f:
        data = bytearray(f.read())
    length = struct.unpack("<Q", data[:8])[0]
    begin = json.loads(data[8:8 + length])["out.y"]["data_offsets"][0]
    data[8 + length + begin:8 + length + begin + 4] = struct.pack("<f", 1234.0)
    with open(target, "wb") as f:
        f.write(data)


def main():
    good = os.path.join(CASES, "kink_clamp.safetensors")
    code, lines = run(2, "--trials", "3", "--seed", "7", good)
    check("a good case: exit code 0 and two lines",
          code == 0 and lines == ["2 ranks, f32, seed 7, 3 trials a file", "3 passed, 0 failed"], lines)

    with tempfile.TemporaryDirectory() as folder:
        bad = os.path.join(folder, "bad.safetensors")
        wrong_copy(good, bad)
        code, lines = run(3, "--trials", "2", "--dtype", "f64", bad, good)
        check("a wrong case beside a good one: exit code 1", code == 1 and lines[-1] == "2 passed, 2 failed", lines)
        check("one line for each failure", len(lines) == 4 and all("want 1234" in l for l in lines[1:3]), lines)
        again = re.search(r"mpirun -n 3 (\S+) (.*)$", lines[2])
        check("the line says how to run it again", again is not None, lines)
        code, repeated = run(3, *again.group(2).split())
        check("run again it is the same", code == 1 and repeated[1:] == [lines[2], "0 passed, 1 failed"], repeated)
        code, lines = run(1, "--trials", "1", folder)
        check("a folder stands for its cases", code == 1 and lines[-1] == "0 passed, 1 failed", lines)

    for args, text in [(["--mesh", "3x2", good], "3x2 has 6 ranks, this run has 2"),
                       (["--mesh", "2y", good], '"2y" was given, allowed are sizes like 4 or 2x2'),
                       (["--device", "cuda", good], "this build knows only cpu and meta")]:
        code, lines = run(2, *args)
        check(" ".join(args[:2]), code == 1 and len(lines) == 1 and text in lines[0], lines)
    for args in [["--dtype", "f16", good], ["--only-trial", "x", good], ["--trials", "-1", good], ["--bogus", good], []]:
        code, lines = run(2, *args)
        check("refused: " + " ".join(args[:2]),
              code == 1 and len(lines) == 1 and lines[0].startswith("tessera-verify: ") and "--help" in lines[0], lines)
    more = ("sh", "-c", 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then set -- "$@" --dtype f64; fi; exec "$0" "$@"')
    code, lines = run(3, good, launcher=more)
    check("other arguments on one rank", code == 1 and lines == [
        "tessera-verify: all ranks must be given the same arguments, but rank 1 was given '--dtype' where rank 0 was given ''"], lines)
    code, lines = run(2, good, TESSERA_DEADLINE="abc")
    check("a wrong setting", code == 1 and lines == [
        "communicator: TESSERA_DEADLINE is 'abc', but must be a positive number of seconds"], lines)
    code, lines = run(2, "--help")
    check("--help", code == 0 and any("--only-trial" in l for l in lines), lines)
    code, lines = run(1, "no/such/file")
    check("a missing file", code == 1 and lines[-1] == "0 passed, 1 failed", lines)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
