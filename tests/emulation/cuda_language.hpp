// nvcc's extensions of C++, for a compiler of the host: included before every .cu file by its command line.
#pragma once

#include "tests/emulation/machine.hpp"

#include <cuda_runtime.h>
#include <vector_functions.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#undef __shared__
#define __shared__ static  // blocks run one after the other
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__

#define threadIdx ranvier::emulation::thread_index
#define blockIdx ranvier::emulation::block_index
#define blockDim ranvier::emulation::block_size
#define gridDim ranvier::emulation::grid_size
#define __syncthreads() ranvier::emulation::synchronize_block()
#define __syncwarp() static_cast<void>(ranvier::emulation::shuffle(0, 0))

using std::max;
using std::min;

// All lanes always take part: machine.cpp ends a program if some do not.
template <typename T>
T __shfl_sync(unsigned, T value, int from) {
  return ranvier::emulation::shuffle(value, from);
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return ranvier::emulation::shuffle(value, ranvier::emulation::lane() ^ mask);
}
template <typename T>
T __shfl_down_sync(unsigned, T value, int by) {
  const int from = ranvier::emulation::lane() + by;
  return ranvier::emulation::shuffle(value, from < ranvier::emulation::lanes ? from : ranvier::emulation::lane());
}

// Rounded once, regardless of the host compiler's contractions.
inline float __fadd_rn(float a, float b) {
  volatile float sum = a + b;
  return sum;
}
inline float __fsub_rn(float a, float b) {
  volatile float difference = a - b;
  return difference;
}
inline float __fmul_rn(float a, float b) {
  volatile float product = a * b;
  return product;
}
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0) return cudaErrorInvalidValue;
  return ranvier::emulation::allow_shared_memory(reinterpret_cast<const void*>(kernel),
                                                 static_cast<std::size_t>(value))
             ? cudaSuccess
             : cudaErrorInvalidValue;
}
