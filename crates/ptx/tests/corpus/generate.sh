#!/bin/sh
# Makes the PTX of this folder that compilers write: nvcc from *.cu, rustc (a nightly one) from *.rs. The files are
# checked in; run this again with newer compilers to learn what they write differently.
#   NVCC=/path/to/nvcc sh generate.sh
set -eu
here="$(cd "$(dirname "$0")" && pwd)"
# Debug data names the folder compiled in, so that is the same everywhere.
mkdir -p /tmp/ptx-corpus
cp "$here"/*.cu "$here"/*.rs /tmp/ptx-corpus
cd /tmp/ptx-corpus
cuda() {
    "${NVCC:-nvcc}" -ptx "$1.cu" -o "generated_$2.ptx" -std=c++17 -diag-suppress 177 $3
}
rust() {
    rustc +nightly --target nvptx64-nvidia-cuda --emit=asm --crate-type=lib -A warnings "$1.rs" -o "generated_$2.ptx" $3
}
cuda language language_sm90 "-arch=sm_90"
cuda language language_sm75 "-arch=sm_75"
cuda language language_debug "-arch=sm_90 -G"
cuda language language_lines "-arch=sm_90 -lineinfo"
cuda language language_separate "-arch=sm_90 -rdc=true"
cuda arithmetic arithmetic_sm90 "-arch=sm_90 -rdc=true"
cuda arithmetic arithmetic_fast "-arch=sm_80 -use_fast_math"
cuda tensors tensors_sm90 "-arch=sm_90a"
cuda tensors tensors_sm80 "-arch=sm_80"
rust kernels rust_sm70 "-O -C target-cpu=sm_70"
rust kernels rust_lines "-C opt-level=1 -C target-cpu=sm_90 -C debuginfo=line-directives-only"
# So are the folders of the sources included.
sed -i -e 's|\(\.file[[:space:]]*[0-9]* \)"[^"]*/\([^"/]*\)"|\1"/src/\2"|' generated_*.ptx
cp generated_*.ptx "$here"
