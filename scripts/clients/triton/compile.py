"""Compiles the kernels of `kernels.py` to PTX, without a GPU.

    compile.py FOLDER

writes FOLDER/NAME.sm_NN.ptx for each case and target, and FOLDER/cases.json with what a launch
needs: entry, warps, shared memory, and the types of the arguments in order. A loop that loads ahead
is compiled once more without, as NAME.sm_NN.in_turn.ptx: it has no asynchronous copies.
"""

import json
import pathlib
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels import CASES


def compiled(case, target, stages):
    names = case.kernel.arg_names
    signature = {name: case.signature.get(name, "constexpr") for name in names}
    divisible = case.divisible
    if divisible is None:
        divisible = [name for name, type_ in case.signature.items() if type_.startswith("*")]
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in divisible}
    source = ASTSource(case.kernel, signature, case.constants, attributes)
    # Without it, Triton writes the version of its own assembler, newer than the driver takes.
    options = {"num_warps": case.warps, "num_stages": stages, "ptx_version": 88}
    return triton.compile(source, target=GPUTarget("cuda", target, 32), options=options)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for case in CASES:
        for target in case.targets:
            ahead = compiled(case, target, case.stages)
            in_turn = compiled(case, target, 1)
            name = f"{case.name}.sm_{target}"
            kernels = {name: ahead}
            if in_turn.asm["ptx"] != ahead.asm["ptx"]:
                kernels[f"{name}.in_turn"] = in_turn
            for name, kernel in kernels.items():
                meta = kernel.metadata
                (folder / f"{name}.ptx").write_text(kernel.asm["ptx"])
                made.append({
                    "name": case.name, "target": target, "file": f"{name}.ptx",
                    "entry": meta.name, "warps": meta.num_warps, "shared": meta.shared,
                    "constants": {
                        constant: value for constant, value in case.constants.items()
                        if isinstance(value, (int, str))
                    },
                    "arguments": list(case.signature.items()),
                    "scratch": meta.global_scratch_size,
                })
                print(f"{name}: {meta.num_warps} warps, {meta.shared} bytes shared", flush=True)
    (folder / "cases.json").write_text(json.dumps(made, indent=1))


main()
