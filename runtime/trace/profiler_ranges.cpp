// Build without NVTX: no profiler is ever attached.
#include "runtime/trace/profiler_ranges.hpp"

namespace ranvier::runtime::profiler {

bool attached() noexcept { return false; }
std::uint64_t begin_range(const std::string&) { return 0; }
void end_range(std::uint64_t) {}
void mark(const std::string&) {}

}  // namespace ranvier::runtime::profiler
