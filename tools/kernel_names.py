"""How sources declare and define the entries of the kernel tables (runtime/kernel.h)."""
import re

_DECLARED = re.compile(r"^namespace ([\w:]+) \{$|^extern Kernel<void\([^;]*?\)>\s+(\w+);", re.MULTILINE)
_DEFINED = re.compile(r"^(?:static |const )*(?:tessera::)?Kernel<void\([^;{]*?\)>\s+(?:\w+::)*(\w+)\{", re.MULTILINE)


def declared(text):
    """The kernels that a header declares, with their namespaces."""
    namespace, kernels = "", []
    for opened, name in _DECLARED.findall(text):
        if opened:
            namespace = opened
        else:
            kernels.append(f"{namespace}::{name}")
    return kernels


def defined(text):
    """The names, without namespaces, of the kernels that a source defines."""
    return _DEFINED.findall(text)
