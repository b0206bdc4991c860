#include "actors/checkpoint/gated_sink.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace ranvier::actors {

void GatedSink::open(StateSink* sink, double bytes_per_second) {
  shut_ = false;
  sink_ = sink;
  bytes_per_second_ = bytes_per_second;
  next_ = loop_->now();
  pass_on();
}

void GatedSink::hurry() {
  bytes_per_second_ = 0;
  next_ = {};
  pass_on();
}

void GatedSink::put(const StatePiece& piece, std::size_t number, std::span<const std::byte> blocks,
                    std::uint64_t hash, runtime::Handler done) {
  kept_.push_back({blocks.size(), [=, this, &piece, done = std::move(done)] {
                     sink_ == nullptr ? done() : sink_->put(piece, number, blocks, hash, done);
                   }});
  pass_on();
}

void GatedSink::pass_on() {
  if (shut_) return;
  while (!kept_.empty() && next_ <= loop_->now()) {
    const Kept kept = std::move(kept_.front());
    kept_.pop_front();
    if (bytes_per_second_ > 0) {
      const std::chrono::duration<double> takes(static_cast<double>(kept.bytes) / bytes_per_second_);
      next_ = std::max(next_, loop_->now()) + std::chrono::duration_cast<runtime::Duration>(takes);
    }
    kept.put();
  }
  if (kept_.empty() || (timer_ && *timer_ <= next_)) return;
  timer_ = next_;
  pause_ends_ = next_.count();
  const auto over = [this, at = next_] {
    if (timer_ == at) timer_.reset();
    pass_on();
  };
  loop_->after(next_ - loop_->now(), loop_->ends({.part = "checkpoint", .text = "the next piece"}, *this, over));
}

std::uint64_t GatedSink::done() const noexcept {
  const auto reached = std::min(loop_->now(), runtime::Duration(pause_ends_));
  return static_cast<std::uint64_t>(
      std::max<std::int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(reached).count(), 0));
}

}  // namespace ranvier::actors
