#include "models/ops/pooling.hpp"

#include "models/ops/dispatch.hpp"

namespace ranvier::models {
namespace {

constexpr const char* max_pool = "a pool of the greatest values";
constexpr const char* mean_pool = "a pool of means";

/// Cost of reading or writing the images, the pooled images and their places.
runtime::WorkCost cost_of(const PatchShape& shape, runtime::DType dtype) {
  const std::size_t images = shape.samples * shape.height * shape.width, pooled = shape.rows();
  return memory_cost(runtime::WorkKind::patches, dtype,
                     (bytes_of(images + pooled, dtype) + pooled) * shape.channels);
}

/// Cost of reading or writing the images and their means.
runtime::WorkCost cost_of(const MeanPoolShape& shape, runtime::DType dtype) {
  return memory_cost(runtime::WorkKind::patches, dtype,
                     bytes_of(shape.samples * (shape.pixels + 1) * shape.channels, dtype));
}

}  // namespace

void max_pool_forward(runtime::StreamView stream, const PatchShape& shape, runtime::DType dtype, void* y,
                      std::uint8_t* places, const void* x) {
  expect_kernel(dtype, max_pool);
  expect_patches(shape, max_pool);
  on_device<max_pool_forward_cpu, max_pool_forward_cuda>(stream, cost_of(shape, dtype), shape, dtype, y, places, x);
}

void max_pool_backward(runtime::StreamView stream, const PatchShape& shape, runtime::DType dtype, void* dx,
                       const void* dy, const std::uint8_t* places) {
  expect_kernel(dtype, max_pool);
  expect_patches(shape, max_pool);
  on_device<max_pool_backward_cpu, max_pool_backward_cuda>(stream, cost_of(shape, dtype), shape, dtype, dx, dy,
                                                           places);
}

void mean_pool_forward(runtime::StreamView stream, const MeanPoolShape& shape, runtime::DType dtype, void* y,
                       const void* x) {
  expect_kernel(dtype, mean_pool);
  on_device<mean_pool_forward_cpu, mean_pool_forward_cuda>(stream, cost_of(shape, dtype), shape, dtype, y, x);
}

void mean_pool_backward(runtime::StreamView stream, const MeanPoolShape& shape, runtime::DType dtype, void* dx,
                        const void* dy) {
  expect_kernel(dtype, mean_pool);
  on_device<mean_pool_backward_cpu, mean_pool_backward_cuda>(stream, cost_of(shape, dtype), shape, dtype, dx, dy);
}

}  // namespace ranvier::models
