// How much memory processes of this machine may still take before the system ends one of them: what the machine has,
// or less where a control group (a container, a job of a scheduler) allows less. Any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace ranvier::runtime {

struct MemoryLimit {
  std::size_t bytes = 0;  ///< that may still be taken; memory of cached files counts as free, and so does swap
  std::string reason;     ///< "the machine has 15.5 GiB, of which 12.0 GiB are available"
};

/// The tightest limit of the machine and of this process's control groups, of version 1 or 2, and those around them.
/// `root` is where /proc and /sys are looked for. What cannot be read limits nothing.
[[nodiscard]] MemoryLimit memory_limit(const std::filesystem::path& root = "/");

}  // namespace ranvier::runtime
