// Keeps pieces until the sink that they go to is open, then passes them on in order, no faster than it was told. Its
// pauses are work of the rank's own, so that a step which waits for one is not taken for a rank that hangs. Loop thread
// only.
#pragma once

#include "actors/checkpoint/state_sink.hpp"
#include "runtime/event_loop.hpp"

#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>

namespace ranvier::actors {

class GatedSink final : public StateSink, private runtime::ProgressSource {
 public:
  /// The loop outlives it.
  explicit GatedSink(runtime::EventLoop& loop) : loop_(&loop) {}

  /// Keeps what comes, a snapshot's staging at most.
  void shut() { gate_ = Gate::shut; }
  /// Passes on what came and comes; so many bytes a second, 0: as fast as they come. `sink` stays until shut().
  void open(StateSink& sink, double bytes_per_second);
  /// Passes on what it has put off, and the rest as fast as it comes.
  void hurry();
  /// Forgets what came and comes.
  void drop();

  void put(const StatePiece& piece, std::size_t number, std::span<const std::byte> blocks, std::uint64_t hash,
           runtime::Handler done) override;

 private:
  [[nodiscard]] std::string place() const override { return "as fast as --checkpoint-rate lets it"; }
  /// Moves as time does, until the pause is over.
  [[nodiscard]] std::uint64_t done() const noexcept override;

  enum class Gate { shut, open, dropping };
  struct Kept {
    const StatePiece* piece = nullptr;
    std::size_t number = 0;
    std::span<const std::byte> blocks;
    std::uint64_t hash = 0;
    runtime::Handler done;
  };
  /// Passes on what may go by now.
  void pass_on();

  runtime::EventLoop* loop_;
  Gate gate_ = Gate::shut;
  StateSink* sink_ = nullptr;
  double bytes_per_second_ = 0;
  runtime::Duration next_{};                // when the next piece may go
  std::optional<runtime::Duration> timer_;  // when pass_on() is called anyway
  std::atomic<runtime::Duration::rep> pause_ends_ = 0;
  std::deque<Kept> kept_;
};

}  // namespace ranvier::actors
