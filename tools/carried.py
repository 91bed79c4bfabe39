"""A build that was carried along in an archive of tools/gpu-kit, and what has to be carried.

The archive holds build/ (bin/ and tests/), lib/, common/, mpi/, data/ and kit.json. What the machine has of CUDA is looked
for. A library in common/ is used only where the machine has none or an older one.
"""
import json
import os
import pathlib
import re
import shutil
import site
import subprocess
import sys
import tarfile

PROGRAMS = ("tessera-verify", "tessera-winds", "tessera-relief", "tessera-bench")
# The names of versions that the libraries in common/ define.
VERSIONS = re.compile(rb"(?:GLIBCXX|CXXABI|GCC|GOMP|OMP|OACC|ZLIB|LIBUDEV)_[0-9][0-9.]*(?=\0)")


class Stop(Exception):
    """Nothing can be run, and why."""


class Listing:
    """A report of nothing: keeps what gpu-check's steps would have run. What has to be carried is told by that."""

    def __init__(self):
        self.words, self.steps, self.facts = [], [], {}

    def begin(self):
        pass

    def run(self, name, command, **options):
        self.words += map(str, command)
        # So that what follows from it is there, too.
        self.steps.append({"name": name, "status": "passed", "output": "takes memory of devices: yes"})

    def bench(self, program, *arguments):
        self.words.append(str(program))

    def skip(self, name, reason):
        pass

    def programs(self, build):
        """Names within the build's folder, whether they are built or not. A script that is given bin/ runs the four there
        that are no examples of an interface."""
        build = pathlib.Path(build).resolve()
        paths = [pathlib.Path(word) for word in self.words]
        paths += [folder / p for folder in paths if folder == build / "bin" for p in PROGRAMS]
        return sorted({str(p.relative_to(build)) for p in paths if p.is_relative_to(build) and p != build / "bin"})


def package_folders():
    """Where Python's packages lie, those of the Python that runs this first."""
    python = [*sys.path, *site.getsitepackages(), site.getusersitepackages()]
    places = [pathlib.Path(f) for f in python if f]
    return places + [p for root in ("/usr/lib", "/usr/local/lib") for p in pathlib.Path(root).glob("python3*/*-packages")]


def machines_folders():
    """Where libraries lie that the linker is told of, and where CUDA's are wont to, in the order in which they are asked."""
    local = pathlib.Path("/usr/local")
    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), *sorted(local.glob("cuda*/lib64")),
               *sorted(local.glob("cuda*/targets/x86_64-linux/lib")), local / "nvidia/lib64"]
    folders += [folder for place in package_folders() for folder in sorted(place.glob("nvidia/*/lib"))]
    return [f for f in dict.fromkeys(pathlib.Path(f) for f in folders if f) if f.is_dir()]


def linkers_libraries():
    """Name -> path of what the linker knows by itself."""
    program = shutil.which("ldconfig", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    listed = subprocess.run([program, "-p"], capture_output=True, text=True).stdout if program else ""
    return dict(reversed(re.findall(r"^\s*(\S+) \(libc6,x86-64.*\) => (\S+)$", listed, re.M)))


class Carried:
    def __init__(self, archive, preset, folder):
        self.folder = pathlib.Path(folder)
        try:
            with tarfile.open(archive) as packed:
                # Older Pythons know no filters.
                packed.extractall(folder, **({"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}))
            self.told = json.loads((self.folder / "kit.json").read_text())
        except (OSError, EOFError, tarfile.TarError, ValueError) as error:
            raise Stop(f"{archive} is no archive of tools/gpu-kit ({error})") from error
        if self.told["preset"] != preset:
            raise Stop(f"{archive} is of the preset {self.told['preset']}, so give --preset {self.told['preset']}")
        self.build = self.folder / "build"
        self.check_glibc()
        self.folders, self.known = machines_folders(), linkers_libraries()
        self.cuda = {name: self.find(name) for name in self.told["cuda"]}
        if missing := [name for name, path in self.cuda.items() if not path]:
            raise Stop(f"{', '.join(missing)}: not among what the linker knows, nor in LD_LIBRARY_PATH, nor in "
                       f"{', '.join(map(str, self.folders)) or 'a folder of CUDA (there is none)'}")
        self.own = self.choose_common()

    def check_glibc(self):
        here = os.confstr("CS_GNU_LIBC_VERSION").split()[-1]
        if tuple(map(int, here.split("."))) < tuple(map(int, self.told["glibc"].split("."))):
            raise Stop(f"the archive's programs need glibc {self.told['glibc']}, and this machine has {here}")

    def find(self, name):
        """The machine's own library of this name, or None."""
        places = [folder / name for folder in self.folders]
        places += [pathlib.Path(self.known[name])] if name in self.known else []
        return next((p for p in places if p.exists()), None)

    def choose_common(self):
        """An older library than the machine's would fail what else needs it there (compute-sanitizer, Python)."""
        own = []
        for ours in sorted((self.folder / "common").iterdir()):
            path = self.find(ours.name)
            if not path or set(VERSIONS.findall(ours.read_bytes())) - set(VERSIONS.findall(path.read_bytes())):
                ours.rename(self.folder / "lib" / ours.name)
                own.append(ours.name)
        return own

    def environment(self):
        """What the programs, mpirun among them, need to find all that they need."""
        mpi = self.folder / "mpi"
        return {
            "LD_LIBRARY_PATH": ":".join(map(str, [self.folder / "lib", *self.folders])),
            "PATH": f"{mpi}/bin:{os.environ.get('PATH', '/usr/bin:/bin')}",
            "FER_DATA": str(self.folder / "data"),
            "OPAL_PREFIX": str(mpi), "OPAL_PKGLIBDIR": f"{mpi}/plugins", "OPAL_PKGDATADIR": f"{mpi}/share",
            "PMIX_PREFIX": str(mpi), "PMIX_PKGLIBDIR": f"{mpi}/pmix",
            # Where hwloc has no plugins: the machine's are of another version.
            "HWLOC_PLUGINS_PATH": str(self.folder / "data"),
            # All ranks are on this host. There need be no ssh, and not every machine lets a process read another's memory.
            "OMPI_MCA_plm": "isolated", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
        }

    def facts(self):
        """What a report should say of it."""
        return {"carried, built from": self.told["commit"],
                "CUDA's libraries": ", ".join(map(str, self.cuda.values())) or "none needed",
                "carried because the machine's are older or missing": ", ".join(self.own) or "none"}
