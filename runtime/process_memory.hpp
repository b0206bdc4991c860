// What the operating system says about this process's memory. Any thread.
#pragma once

#include <cstddef>

namespace ranvier::runtime {

/// The most physical memory that the process has held so far, libraries and mapped files included; 0 where the
/// system does not say.
[[nodiscard]] std::size_t peak_resident_bytes();

}  // namespace ranvier::runtime
