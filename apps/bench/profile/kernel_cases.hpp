// The operations of each kind of work, as a profile times them. Pure but for what queueing does; loop thread only.
#pragma once

#include "apps/bench/profile/work_timer.hpp"
#include "runtime/work_cost.hpp"

#include <cstdint>
#include <vector>

namespace ranvier::apps {

/// Arrays [rows, channels]. Channels are a multiple of 64, and rows at most as many as there are tokens.
struct KernelSize {
  std::size_t rows = 0;
  std::size_t channels = 0;
};

/// Tokens that the cases read, in the device's memory, each below `vocab_size`.
struct KernelTokens {
  static constexpr std::size_t vocab_size = 1024;
  const std::int32_t* data = nullptr;
  std::size_t count = 0;
};

struct KernelCase {
  runtime::WorkKind kind = runtime::WorkKind::elementwise;
  ProfiledWork work;  ///< forward and backward, where there is a backward
};

/// Those of all kinds but products, copies between device and host, and samples. `threads` of the device.
[[nodiscard]] std::vector<KernelCase> kernel_cases(runtime::DType dtype, const KernelSize& size,
                                                   const KernelTokens& tokens, int threads);
/// Additions alone, as of received chunks.
[[nodiscard]] ProfiledWork additions(runtime::DType dtype, const KernelSize& size);
/// AdamW with gradients and a working copy of that type, or without the copy in fp32.
[[nodiscard]] ProfiledWork optimizer_step(runtime::DType dtype, const KernelSize& size);

}  // namespace ranvier::apps
