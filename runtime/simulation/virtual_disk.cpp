#include "runtime/simulation/virtual_disk.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ranvier::runtime {

void VirtualDisk::read(std::size_t bytes, VirtualTime::Action done) {
  read_ += static_cast<double>(bytes);
  transfer(reads_until_, bytes, rates_.read_bytes_per_second, std::move(done));
}

void VirtualDisk::write(std::size_t bytes, VirtualTime::Action done) {
  written_ += static_cast<double>(bytes);
  transfer(writes_until_, bytes, rates_.write_bytes_per_second, std::move(done));
}

void VirtualDisk::transfer(Duration& free, std::size_t bytes, double rate, VirtualTime::Action done) {
  const auto duration = [](double seconds) { return Duration(std::llround(seconds * 1e9)); };
  const double seconds = rate > 0 ? static_cast<double>(bytes) / rate : 0;
  free = std::max(free, time_->now()) + duration(seconds);
  time_->at(free + duration(rates_.latency_seconds), std::move(done));
}

}  // namespace ranvier::runtime
