"""Runs the kernels in Triton's interpreter, and compares with the references of `run.py`.

    interpret.py FOLDER [TEXT]

No driver has a part in it: a case that fails here has a wrong kernel or a wrong reference. FOLDER
is what `compile.py` made. Slow: it is for whoever changes a kernel.
"""

import json
import os
import pathlib
import sys

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import triton.runtime.interpreter as interpreter

import kernels
import run

TYPES = {"*fp32": "float32", "*fp16": "float16", "*bf16": "bfloat16", "*fp64": "float64",
         "*i32": "int32", "*i8": "int8", "*fp8e4nv": "float8_e4m3fn", "*fp8e5": "float8_e5m2"}

# The interpreter multiplies bits of bfloat16 as if they were numbers, and has no tf32.
LEFT_OUT = {"matmul_bf16", "attention_bf16", "matmul_tf32"}


class Pointer:
    """As much of a tensor as the interpreter asks of an argument in host memory."""

    def __init__(self, array, type_):
        self.array, self.dtype = array, TYPES[type_]

    def data_ptr(self):
        return self.array.ctypes.data


# Arguments are on the host.
interpreter.GridExecutor._init_args_hst = lambda self, args, kwargs: (args, kwargs)
interpreter.GridExecutor._restore_args_dev = lambda self, *args: None


def main():
    text = sys.argv[2] if len(sys.argv) > 2 else ""
    cases = {case.name: case for case in kernels.CASES}
    failed = 0
    done = set()
    for made in json.loads((pathlib.Path(sys.argv[1]) / "cases.json").read_text()):
        name = made["name"]
        if name in done | LEFT_OUT or text not in name:
            continue
        done.add(name)
        launch, case = run.maker(name)(made), cases[name]
        arrays = {key: np.array(value) for key, value in launch.arguments.items()
                  if isinstance(value, np.ndarray)}
        arguments = {}
        for key, type_ in made["arguments"]:
            if key in arrays:
                arguments[key] = Pointer(arrays[key], type_)
            else:
                value = launch.arguments[key]
                arguments[key] = int(value) if type_ == "i32" else float(value)
        try:
            case.kernel[launch.grid](**arguments, **case.constants)
            wrong = []
            for key, want in launch.expected.items():
                got = arrays[key]
                if dict(made["arguments"])[key] == "*bf16":
                    got = run.from_bf16(got)
                wrong += [f"{key}: {text}" for text in [run.difference(got, *want)] if text]
            verdict = "; ".join(wrong) or "agrees"
        except Exception as error:
            verdict = f"the interpreter does not run it: {str(error)[:300]}"
        failed += verdict != "agrees"
        print(f"{name}: {verdict}", flush=True)
    sys.exit(1 if failed else 0)


main()
