// Named spans of one rank in a ring buffer, for a picture of who waited for whom: written as Chrome/Perfetto
// JSON on request, and its end shown by the watchdog. Also adds up how long each kind of span took, which is
// where the shares at the end of a run come from. Any thread; recording takes a short lock.
//
// An attached profiler shows the same names (profiler_ranges.hpp): a range from begin() to end(), which is where the
// work was queued, and a mark at the end of what add() records.
#pragma once

#include "runtime/clock.hpp"
#include "runtime/stream.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace ranvier::runtime {

enum class SpanKind : std::uint8_t {
  forward,
  backward,
  weights,  ///< gradients of weights, where they wait; part of backward where they do not
  optimizer,
  gather,
  reduce,
  send,
  receive,
  wait,
  load,        ///< bytes on their way from or to a tier's files
  step,        ///< all of one, until all ranks have agreed on it
  validation,  ///< all of one
  sampling,    ///< all of a sample of text
  check,       ///< all of a comparison of copies of states
  other
};
inline constexpr int span_kinds = 15;
[[nodiscard]] const char* to_string(SpanKind kind) noexcept;

class Trace {
 public:
  /// Where a span is drawn: one row per lane.
  enum class Lane : std::uint8_t { compute, communicate, loop, files, steps };

  struct Span {
    SpanKind kind = SpanKind::other;
    Lane lane = Lane::loop;
    std::int32_t index = -1;  ///< microbatch or unit, step on the lane of steps; -1: none
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
    // What was under way when it was recorded:
    std::int32_t step = 0;               ///< 0: none
    SpanKind activity = SpanKind::step;  ///< or validation, sampling or check, which follow a step
  };

  /// Keeps the last `capacity` spans; times count from the construction. The clock outlives it.
  Trace(int rank, const Clock& clock, std::size_t capacity = 1 << 16);

  /// By the trace's clock, as add() takes it. Any thread.
  [[nodiscard]] Duration now() const { return clock_->now(); }

  /// Spans that are recorded from here on belong to that step, or to what follows it.
  void set_activity(SpanKind activity, std::int64_t step);

  /// The last of those steps. 0: none.
  [[nodiscard]] std::int64_t step() const;

  void add(SpanKind kind, Lane lane, Duration begin, Duration end, int index = -1);

  /// Records the time between here and the matching end() as the stream sees it; end() matches the last
  /// begin() with the same stream, kind and index. The trace outlives the stream's work.
  void begin(StreamView stream, SpanKind kind, int index = -1);
  void end(StreamView stream, SpanKind kind, Lane lane, int index = -1);

  /// Seconds since the start or the last restart() that spans of `kind` cover, which are taken in the order
  /// of their ends: time that several of them share counts once.
  [[nodiscard]] double seconds(SpanKind kind) const;
  /// Seconds, likewise, that spans on the lane of files cover while nothing between a begin() and its end() runs: what
  /// the rank could have computed had the files been faster.
  [[nodiscard]] double seconds_of_files_alone() const;
  /// Times count from here, and what was recorded is gone. Ranks that call it together share a time axis.
  void restart();

  [[nodiscard]] std::vector<Span> spans() const;
  /// Of those that overlap [from_ns, to_ns), which count from the start: the `most` longest, by their beginnings.
  [[nodiscard]] std::vector<Span> longest_between(std::int64_t from_ns, std::int64_t to_ns, std::size_t most) const;
  /// Nanoseconds since the start, as spans count them.
  [[nodiscard]] std::int64_t elapsed_ns() const;
  /// One line per span, oldest first, the last `count` of them.
  [[nodiscard]] std::string tail(std::size_t count) const;

  /// The `newest` spans of this rank as elements of Chrome's "traceEvents" array, without the brackets; to be joined
  /// with those of other ranks.
  [[nodiscard]] std::string chrome_events(std::size_t newest = std::numeric_limits<std::size_t>::max()) const;

 private:
  /// A begin() whose end() was not called yet.
  struct Open {
    StreamView stream;
    SpanKind kind;
    int index;
    std::shared_ptr<Duration> began;  // written on the stream
    std::uint64_t profiler_range;
  };

  void record(SpanKind kind, Lane lane, Duration begin, Duration end, int index);
  /// The part of that time, whose end is about now, in which something on the lane of compute ran.
  [[nodiscard]] std::int64_t computed_ns(std::int64_t from_ns, std::int64_t to_ns) const;

  static constexpr std::int64_t not_running = std::numeric_limits<std::int64_t>::max();

  int rank_;
  const Clock* clock_;
  Duration start_;
  mutable std::mutex mutex_;
  std::int32_t step_ = 0;
  SpanKind activity_ = SpanKind::step;
  std::vector<Span> ring_;
  std::size_t capacity_;
  std::size_t next_ = 0;  // where the oldest span is once the ring is full
  std::array<double, span_kinds> seconds_{};
  std::array<std::int64_t, span_kinds> covered_until_ns_{};
  std::vector<Open> open_;
  int running_ = 0;                           // spans that streams have begun and not ended
  std::int64_t runs_since_ns_ = not_running;  // some of them
  std::int64_t files_until_ns_ = 0;
  double files_alone_seconds_ = 0;
};

}  // namespace ranvier::runtime
