#include "runtime/simulation/virtual_cores.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ranvier::runtime {

void VirtualCores::run(const Work& work, int threads, VirtualTime::Action done) {
  if (options_.cores == 0 || threads == 0) return time_->at(time_->now() + work.alone, std::move(done));
  advance();
  const auto alone = static_cast<double>(work.alone.count()), crowded = static_cast<double>(work.crowded.count());
  pieces_.push_back({alone, alone > 0 ? crowded / alone : 1, threads, std::move(done)});
  threads_ += threads;
  wait_for_next();
}

double VirtualCores::speed(const Running& piece) const noexcept {
  const auto& [cores, alone] = options_;
  const int busy = std::min(threads_, cores);
  const double crowd = cores > alone ? std::max(0.0, double(busy - alone) / (cores - alone)) : 0.0;
  return double(busy) / std::max(threads_, 1) / (1 + (piece.crowding - 1) * crowd);
}

void VirtualCores::advance() {
  const auto passed = static_cast<double>((time_->now() - advanced_).count());
  for (Running& piece : pieces_) piece.left -= passed * speed(piece);
  advanced_ = time_->now();
}

/// Schedules the end of the piece that ends first at the current speed; a start or end in between reschedules it.
void VirtualCores::wait_for_next() {
  if (pieces_.empty()) return;
  const auto until_end = [this](const Running& piece) { return std::max(0.0, piece.left) / speed(piece); };
  const auto first = std::min_element(pieces_.begin(), pieces_.end(), [&](const Running& a, const Running& b) {
    return until_end(a) < until_end(b);
  });
  const auto number = first - pieces_.begin();
  time_->at(time_->now() + Duration(std::llround(std::ceil(until_end(*first)))), [this, number, wait = ++waiting_] {
    if (wait != waiting_) return;
    advance();
    const Running over = std::move(pieces_[static_cast<std::size_t>(number)]);
    pieces_.erase(pieces_.begin() + number);
    threads_ -= over.threads;
    wait_for_next();
    over.done();
  });
}

}  // namespace ranvier::runtime
