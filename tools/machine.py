"""What a machine with a GPU has: the devices that CUDA shows to a program, and NVIDIA's compute-sanitizer."""
import os
import pathlib
import shutil
import subprocess
import sys

from carried import Stop, machines_folders, package_folders
from steps import call

NAMES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
# In a process of its own: the driver asks for its settings once, and keeps what it has opened. Error 100: no device.
ASK = """
import ctypes, sys
for place in sys.argv[1:]:
    try:
        cuda = ctypes.CDLL(place)
        break
    except OSError as why:
        print(why)
else:
    sys.exit(1)
count = ctypes.c_int(0)
error = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
print("count", count.value)
sys.exit(0 if error in (0, 100) else f"it answers with error {error}")
"""


def shown():
    """A line for each GPU that nvidia-smi shows, to whomever they are visible."""
    if not shutil.which("nvidia-smi"):
        raise Stop("nvidia-smi is missing, so there is no GPU; --preset cuda-emulated tries the script without one")
    done = call("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader",
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    listed = done.stdout.strip()
    if done.returncode != 0 or not listed:
        raise Stop(f"nvidia-smi shows no GPU: {listed}")
    return listed.splitlines()


def visible():
    """How many devices a program has. The driver is asked: what CUDA_VISIBLE_DEVICES hides, and which of its entries count
    (numbers, UUIDs, parts of a GPU), is its to say."""
    places = [folder / "libcuda.so.1" for folder in machines_folders()]
    places = ["libcuda.so.1", *(str(p) for p in places if p.exists())]
    done = call(sys.executable, "-c", ASK, *places, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0:
        raise Stop(f"CUDA's driver cannot be asked for its devices: {'; '.join(lines)}")
    return int(lines[-1].split()[1])


def devices():
    """How many there are for a program, and what is to be said of them."""
    lines, count = shown(), visible()
    told = ", ".join(f"{name}={os.environ[name]}" for name in NAMES if name in os.environ) or "nothing hides any"
    if count == 0:
        raise Stop(f"CUDA shows none of the GPUs that nvidia-smi does ({told})")
    facts = {"device": "\n".join(lines)}
    if count != len(lines):
        facts["devices"] = f"{count} where nvidia-smi shows {len(lines)} ({told})"
    return count, facts


def sanitizer(local="/usr/local"):
    """The path of compute-sanitizer, or None: in PATH, in a toolkit that the environment names, in one where toolkits are
    wont to be, in a package of Python's."""
    roots = [pathlib.Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    roots += sorted(pathlib.Path(local).glob("cuda*"))
    roots += [root for place in package_folders() for root in sorted(place.glob("nvidia/*"))]
    folders = [str(root / folder) for root in roots for folder in ("bin", "compute-sanitizer")]
    return shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=":".join(folders))
