// GPU kernels for elementwise.hpp; arguments are checked by the caller, and n > 0. Loop thread only.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>

namespace ranvier::runtime {

/// Copies between device, pinned and host memory, in any combination.
void copy_cuda(StreamView stream, void* to, const void* from, std::size_t bytes);
void copy_runs_cuda(StreamView stream, void* to, std::size_t to_stride, const void* from, std::size_t from_stride,
                    std::size_t run_bytes, std::size_t runs);
void fill_zero_cuda(StreamView stream, void* to, std::size_t bytes);
void cast_cuda(StreamView stream, void* to, DType to_dtype, const void* from, DType from_dtype, std::size_t n,
               const StridedLayout& to_runs, const StridedLayout& from_runs);
void scale_cuda(StreamView stream, void* to, DType dtype, float factor, std::size_t n);
void add_cuda(StreamView stream, void* to, const void* from, DType dtype, std::size_t n,
              const StridedLayout& to_runs, const StridedLayout& from_runs);
void sums_of_squares_cuda(StreamView stream, float* sums, std::size_t sums_stride, const void* from,
                          const StridedLayout& runs, DType dtype, std::size_t n);
void sum_cuda(StreamView stream, double* total, const float* from, std::size_t n);

}  // namespace ranvier::runtime
