"""Runs tools/quickstart on what is built already: a few steps, the numbers, both pictures, where they are.

Nothing is installed or built: the folder of the build is as it was. With --shipped: the configuration as it is
shipped, to its end, after which the model must be better than every baseline.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE, BUILD = map(pathlib.Path, sys.argv[1:3])
SHIPPED = "--shipped" in sys.argv[3:]
SCRIPT = str(SOURCE / "tools/quickstart")


def quickstart(*arguments):
    done = subprocess.run([SCRIPT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def newest(folder):
    return max(p.stat().st_mtime_ns for p in (folder / "bin").iterdir())


def shipped():
    with tempfile.TemporaryDirectory() as name:
        code, text = quickstart("--built", str(BUILD), "--out", name)
        print(text)
        assert code == 0, code
        lines = [json.loads(line) for line in (pathlib.Path(name) / "metrics.jsonl").read_text().splitlines()]
    scores = {line["name"]: line for line in lines if line["kind"] == "score"}
    model = scores.pop("the model")
    assert len(scores) == 4, scores.keys()
    for other in scores.values():
        assert model["plain"] < other["plain"] and model["weighted"] < other["weighted"], (model, other)


def main():
    before = newest(BUILD)
    with tempfile.TemporaryDirectory() as name:
        out = pathlib.Path(name) / "run"
        code, text = quickstart("--built", str(BUILD), "--steps", "2", "--depth", "1", "--month", "115", "--out", str(out))
        print(text)
        assert code == 0, code
        assert "training on 2 ranks" in text and "building" not in text and "setup" not in text
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        assert [l["step"] for l in lines if l["kind"] == "step"][-1] == 2, lines
        assert "the model" in text, "the table of scores"
        shown = re.findall(r"^.*: +(\S+\.(?:jsonl|png))(?: \((.*)\))?$", text, re.MULTILINE)
        assert [pathlib.Path(p).name for p, _ in shown] == ["metrics.jsonl", "loss.png", "map.png"], shown
        assert shown[2][1] == "August 1989", shown  # month 0 is January 1980
        for path, _ in shown:
            file = pathlib.Path(path)
            assert file.stat().st_size > 300, path
            assert file.suffix != ".png" or file.read_bytes().startswith(b"\x89PNG"), path

        code, text = quickstart("--built", name)
        assert code == 1 and text.count("\n") == 1 and f"no {name}/bin/tessera-winds" in text, text
    assert newest(BUILD) == before, "something was built"


if __name__ == "__main__":
    shipped() if SHIPPED else main()
