#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs what card_check.py needs on a machine with a card and without a package index, into .card of
# the checkout. It needs pip's package index, g++, nvcc 13 and CPython 3.12.
#
#     make card-pack                  the wheel, Gymnasium, MuJoCo, mujoco_warp, Warp, kernels: 46 MB
#     make card-pack CARD_WITH=ray    Ray in the place of Warp's CPU device: 56 MB
#
# Ten minutes of two cores the first time. What is made stays in build/card; only the wheel and the
# kernels whose text has changed are made anew.
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
cd "$root"
here=$root/tests/device/card
work=$root/build/card
with=${CARD_WITH:-clang}
arch=${CARD_ARCH:-sm_90}
torch=${CARD_TORCH:-2.11.0}
case $with in clang | ray) ;; *) echo "CARD_WITH=$with: expected clang or ray" >&2; exit 2 ;; esac
python=${CARD_PYTHON:-}
for one in "$HOME"/.pyenv/versions/3.12.*/bin/python3.12 "$(command -v python3.12 || true)"; do
  [ -n "$python" ] || [ ! -x "$one" ] || python=$one
done
[ -n "$python" ] || { echo "no python3.12: name one, make card-pack CARD_PYTHON=/path" >&2; exit 2; }
command -v nvcc > /dev/null || { echo "no nvcc: install CUDA's compiler, version 13" >&2; exit 2; }
mkdir -p .card "$work/whl"

# --- the wheel, for the card's Python
make wheels PYTHONS="$python" ARCHS=x86_64 > "$work/wheel.log" 2>&1 || { tail -30 "$work/wheel.log"; exit 1; }
wheel=$(ls -t dist/rollouts-*-cp312-*_x86_64.whl | head -1)

# --- the wheels of others
[ -d "$work/venv" ] || "$python" -m venv "$work/venv"
pip="$work/venv/bin/python -m pip --disable-pip-version-check -q"
get() {
  $pip download --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_24_x86_64 \
    --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 -d "$work/whl" "$@"
}
pin() { grep "^$1==" constraints.txt; }
get "$(pin gymnasium)" farama-notifications "$(pin mujoco)" "mujoco-core==$(pin mujoco | cut -d= -f3)" \
  "$(pin mujoco-warp)" "$(pin warp-lang)" nvidia-libmathdx-cu13==0.4.1.15 nvidia-nvjitlink==13.0.88 \
  nvidia-cuda-nvrtc==13.0.88
[ "$with" != ray ] || get "$(pin ray)" jsonschema jsonschema-specifications referencing rpds-py

# --- Warp without what makes its wheel 149 MB: machine code of other cards, and NVRTC, nvJitLink and the
# PTX compiler linked into it. It is built from the sources in the wheel itself. What those lack (volumes,
# cuBQL) is left out, and says so when it is called
warp=$work/warp
if [ ! -s "$work/warp.done" ]; then
  rm -rf "$warp" "$work/lib" "$work/obj"
  mkdir -p "$warp" "$work/lib" "$work/obj" "$work/inc"
  unzip -q "$work"/whl/warp_lang-*.whl -d "$warp"
  for one in libmathdx nvjitlink cuda_nvrtc; do unzip -q -o "$work"/whl/nvidia_${one}*.whl -d "$work/lib"; done
  lib=$work/lib/nvidia/cu13
  cat > "$work/inc/nvPTXCompiler.h" <<'H'
#pragma once
#include <stddef.h>
typedef struct nvPTXCompiler* nvPTXCompilerHandle;
typedef enum { NVPTXCOMPILE_SUCCESS, NVPTXCOMPILE_ERROR_INVALID_COMPILER_HANDLE, NVPTXCOMPILE_ERROR_INVALID_INPUT,
  NVPTXCOMPILE_ERROR_COMPILATION_FAILURE, NVPTXCOMPILE_ERROR_INTERNAL, NVPTXCOMPILE_ERROR_OUT_OF_MEMORY,
  NVPTXCOMPILE_ERROR_COMPILER_INVOCATION_INCOMPLETE, NVPTXCOMPILE_ERROR_UNSUPPORTED_PTX_VERSION,
  NVPTXCOMPILE_ERROR_UNSUPPORTED_DEVSIDE_SYNC, NVPTXCOMPILE_ERROR_CANCELLED } nvPTXCompileResult;
