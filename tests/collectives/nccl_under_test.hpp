// NCCL of one rank on the device under test: the real one on `cuda`, one over host memory elsewhere.
#pragma once

#include "collectives/nccl/nccl_library.hpp"
#include "runtime/device/device.hpp"

#include <memory>
#include <optional>
#include <string>

namespace ranvier::tests {

class NcclUnderTest {
 public:
  virtual ~NcclUnderTest() = default;
  [[nodiscard]] virtual collectives::NcclLibrary& library() = 0;
  [[nodiscard]] virtual runtime::Device& device() = 0;
};

[[nodiscard]] std::unique_ptr<NcclUnderTest> make_nccl_under_test();

/// Reason, in words, why NCCL is unavailable; nullopt if it is available.
[[nodiscard]] std::optional<std::string> missing_nccl();

}  // namespace ranvier::tests
