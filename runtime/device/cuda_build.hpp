// Build constants: whether this build has CUDA and NCCL. Dispatch reads
//
//   if constexpr (with_cuda) {
//     if (stream.device().kind() == DeviceKind::cuda) return x_cuda(stream, ...);
//   }
//
// and links without x_cuda if CUDA is not built, since a discarded statement uses nothing.
#pragma once

namespace ranvier::runtime {

inline constexpr bool with_cuda = RANVIER_WITH_CUDA;
inline constexpr bool with_nccl = RANVIER_WITH_NCCL;

}  // namespace ranvier::runtime
