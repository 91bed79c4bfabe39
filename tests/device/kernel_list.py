"""Writes a C++ header that names every kernel of the library: kernel_list.py OUTPUT ROOT

What headers declare as `extern Kernel<...>`. A kernel that is defined in a source file and declared in no header ends it:
no backend could fill its entry.
"""
import pathlib
import sys

output, root = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
sys.dont_write_bytecode = True
sys.path.insert(0, str(root / "tools"))
import kernel_names  # noqa: E402

PARTS = ("runtime", "comm", "mesh", "autograd", "ops", "nn", "train")


def files(suffix):
    return [f for part in PARTS for f in sorted((root / part).rglob(f"*{suffix}"))]


headers, kernels = [], []
for header in files(".h"):
    here = kernel_names.declared(header.read_text())
    kernels += here
    if here:
        headers.append(header.relative_to(root))
declared = {k.rsplit("::", 1)[1] for k in kernels}
for source in files(".cpp"):
    for name in kernel_names.defined(source.read_text()):
        if name not in declared:
            sys.exit(f"{source}: the kernel {name} is declared in no header")

lines = ["// Written by tests/device/kernel_list.py.", "#pragma once", *(f'#include "{h}"' for h in headers), "",
         "// f(name, kernel) for each.", "template <class F>", "void for_each_kernel(F&& f) {",
         *(f'  f("{k}", {k});' for k in kernels), "}", ""]
text = "\n".join(lines)
if not output.exists() or output.read_text() != text:  # else nothing is compiled anew
    output.write_text(text)
