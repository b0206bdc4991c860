#include "runtime/host/process_memory.hpp"

#include <fstream>
#include <string>

namespace ranvier::runtime {

std::size_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key; std::getline(status, key)) {
    std::size_t kibibytes = 0;
    if (key == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

}  // namespace ranvier::runtime
