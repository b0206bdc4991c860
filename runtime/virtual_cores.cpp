#include "runtime/virtual_cores.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ranvier::runtime {

void VirtualCores::run(Duration work, int threads, VirtualTime::Action done) {
  if (options_.cores == 0 || threads == 0) return time_->at(time_->now() + work, std::move(done));
  advance();
  pieces_.push_back({served_ + static_cast<double>(work.count()), made_++, threads, std::move(done)});
  std::push_heap(pieces_.begin(), pieces_.end());
  threads_ += threads;
  wait_for_next();
}

double VirtualCores::speed() const noexcept {
  const auto& [cores, crowding, alone] = options_;
  const int busy = std::min(threads_, cores);
  const double crowd = cores > alone ? std::max(0.0, double(busy - alone) / (cores - alone)) : 0.0;
  return double(busy) / std::max(threads_, 1) / (1 + (crowding - 1) * crowd);
}

void VirtualCores::advance() {
  served_ += static_cast<double>((time_->now() - advanced_).count()) * speed();
  advanced_ = time_->now();
}

/// The end of the piece that ends first, as it looks now; whoever begins or ends meanwhile looks again.
void VirtualCores::wait_for_next() {
  if (pieces_.empty()) return;
  const double left = std::max(0.0, pieces_.front().end - served_) / speed();
  time_->at(time_->now() + Duration(std::llround(std::ceil(left))), [this, wait = ++waiting_] {
    if (wait != waiting_) return;
    advance();
    std::pop_heap(pieces_.begin(), pieces_.end());
    const Piece over = std::move(pieces_.back());
    pieces_.pop_back();
    threads_ -= over.threads;
    wait_for_next();
    over.done();
  });
}

}  // namespace ranvier::runtime
