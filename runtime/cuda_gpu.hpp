// A GPU as its driver describes it, before a device is made of it. Declared in every build and defined where with_cuda
// is true (cuda_build.hpp). Any thread.
#pragma once

#include <string>

namespace ranvier::runtime {

struct CudaGpu {
  std::string name;            ///< kind of GPU, such as "NVIDIA A100-SXM4-40GB"
  int compute_capability = 0;  ///< times ten: 80 is 8.0
};

/// Throws ErrorCode::device if there is no GPU of this number.
[[nodiscard]] CudaGpu cuda_gpu(int ordinal);

}  // namespace ranvier::runtime
