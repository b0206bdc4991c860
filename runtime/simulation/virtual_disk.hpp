// Files of one node in virtual time: one read and one write at a time, in the order of the calls. One thread.
#pragma once

#include "runtime/simulation/virtual_time.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace ranvier::runtime {

class VirtualDisk {
 public:
  struct Rates {
    double read_bytes_per_second = 0, write_bytes_per_second = 0;  ///< 0: unlimited
    double latency_seconds = 0;
  };

  /// `time` outlives it.
  VirtualDisk(VirtualTime& time, const Rates& rates) : time_(&time), rates_(rates) {}

  void read(std::size_t bytes, VirtualTime::Action done) {
    transfer(reads_until_, bytes, rates_.read_bytes_per_second, std::move(done));
  }
  void write(std::size_t bytes, VirtualTime::Action done) {
    transfer(writes_until_, bytes, rates_.write_bytes_per_second, std::move(done));
  }

 private:
  void transfer(Duration& free, std::size_t bytes, double rate, VirtualTime::Action done) {
    free = std::max(free, time_->now()) + duration(rate > 0 ? static_cast<double>(bytes) / rate : 0);
    time_->at(free + duration(rates_.latency_seconds), std::move(done));
  }

  VirtualTime* time_;
  Rates rates_;
  Duration reads_until_{}, writes_until_{};
};

}  // namespace ranvier::runtime
