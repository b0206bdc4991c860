// Trace: named spans of one rank in a ring buffer, written as Chrome/Perfetto JSON on request. The watchdog prints its
// tail. It also adds up the time per kind of span, for the shares in the final summary. Callable from any thread;
// recording takes a short lock.
//
// An attached profiler shows the same names (profiler_ranges.hpp): a range where the work was queued, from begin() to
// end(), and a mark at the end of each add().
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/device/stream.hpp"
#include "runtime/files/atomic_file.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace ranvier::runtime {

enum class SpanKind : std::uint8_t {
  forward,
  backward,
  weights,  ///< deferred weight gradients; otherwise part of backward
  optimizer,
  gather,
  reduce,
  send,
  receive,
  wait,
  load,        ///< transfer from or to a tier's files
  step,        ///< complete step, until all ranks have agreed on its result
  validation,  ///< complete validation
  sampling,    ///< complete sample of text
  check,       ///< complete comparison of replicas of states
  other
};
inline constexpr int span_kinds = 15;
[[nodiscard]] const char* to_string(SpanKind kind) noexcept;

class Trace {
 public:
  /// Row in which a span is drawn.
  enum class Lane : std::uint8_t { compute, communicate, loop, files, steps };

  struct Span {
    SpanKind kind = SpanKind::other;
    Lane lane = Lane::loop;
    std::int32_t index = -1;  ///< microbatch or unit; step on the lane of steps; -1: none
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
    // Activity when it was recorded:
    std::int32_t step = 0;               ///< 0: none
    SpanKind activity = SpanKind::step;  ///< step, or validation, sampling or check after a step
  };

  /// Stores the last `capacity` spans; times count from the construction. The clock outlives it.
  Trace(int rank, const Clock& clock, std::size_t capacity = 1 << 16);

  /// Time of the trace's clock, for add(). Callable from any thread.
  [[nodiscard]] Duration now() const { return clock_->now(); }

  /// Sets the step or later activity of all spans recorded from now on.
  void set_activity(SpanKind activity, std::int64_t step);

  /// Last step of set_activity(); 0: none.
  [[nodiscard]] std::int64_t step() const;

  void add(SpanKind kind, Lane lane, Duration begin, Duration end, int index = -1);

  /// Records the time between begin() and end() on the stream. end() matches the last begin() with the same stream,
  /// kind and index. The trace outlives the stream's work.
  void begin(StreamView stream, SpanKind kind, int index = -1);
  void end(StreamView stream, SpanKind kind, Lane lane, int index = -1);

  /// Seconds covered by spans of `kind` since the start or the last restart(). Overlaps count once; spans are taken
  /// in the order of their ends.
  [[nodiscard]] double seconds(SpanKind kind) const;
  /// Seconds covered by spans on the lane of files while no begin()–end() span runs: the time that the rank lost to
  /// slow files.
  [[nodiscard]] double seconds_of_files_alone() const;
  /// Removes all records and counts time from now. Ranks that call it at the same time share a time axis.
  void restart();

  [[nodiscard]] std::vector<Span> spans() const;
  /// The `most` longest spans that overlap [from_ns, to_ns), sorted by start. Times count from the start of the
  /// trace.
  [[nodiscard]] std::vector<Span> longest_between(std::int64_t from_ns, std::int64_t to_ns, std::size_t most) const;
  /// Nanoseconds since the start, as in spans.
  [[nodiscard]] std::int64_t elapsed_ns() const;
  /// The last `count` spans as text, one line each, oldest first.
  [[nodiscard]] std::string tail(std::size_t count) const;

  /// The `newest` spans of this rank as elements of Chrome's "traceEvents" array, without the brackets, to be joined
  /// with other ranks' elements.
  [[nodiscard]] std::string chrome_events(std::size_t newest = std::numeric_limits<std::size_t>::max()) const;

 private:
  /// Span whose end() was not called yet.
  struct Open {
    StreamView stream;
    SpanKind kind;
    int index;
    std::shared_ptr<Duration> began;  // set on the stream
    std::uint64_t profiler_range;
  };

  void record(SpanKind kind, Lane lane, Duration begin, Duration end, int index);
  /// Part of this time, which ends about now, in which work on the lane of compute ran.
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
  std::size_t next_ = 0;  // index of the oldest span once the ring is full
  std::array<double, span_kinds> seconds_{};
  std::array<std::int64_t, span_kinds> covered_until_ns_{};
  std::vector<Open> open_;
  int running_ = 0;                           // spans that have begun on streams and not ended
  std::int64_t runs_since_ns_ = not_running;  // start of the time in which running_ > 0
  std::int64_t files_until_ns_ = 0;
  double files_alone_seconds_ = 0;
};

/// Writes one file for Chrome or Perfetto from `events`, one text per rank, without empty ones. Throws ErrorCode::io;
/// `retry` as for AtomicFile. Any thread.
void write_trace_file(const std::filesystem::path& path, std::span<const std::string> events,
                      AtomicFile::Retry retry = nullptr);

}  // namespace ranvier::runtime
