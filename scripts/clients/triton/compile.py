"""Compiles the kernels of `kernels.py` to PTX, without a GPU.

    compile.py FOLDER

writes FOLDER/NAME.sm_NN.ptx for each case and target, and FOLDER/cases.json with what a launch
needs: entry, warps, shared memory, and the types of the arguments in order.
"""

import json
import pathlib
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels import CASES


def compiled(case, target):
    names = case.kernel.arg_names
    signature = {name: case.signature.get(name, "constexpr") for name in names}
    divisible = case.divisible
    if divisible is None:
        divisible = [name for name, type_ in case.signature.items() if type_.startswith("*")]
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in divisible}
    source = ASTSource(case.kernel, signature, case.constants, attributes)
    # Without it, Triton writes the version of its own assembler, newer than the driver takes.
    options = {"num_warps": case.warps, "num_stages": case.stages, "ptx_version": 88}
    return triton.compile(source, target=GPUTarget("cuda", target, 32), options=options)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for case in CASES:
        for target in case.targets:
            kernel = compiled(case, target)
            meta = kernel.metadata
            file = f"{case.name}.sm_{target}.ptx"
            (folder / file).write_text(kernel.asm["ptx"])
            made.append({
                "name": case.name, "target": target, "file": file, "entry": meta.name,
                "warps": meta.num_warps, "shared": meta.shared, "constants": {
                    name: value for name, value in case.constants.items()
                    if isinstance(value, (int, str))
                },
                "arguments": list(case.signature.items()),
                "scratch": getattr(meta, "global_scratch_size", 0),
                "clusters": getattr(meta, "num_ctas", 1),
            })
            print(f"{file}: {meta.num_warps} warps, {meta.shared} bytes shared", flush=True)
    (folder / "cases.json").write_text(json.dumps(made, indent=1))


main()
