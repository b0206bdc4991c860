// Memory of this process, as reported by the operating system. Callable from any thread.
#pragma once

#include <cstddef>

namespace ranvier::runtime {

/// Peak physical memory of the process, libraries and mapped files included; 0 if unknown.
[[nodiscard]] std::size_t peak_resident_bytes();

}  // namespace ranvier::runtime
