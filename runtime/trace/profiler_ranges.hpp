// Ranges and marks on the time line of an attached profiler, such as Nsight Systems (NVTX, domain "ranvier"). Without a
// profiler each call is one comparison. Callable from any thread.
#pragma once

#include <cstdint>
#include <string>

namespace ranvier::runtime::profiler {

[[nodiscard]] bool attached() noexcept;

/// Ranges may overlap, and end on another thread. Call these three only if attached() is true.
[[nodiscard]] std::uint64_t begin_range(const std::string& name);
void end_range(std::uint64_t range);
void mark(const std::string& name);

}  // namespace ranvier::runtime::profiler
