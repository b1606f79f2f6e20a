"""Runs tinygrad's own tests and `test_ops.py` on softcuda.

    run.py PYTHON FOLDER [SOURCE]

PYTHON is an environment as `run` makes it, FOLDER takes journals and results, SOURCE is the
unpacked source package, whose tests run too. Each runs with the PTX renderer and with the C
renderer (NVRTC), with and without tensor cores.
"""

import os
import pathlib
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent))

import outcomes
import unittests


def main():
    python, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    files = [here / "test_ops.py"]
    if len(sys.argv) > 3:
        files += sorted(pathlib.Path(sys.argv[3]).glob("test/test_*.py"))
    results = {}
    for device in ["CUDA:PTX", "CUDA"]:
        for tensor_cores in ["1", "0"]:
            name = f"{device.replace(':', '_')}.TC_{tensor_cores}"
            environment = os.environ | {
                "DEV": device, "TC": tensor_cores, "CACHELEVEL": "0",
            }
            print(f"DEV={device} TC={tensor_cores}", flush=True)
            found = unittests.run(python, map(str, files), folder / name, environment)
            results |= {f"{name}.{test}": result for test, result in found.items()}
    outcomes.finish("tinygrad", results, folder, here / "expected.txt")


main()
