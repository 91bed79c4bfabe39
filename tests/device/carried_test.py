"""An archive as tools/gpu-kit makes them, on machines that have this and that: what tools/gpu-check --kit says to it.

Usage: carried_test.py SOURCE_FOLDER PRESET BUILD_FOLDER
"""
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

sys.dont_write_bytecode = True
source, preset, build = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
sys.path.insert(0, str(source / "tools"))
from carried import Carried, Stop  # noqa: E402

TOLD = {"preset": "cuda", "commit": "1234567", "glibc": "2.3", "cuda": ["libnonesuch.so.9"]}
OLD, NEW = b"\0GLIBCXX_3.4.1\0", b"\0GLIBCXX_3.4.1\0GLIBCXX_3.4.2\0"


def archive(folder, **told):
    path = folder / "kit.tar.xz"
    files = {"kit.json": json.dumps(dict(TOLD, **told)).encode(), "lib/libown.so.1": b"", "common/libsame.so.1": NEW}
    with tarfile.open(path, "w:xz") as packed:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            packed.addfile(member, io.BytesIO(data))
    return path


def carried(folder, **told):
    return Carried(archive(folder, **told), "cuda", tempfile.mkdtemp(dir=folder))


def refused(text, folder, **told):
    try:
        carried(folder, **told)
    except Stop as why:
        assert text in str(why), why
    else:
        raise AssertionError(f"not refused: {text}")


def cuda_is_looked_for(folder):
    refused("libnonesuch.so.9: not among", folder)
    wheel = folder / "packages/nvidia/some/lib"
    wheel.mkdir(parents=True)
    (wheel / "libnonesuch.so.9").write_bytes(b"")
    sys.path.append(str(folder / "packages"))
    kit = carried(folder)
    assert kit.cuda == {"libnonesuch.so.9": wheel / "libnonesuch.so.9"}, kit.cuda
    folders = kit.environment()["LD_LIBRARY_PATH"].split(":")
    assert folders[0] == str(kit.folder / "lib") and str(wheel) in folders, folders
    assert str(wheel / "libnonesuch.so.9") in kit.facts()["CUDA's libraries"]
    sys.path.pop()
    os.environ["LD_LIBRARY_PATH"] = str(wheel)
    assert carried(folder).cuda == kit.cuda
    del os.environ["LD_LIBRARY_PATH"]


def newer_of_common_is_used(folder):
    theirs = folder / "theirs"
    theirs.mkdir()
    os.environ["LD_LIBRARY_PATH"] = str(theirs)
    for data, own in ((None, True), (OLD, True), (NEW, False), (NEW + b"GLIBCXX_3.4.3\0", False)):
        if data:
            (theirs / "libsame.so.1").write_bytes(data)
        kit = carried(folder, cuda=[])
        assert kit.own == (["libsame.so.1"] if own else []), (data, kit.own)
        assert (kit.folder / "lib/libsame.so.1").exists() == own, data
    del os.environ["LD_LIBRARY_PATH"]


def listed_in(folder):
    return subprocess.run([sys.executable, source / "tools/gpu-check", "--list", "--preset", preset, "--build", folder],
                          capture_output=True, text=True)


def all_listed_programs_are_built():
    done = listed_in(build)
    assert done.returncode == 0, done.stderr
    listed = done.stdout.split()
    assert {"bin/tessera-verify", "bin/tessera-winds", "bin/tessera-relief", "bin/tessera-bench", "tests/test_device_memory",
            "tests/test_winds_step", "tests/test_device_graph_training", "tests/test_ops_property"} <= set(listed), listed
    assert not any("example" in name for name in listed), listed
    missing = [name for name in listed if not (build / name).is_file()]
    assert not missing, missing


def programs_that_are_not_built_are_said(folder):
    """The list is the same, whatever is there of it."""
    whole = listed_in(build).stdout.split()
    for name in whole:
        (folder / "part" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "part" / name).write_bytes(b"")
    assert listed_in(folder / "part").returncode == 0
    for gone in ("bin/tessera-relief", "tests/test_optim"):
        (folder / "part" / gone).unlink()
        done = listed_in(folder / "part")
        assert done.returncode == 1 and f"{gone} is not built" in done.stderr, done
        assert done.stdout.split() == whole, done.stdout
        (folder / "part" / gone).write_bytes(b"")
    empty = listed_in(folder / "nothing")
    assert empty.returncode == 1 and empty.stdout.split() == whole, empty
    assert empty.stderr.count("is not built") == len(whole), empty.stderr


with tempfile.TemporaryDirectory() as name:
    cuda_is_looked_for(pathlib.Path(name))
    newer_of_common_is_used(pathlib.Path(name))
    refused("need glibc 99.1", pathlib.Path(name), glibc="99.1", cuda=[])
    refused("give --preset cuda-emulated", pathlib.Path(name), preset="cuda-emulated", cuda=[])
    whole = archive(pathlib.Path(name)).read_bytes()
    for data in (b"no archive", whole[: len(whole) // 2]):
        (pathlib.Path(name) / "broken").write_bytes(data)
        try:
            Carried(pathlib.Path(name) / "broken", "cuda", tempfile.mkdtemp(dir=name))
        except Stop as why:
            assert "is no archive of tools/gpu-kit" in str(why), why
        else:
            raise AssertionError("a broken archive was taken")
    programs_that_are_not_built_are_said(pathlib.Path(name))
all_listed_programs_are_built()
print("ok")
