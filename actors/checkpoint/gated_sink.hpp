// Holds segments until their sink is open, then passes them on in order at a limited rate. Its pauses are registered as
// local work, so that the watchdog does not report them as hangs. Loop thread only.
#pragma once

#include "actors/checkpoint/checkpoint_target.hpp"
#include "runtime/loop/event_loop.hpp"

#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>

namespace ranvier::actors {

class GatedSink final : public StateSink, private runtime::ProgressSource {
 public:
  /// The loop must outlive this object.
  explicit GatedSink(runtime::EventLoop& loop) : loop_(&loop) {}

  /// Holds following segments, at most a snapshot's staging.
  void shut() { shut_ = true; }
  /// Passes on held and following segments to `sink`, which must stay until shut(); null: discards them.
  /// `bytes_per_second` 0: no limit.
  void open(StateSink* sink, double bytes_per_second);
  /// Removes the rate limit.
  void hurry();

  void put(const StatePiece& piece, std::size_t number, std::span<const std::byte> blocks, std::uint64_t hash,
           runtime::Handler done) override;

 private:
  [[nodiscard]] std::string place() const override { return "as fast as `checkpoint_rate` lets it"; }
  /// Progress counter: grows with time until the pause is over.
  [[nodiscard]] std::uint64_t done() const noexcept override;

  struct Kept {
    std::size_t bytes = 0;
    runtime::Handler put;
  };
  /// Passes on segments that the rate allows by now.
  void pass_on();

  runtime::EventLoop* loop_;
  bool shut_ = true;
  StateSink* sink_ = nullptr;
  double bytes_per_second_ = 0;
  runtime::Duration next_{};                // earliest time of the next segment
  std::optional<runtime::Duration> timer_;  // time of the next scheduled pass_on()
  std::atomic<runtime::Duration::rep> pause_ends_ = 0;
  std::deque<Kept> kept_;
};

}  // namespace ranvier::actors
