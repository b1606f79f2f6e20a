#!/usr/bin/env python3
"""Compiles kernels/*.cu to kernels/ptx/*.ptx.

    python3 kernels/build.py              compile all
    python3 kernels/build.py --check      say whether the PTX that is checked in is what the sources compile to

The compiler comes as packages into a temporary virtual environment, at the versions below; --cuda-root names an
unpacked toolkit of the same release instead. Sources are compiled from one fixed folder, because nvcc puts a hash of
the path into some names, so the output is the same on every machine.

What users run on GPUs of their own says that it is for an older architecture and an older ISA than nvcc writes by
itself, so that older drivers take it; ptxas then checks that it keeps to that.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import venv

PACKAGES = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
]
OPTIONS_OF = {"ftz.cu": ["-ftz=true"]}
ARCHITECTURE = "sm_90"
ARCHITECTURE_OF = {
    "decode.cu": "sm_75", "solve.cu": "sm_75", "tensor_map.cu": "sm_90a", "tiles.cu": "sm_90a",
}
ISA_OF = {"decode.cu": "7.0", "solve.cu": "7.0"}
SOURCES = pathlib.Path(__file__).resolve().parent
STAGE = pathlib.Path("/tmp/softcuda-kernels")


def toolkit(scratch: pathlib.Path) -> pathlib.Path:
    """Installs the compiler under `scratch` and gives its root; the packages unpack into one tree."""
    venv.create(scratch / "venv", with_pip=True)
    pip = [scratch / "venv" / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--only-binary=:all:", *PACKAGES], check=True)
    (nvcc,) = (scratch / "venv").glob("lib/python*/site-packages/nvidia/cu13/bin/nvcc")
    return nvcc.parent.parent


def compile_all(root: pathlib.Path, out: pathlib.Path) -> None:
    shutil.rmtree(STAGE, ignore_errors=True)
    STAGE.mkdir()
    for source in sorted(SOURCES.glob("*.cu")):
        shutil.copy(source, STAGE)
        architecture = "-arch=" + ARCHITECTURE_OF.get(source.name, ARCHITECTURE)
        options = ["-ptx", architecture, *OPTIONS_OF.get(source.name, [])]
        target = out / source.with_suffix(".ptx").name
        subprocess.run([root / "bin" / "nvcc", *options, source.name, "-o", target], cwd=STAGE, check=True)
        if source.name in ISA_OF:
            target.write_text(re.sub(r"(?m)^\.version .*$", f".version {ISA_OF[source.name]}", target.read_text()))
            assembled = STAGE / "assembled"
            subprocess.run([root / "bin" / "ptxas", architecture, target, "-o", assembled], check=True)
    shutil.rmtree(STAGE)


def contents(path: pathlib.Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with what is checked in, write nothing")
    parser.add_argument("--cuda-root", type=pathlib.Path, help="a toolkit that is already unpacked")
    arguments = parser.parse_args()
    kept = SOURCES / "ptx"
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        fresh = scratch / "ptx"
        fresh.mkdir()
        compile_all(arguments.cuda_root or toolkit(scratch), fresh)
        names = {path.name for path in [*fresh.iterdir(), *kept.glob("*.ptx")]}
        changed = sorted(name for name in names if contents(fresh / name) != contents(kept / name))
        if arguments.check:
            print("\n".join(f"not current: {name}" for name in changed) or f"all {len(names)} are current")
            return 1 if changed else 0
        for name in changed:
            if (fresh / name).exists():
                shutil.copy(fresh / name, kept / name)
            else:
                (kept / name).unlink()
            print(f"wrote {name}" if (fresh / name).exists() else f"removed {name}")
        print(f"{len(names) - len(changed)} unchanged")
    return 0


if __name__ == "__main__":
    sys.exit(main())
