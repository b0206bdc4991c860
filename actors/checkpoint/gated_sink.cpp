#include "actors/checkpoint/gated_sink.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace ranvier::actors {

void GatedSink::open(StateSink& sink, double bytes_per_second) {
  gate_ = Gate::open;
  sink_ = &sink;
  bytes_per_second_ = bytes_per_second;
  next_ = loop_->now();
  pass_on();
}

void GatedSink::hurry() {
  bytes_per_second_ = 0;
  next_ = {};
  pass_on();
}

void GatedSink::drop() {
  gate_ = Gate::dropping;
  for (const Kept& kept : std::exchange(kept_, {})) kept.done();
}

void GatedSink::put(const StatePiece& piece, std::size_t number, std::span<const std::byte> blocks,
                    std::uint64_t hash, runtime::Handler done) {
  if (gate_ == Gate::dropping) return done();
  kept_.push_back({&piece, number, blocks, hash, std::move(done)});
  pass_on();
}

void GatedSink::pass_on() {
  if (gate_ != Gate::open) return;
  while (!kept_.empty() && next_ <= loop_->now()) {
    Kept kept = std::move(kept_.front());
    kept_.pop_front();
    if (bytes_per_second_ > 0) {
      const std::chrono::duration<double> takes(static_cast<double>(kept.blocks.size()) / bytes_per_second_);
      next_ = std::max(next_, loop_->now()) + std::chrono::duration_cast<runtime::Duration>(takes);
    }
    sink_->put(*kept.piece, kept.number, kept.blocks, kept.hash, std::move(kept.done));
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
