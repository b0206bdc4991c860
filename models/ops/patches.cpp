#include "models/ops/patches.hpp"

#include "models/ops/dispatch.hpp"

namespace ranvier::models {
namespace {

/// Cost of reading or writing the images, and their patches in type `patches`.
runtime::WorkCost cost_of(const PatchShape& shape, runtime::DType dtype, runtime::DType patches) {
  const std::size_t images = shape.samples * shape.height * shape.width * shape.channels;
  return memory_cost(runtime::WorkKind::patches, dtype,
                     bytes_of(images, dtype) + bytes_of(shape.rows() * shape.columns(), patches));
}

}  // namespace

void expect_patches(const PatchShape& shape, const char* operation) {
  const std::size_t K = shape.kernel;
  expect(K >= 1 && K <= PatchShape::max_kernel && shape.stride >= 1 && shape.padding < K &&
             shape.height + 2 * shape.padding >= K && shape.width + 2 * shape.padding >= K,
         "{} of {} × {} pixels in patches of {}, {} apart, with a margin of {}", operation, shape.height,
         shape.width, K, shape.stride, shape.padding);
}

void gather_patches(runtime::StreamView stream, const PatchShape& shape, runtime::DType dtype, void* patches,
                    const void* x) {
  expect_kernel(dtype, "patches");
  expect_patches(shape, "patches");
  on_device<gather_patches_cpu, gather_patches_cuda>(stream, cost_of(shape, dtype, dtype), shape, dtype, patches,
                                                     x);
}

void add_patches(runtime::StreamView stream, const PatchShape& shape, runtime::DType dtype, void* x,
                 const float* patches) {
  expect_kernel(dtype, "sums of patches");
  expect_patches(shape, "sums of patches");
  on_device<add_patches_cpu, add_patches_cuda>(stream, cost_of(shape, dtype, runtime::DType::f32), shape, dtype, x,
                                               patches);
}

}  // namespace ranvier::models
