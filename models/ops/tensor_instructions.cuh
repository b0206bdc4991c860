// Single instructions of tensor cores and asynchronous copies (PTX, architecture 80 and later) as functions. Only .cu
// files include this; tests/emulation implements them for the host.
#pragma once

#include "models/ops/cuda_vector.cuh"

#include <cstdint>

namespace ranvier::models::cuda {

using Sums = float[4];
using Left = std::uint32_t[4];  ///< 16 × 16

/// sums += left · (b0, b1), where b0 is rows 0 … 7 and b1 rows 8 … 15 of a 16 × 8 right operand.
template <typename T>
__device__ void multiply_add(Sums& sums, const Left& left, std::uint32_t b0, std::uint32_t b1);
template <>
__device__ inline void multiply_add<Bf16>(Sums& sums, const Left& left, std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void multiply_add<F16>(Sums& sums, const Left& left, std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(b0), "r"(b1));
}

__device__ inline std::uint32_t shared_address(const void* place) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(place));
}

__device__ inline void load_matrices(std::uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void load_matrices_transposed(std::uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

/// 2^x, within 2 units; 0 below -126.
__device__ inline float power_of_2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// Starts copying 16 bytes, or stores zeros there; copies are counted in groups.
__device__ inline void copy_ahead(void* to, const void* from, bool zeros) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)), "l"(from),
               "r"(zeros ? 0 : 16)
               : "memory");
}
__device__ inline void end_group() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
/// Waits until at most the last `groups` groups of this thread are unfinished. Other threads see the data after a
/// barrier.
template <int groups>
__device__ inline void wait_for_groups() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(groups) : "memory");
}

}  // namespace ranvier::models::cuda
