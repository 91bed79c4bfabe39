#!/usr/bin/env python3
"""Checks of the sources themselves. Usage: tools/checks.py layers|limits|docs|kernels|fill

layers  a folder includes only itself and folders to its left; kernel files include only runtime/
limits  files <= 400 lines, headers <= 200, functions <= 60 lines and <= 5 parameters (exceptions are listed
        here, by name, with their reason)
kernels every kernel of the tables has an entry for CUDA devices
docs    commands, files and tests that README.md and docs/ name exist; code they show is that of the named files
fill    writes the code of the named files into the documents
"""
import pathlib
import re
import sys

sys.dont_write_bytecode = True
import functions  # noqa: E402
import kernel_names  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAYERS = ["runtime", "comm", "mesh", "autograd", "ops", "nn", "train"]
# These stand to the right of all layers and beside each other.
TOPS = ["embed", "examples", "bench", "verify", "tests", "emulated"]
# Layers whose code never speaks to MPI itself.
NO_MPI = ["runtime", "mesh", "autograd", "ops", "nn"]
# What the machine is to a kernel: CMake says which of three files is meant (runtime/cuda/kernel_context.h).
CUDA_PORT = "tessera_cuda_port.h"
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
LIMIT_EXCEPTIONS = {}
FUNCTION_LINES = 60
PARAMETERS = 5
# By the beginning of "file:function": how many parameters are allowed, and why.
MORE_PARAMETERS = {
    "emulated/cudnn": (8, "functions of the CUDA Toolkit"),
    "ops/cpu/": (8, "innermost loops take pointers, strides and counts one by one"),
    "runtime/rng": (6, "the same"),
    "emulated/nccl.cpp:nccl": (6, "NCCL's own signatures"),
    "emulated/cublaslt.cpp:cublasLt": (16, "cuBLASLt's own signatures"),
    "emulated/mpi.cpp:MPI_": (7, "MPI's own signatures"),
    "ops/shape/slice.cpp:slice_scatter": (6, "PyTorch's signature"),
    "runtime/array.cpp:wrap": (6, "all that describes memory of others, the last two seldom given"),
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def sources(folders):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                yield path.relative_to(ROOT)


def is_kernel_file(path):
    if path.parts[0] != "ops":
        return False
    return "cpu" in path.parts[1:-1] or path.stem.endswith(("_cpu", "_cuda", "_kernels"))


def allowed_folders(path):
    if is_kernel_file(path):
        return ["runtime"]
    top = path.parts[0]
    if top in LAYERS:
        return LAYERS[: LAYERS.index(top) + 1]
    if top == "tests":
        return LAYERS + TOPS
    return LAYERS + [top]


def reaches_above_runtime(name, seen):
    """How the header `name` leads to a layer above runtime/ (kernel headers in ops/ do not count), or None."""
    if name.split("/")[0] != "ops":
        return None if name.startswith("runtime/") else f"{name} is above it"
    if name in seen or not (ROOT / name).exists():
        return None
    seen.add(name)
    for line in (ROOT / name).read_text().splitlines():
        match = INCLUDE.match(line)
        if match and match[1] == '"' and (above := reaches_above_runtime(match[2], seen)):
            return f"{name} includes more: {above}"
    return None


def include_fault(path, kind, name):
    """Why `path` may not include `name`, or None."""
    first = name.split("/")[0]
    top = path.parts[0]
    if kind == "<":
        if name == "mpi.h" and (top in NO_MPI):
            return f"{top}/ speaks to MPI through comm/ only"
        return None
    if name == CUDA_PORT:
        return None
    if "/" not in name:
        return "includes are written from the root of the repository"
    # A kernel file's own signatures lie beside it in ops/, in headers that know nothing above runtime/ either.
    if is_kernel_file(path) and first == "ops":
        above = reaches_above_runtime(name, set())
        return f"a kernel file includes only runtime/, and {above}" if above else None
    if first in LAYERS + TOPS and first not in allowed_folders(path):
        return f"allowed here: {', '.join(allowed_folders(path))}"
    return None


def check_layers():
    faults = []
    for path in sources(LAYERS + TOPS):
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if match and (fault := include_fault(path, *match.groups())):
                faults.append(f"{path}:{number}: includes {match[2]}; {fault}")
    return faults


def check_limits():
    faults = []
    for path in sources(LAYERS + TOPS + ["include"]):
        if str(path) in LIMIT_EXCEPTIONS:
            continue
        limit = 200 if path.suffix in {".h", ".cuh"} else 400
        count = len((ROOT / path).read_text().splitlines())
        if count > limit:
            faults.append(f"{path}: {count} lines, at most {limit}")
        faults += check_functions(path)
    return faults


def check_functions(path):
    faults = []
    for f in functions.functions((ROOT / path).read_text()):
        where = f"{path}:{f.line}: {f.name}"
        if f.lines > FUNCTION_LINES:
            faults.append(f"{where} has {f.lines} lines, at most {FUNCTION_LINES}")
        more = [n for begin, (n, _) in MORE_PARAMETERS.items() if f"{path}:{f.name}".startswith(begin)]
        if f.parameters > max([PARAMETERS, *more]):
            faults.append(f"{where} has {f.parameters} parameters, at most {max([PARAMETERS, *more])}")
    return faults


def check_docs():
    faults = []
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    if not pages[0].exists():
        return ["README.md is missing"]
    faults += check_named_tests(ROOT / "docs/known-faults.md")
    named = re.compile(r"(?<![\w/.])((?:%s|docs|tools|cmake|include)/[\w./-]*\w)" % "|".join(LAYERS + TOPS))
    for page in pages:
        faults += check_shown(page)
        in_code = False
        for number, line in enumerate(page.read_text().splitlines(), 1):
            where = f"{page.relative_to(ROOT)}:{number}"
            for name in named.findall(line):
                if not (ROOT / name).exists():
                    faults.append(f"{where}: {name} does not exist")
            in_code = in_code != line.startswith("```")
            for link in [] if in_code else re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", line):
                if not (page.parent / link).exists():
                    faults.append(f"{where}: link to {link}, which does not exist")
    return faults


def check_kernels():
    entries = "".join((ROOT / path).read_text() for path in sources(LAYERS) if "cuda" in path.parts)
    faults = []
    for path in sources(LAYERS):
        for name in kernel_names.defined((ROOT / path).read_text()):
            if not re.search(rf"\b{name}(\.set\(Device::Cuda|\);)", entries):
                faults.append(f"{path}: kernel {name} has no entry for Device::Cuda")
    return faults


NAMED_TEST = re.compile(r"^`(tests/[\w./]+)`: (.+)$")


def test_exists(file, name):
    if file == "tests/cases":
        return (ROOT / file / f"{name}.safetensors").exists()
    text = (ROOT / file).read_text() if (ROOT / file).is_file() else ""
    return f'TEST_CASE("{name}"' in text if file.endswith(".cpp") else name in text


def check_named_tests(page):
    """The last column of every table names tests: `file`: name of the test (or of the case), <br> between them."""
    faults = []
    rows = 0
    for number, line in enumerate(page.read_text().splitlines(), 1):
        cells = [c.strip() for c in line.strip("|").split("|")]
        if not line.startswith("|") or cells[-1] in ("test", "---"):
            continue
        rows += 1
        for entry in cells[-1].split("<br>"):
            match = NAMED_TEST.match(entry)
            if not match or not test_exists(*match.groups()):
                faults.append(f"{page.relative_to(ROOT)}:{number}: there is no test {entry}")
    return faults if rows else [f"{page.relative_to(ROOT)}: no table names a test"]


SHOWN = re.compile(r"(<!-- from (\S+) -->\n```\w*\n)(.*?)(```)", re.DOTALL)


def shown_code(name):
    """The file without the comment it begins with."""
    lines = (ROOT / name).read_text().splitlines(keepends=True)
    while lines and lines[0].startswith("//"):
        lines.pop(0)
    return "".join(lines)


def check_shown(page):
    text = page.read_text()
    return [
        f"{page.relative_to(ROOT)}: the code shown is not that of {m[2]} (tools/checks.py fill)"
        for m in SHOWN.finditer(text)
        if m[3] != shown_code(m[2])
    ]


def fill():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text()
        filled = SHOWN.sub(lambda m: m[1] + shown_code(m[2]) + m[4], text)
        if filled != text:
            page.write_text(filled)
    return []


CHECKS = {"fill": fill, "layers": check_layers, "limits": check_limits, "docs": check_docs, "kernels": check_kernels}


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in CHECKS:
        sys.exit(f"usage: tools/checks.py {'|'.join(CHECKS)}")
    faults = CHECKS[sys.argv[1]]()
    print("\n".join(faults) if faults else f"{sys.argv[1]}: fine")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
