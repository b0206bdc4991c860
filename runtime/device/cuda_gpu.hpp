// Properties of a GPU, read from its driver before a device is made. Declared in every build and defined if with_cuda
// is true (cuda_build.hpp). Callable from any thread.
#pragma once

#include <string>

namespace ranvier::runtime {

struct CudaGpu {
  std::string name;            ///< model, such as "NVIDIA A100-SXM4-40GB"
  int compute_capability = 0;  ///< times ten: 80 is 8.0
};

/// Throws ErrorCode::device if no GPU has this number.
[[nodiscard]] CudaGpu cuda_gpu(int ordinal);

}  // namespace ranvier::runtime
