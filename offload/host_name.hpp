// Host name, which distinguishes folders and locks of jobs. Any thread.
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace ranvier::offload {

[[nodiscard]] inline std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

}  // namespace ranvier::offload
