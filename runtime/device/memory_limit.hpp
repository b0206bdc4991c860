// Memory that processes may still take before the system kills one: the limit of the machine, or of a control group
// (container, scheduler job) if that is lower. Also the peak of this process. Callable from any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace ranvier::runtime {

struct MemoryLimit {
  std::size_t bytes = 0;  ///< bytes still available; file cache and swap count as free
  std::string reason;     ///< "the machine has 15.5 GiB, of which 12.0 GiB are available"
};

/// Tightest limit of the machine, this process's control groups (version 1 or 2) and their parents. `root` contains
/// /proc and /sys. Unreadable limits are ignored.
[[nodiscard]] MemoryLimit memory_limit(const std::filesystem::path& root = "/");

/// Throws ErrorCode::memory for `bytes` of device memory that its budget does not have left.
[[noreturn]] void refuse_allocation(std::size_t bytes, std::size_t used, std::size_t budget);

/// Peak physical memory of the process, libraries and mapped files included; 0 if unknown.
[[nodiscard]] std::size_t peak_resident_bytes();

}  // namespace ranvier::runtime
