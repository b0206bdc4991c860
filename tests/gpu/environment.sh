# shellcheck shell=bash
# Unpacks archives and sets search paths for programs and CMake; sourced by run.sh, which sets packages, binaries and
# build. Sets `settings`, CMake's; `binaries_run` returns whether the programs of --binaries start.
settings=()
nvidia-smi -L 2>/dev/null | grep -q GPU && settings+=(-DCMAKE_CUDA_ARCHITECTURES=native)

unpack() {  # <archive or folder> <folder>
  if [ -d "$1" ]; then
    ln -sfn "$(realpath "$1")" "$2"
  elif [ ! -e "$2/.unpacked" ] || [ "$1" -nt "$2/.unpacked" ]; then
    mkdir -p "$2"
    if command -v xz >/dev/null; then tar -C "$2" -xf "$1"; else python3 -m tarfile -e "$1" "$2"; fi
    touch "$2/.unpacked"
  fi
}

# Programs find libraries in $build/packages by DT_RPATH (build.sh); other programs use the system's.
if [ -n "$packages" ]; then
  unpack "$packages" "$build/packages"
  usr=$build/packages/usr
  lib=$usr/lib/x86_64-linux-gnu
  export PATH=$usr/bin:$PATH OPAL_PREFIX=$usr PMIX_INSTALL_PREFIX=$usr
  export PMIX_MCA_pcompress_base_silence_warning=1  # otherwise a warning in every job
  settings+=(-DCMAKE_PREFIX_PATH="$usr" -DMPI_SKIP_COMPILER_WRAPPER=ON -DMPI_C_LIB_NAMES=mpi
             -DMPI_mpi_LIBRARY="$lib/openmpi/lib/libmpi.so" -DMPI_C_HEADER_DIR="$lib/openmpi/include"
             -DMPIEXEC_EXECUTABLE="$usr/bin/mpirun")
  export LDFLAGS="-Wl,-rpath-link,$lib:$lib/openmpi/lib"
fi

# NVIDIA's libraries are opened by name, and cuDNN opens NVRTC. PyTorch's come first, for PyTorch itself.
nvidia_libraries() {
  python3 -c 'import nvidia; print(*nvidia.__path__, sep="\n")' 2>/dev/null |
    while read -r root; do ls -d "$root"/*/lib; done 2>/dev/null || true
  local nvcc
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  ls -d "$(dirname "$(dirname "$(realpath -m "$nvcc")")")"/lib64 /usr/local/cuda/lib64 2>/dev/null || true
}
LD_LIBRARY_PATH=$(nvidia_libraries | paste -sd :)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
# Python with PyTorch and NumPy; empty: none. Not imported, because that takes seconds.
torch_python=
for python in build/reference-python/bin/python python3 /usr/bin/python3; do
  "$python" -c 'import importlib.util as i, sys; sys.exit(not (i.find_spec("numpy") and i.find_spec("torch")))' 2>/dev/null ||
    continue
  torch_python=$python
  break
done
export torch_python
# Without ssh and rsh, Open MPI does not even start jobs on one machine, which need neither.
command -v ssh >/dev/null || command -v rsh >/dev/null || export OMPI_MCA_plm_rsh_agent=false
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

binaries_run() {
  [ -n "$binaries" ] || return 1
  if [ -d "$binaries" ]; then cp -asf "$(realpath "$binaries")/." "$build"; else unpack "$binaries" "$build"; fi
  "$build/apps/ranvier-train" --version && return
  echo "run.sh: the programs of --binaries do not run here (above)" >&2
  return 1
}