#define NONE(name, ...) static inline nvPTXCompileResult name(__VA_ARGS__) { return NVPTXCOMPILE_ERROR_INTERNAL; }
NONE(nvPTXCompilerCreate, nvPTXCompilerHandle*, size_t, const char*) NONE(nvPTXCompilerDestroy, nvPTXCompilerHandle*)
NONE(nvPTXCompilerCompile, nvPTXCompilerHandle, int, const char* const*)
NONE(nvPTXCompilerGetCompiledProgramSize, nvPTXCompilerHandle, size_t*)
NONE(nvPTXCompilerGetCompiledProgram, nvPTXCompilerHandle, void*)
NONE(nvPTXCompilerGetErrorLogSize, nvPTXCompilerHandle, size_t*) NONE(nvPTXCompilerGetErrorLog, nvPTXCompilerHandle, char*)
H
  cp "$lib"/include/nvrtc.h "$lib"/include/nvJitLink.h "$work/inc/"
  include="-I$warp/warp/native -I$work/inc -I$lib/include"
  define="-DWP_BUILD_DLL -DWP_ENABLE_CUDA=1 -DWP_ENABLE_MATHDX=1 -DWP_ENABLE_CUDA_COMPATIBILITY=1 -DNDEBUG"
  visible="-fPIC,-fvisibility=hidden,-fvisibility-inlines-hidden,-D_GLIBCXX_USE_CXX11_ABI=0"
  cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
  [ -d "$cuda/lib64" ] || cuda=/usr/local/cuda-13.0
  for f in "$warp"/warp/native/*.cpp; do
    case $f in *cubql* | *volume*) continue ;; esac
    g++ -std=c++17 -O3 ${visible//,/ } -fno-rtti -DWP_ENABLE_DEBUG=0 $define -I"$cuda/include" $include \
      -c "$f" -o "$work/obj/$(basename "$f").o"
  done
  for f in "$warp"/warp/native/*.cu; do
    case $f in *cubql* | *volume* | */apic.cu) continue ;; esac # warp.cu includes apic.cu
    nvcc -gencode="arch=compute_${arch#sm_},code=$arch" --extended-lambda -diag-suppress=221 -std=c++17 -O3 \
      --compiler-options "$visible" $include $define -c "$f" -o "$work/obj/$(basename "$f").o"
  done
  nm --defined-only "$work"/obj/*.o 2> /dev/null | awk 'NF==3{print $3}' | sort -u > "$work/have"
  {
    nm -D --defined-only "$warp/warp/bin/warp.so" | awk '{print $3}'
    nm -u "$work"/obj/*.o | awk '{print $2}' | grep -E '^(_ZN2wp|wp_)'
  } | sort -u | comm -23 - "$work/have" > "$work/missing"
  {
    printf '#include <cstdio>\n#include <cstdlib>\n'
    i=0
    while read -r s; do
      i=$((i + 1))
      printf 'extern "C" __attribute__((visibility("default"))) void f_%d() __asm__("%s"); ' $i "$s"
      printf 'void f_%d() { std::fputs("%s is left out of this build\\n", stderr); std::abort(); }\n' $i "$s"
    done < "$work/missing"
  } > "$work/missing.cpp"
  g++ -c -fPIC "$work/missing.cpp" -o "$work/obj/missing.o"
  g++ -shared "-Wl,-rpath,\$ORIGIN" -static-libstdc++ -static-libgcc -Wl,-z,lazy -Wl,--exclude-libs,ALL \
    -o "$work/warp.so" "$work"/obj/*.o -L"$cuda/lib64" -lcudart_static -Wl,--no-as-needed \
    "$lib/lib/libnvrtc.so.13" "$lib/lib/libnvJitLink.so.13" "$lib/lib/libmathdx.so.0" -lpthread -ldl -lrt
  strip "$work/warp.so"
  mv "$warp/warp/bin/warp-clang.so" "$work/warp-clang.so"
  xz -6 -k -f "$work/warp-clang.so"
  mv "$work/warp.so" "$warp/warp/bin/warp.so"
  cp "$lib/lib/libmathdx.so.0" "$warp/warp/bin/"
  rm -rf "$warp/warp/examples" "$warp/warp/tests"
  date > "$work/warp.done"
fi

# --- a folder of packages, and Ray without its Java, dashboard and RLlib
install="$pip install --no-index --no-deps --no-compile --no-cache-dir --target"
rm -rf "$work/site"
$install "$work/site" "$wheel" "$work"/whl/{gymnasium,farama_notifications,mujoco,mujoco_core,mujoco_warp}-*.whl
cp -r "$warp"/* "$work/site/"
rm -rf "$work/site/mujoco_warp/test_data" "$work/site/mujoco/doc"
tar c -C "$work/site" --owner=0 --group=0 . | xz -6 -T2 > .card/site.tar.xz
rm -f .card/ray.tar.xz .card/warp-clang.so.xz
if [ "$with" = ray ]; then
  rm -rf "$work/ray"
  $install "$work/ray" "$work"/whl/{ray,jsonschema,jsonschema_specifications,referencing,rpds_py}-*.whl
  rm -rf "$work"/ray/ray/{jars,rllib,serve} "$work/ray/ray/dashboard/client"
  tar c -C "$work/ray" --owner=0 --group=0 . | xz -6 -T2 > .card/ray.tar.xz
else
  cp "$work/warp-clang.so.xz" .card/
fi

# --- kernels: MiniGrid's and BabyAI's take NVRTC half a minute each. torch brings the card's NVRTC
"$work/venv/bin/python" -c "import torch" 2> /dev/null || $pip install --no-compile "torch==$torch" numpy
"$work/venv/bin/python" -c "import cuda.bindings" 2> /dev/null ||
  $pip install --no-compile "cuda-bindings>=13,<14" nvidia-cuda-nvrtc==13.0.88
# Tag's options are those of an example, and examples ask for these
"$work/venv/bin/python" -c "import matplotlib, tensorboard, tqdm" 2> /dev/null ||
  $pip install --no-compile "$(pin matplotlib)" "$(pin tensorboard)" "$(pin tqdm)"
PYTHONPATH=$work/site ROLLOUTS_CACHE_DIR=$work/cubins "$work/venv/bin/python" "$here/card_cubins.py" "$arch" \
  > "$work/cubins.log" 2>&1 || { tail -5 "$work/cubins.log"; exit 1; }
find "$work/cubins" -name '*.lock' -delete
tar c -C "$work/cubins" --owner=0 --group=0 . | xz -6 > .card/cubins.tar.xz
"$work/venv/bin/python" - "$here" > .card/native.sha256 <<'P'
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from card_check import native_digest

print(native_digest(Path.cwd()))
P
ls -l .card
tree=$(git ls-files -co --exclude-standard -z | xargs -0 stat -c %s 2> /dev/null | awk '{s += $1} END {print s}')
pack=$(du -sb .card | cut -f1)
echo "tree $((tree / 1048576)) MiB + pack $((pack / 1048576)) MiB"
