// What a rank says of itself to those who watch a run: of a size that does not depend on the run, so that rank 0 asks
// hundreds of them in one go. Plain data, sent as bytes.
#pragma once

#include "runtime/trace.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace ranvier::apps {

struct RankSummary {
  std::array<double, runtime::span_kinds> seconds{};  ///< that spans of each kind took since the start
  double bytes_intra = 0, bytes_inter = 0;            ///< sent to other ranks of this node, and of others
  std::uint64_t device_bytes = 0;                     ///< taken of the device's memory
  std::uint64_t resident_bytes = 0;                   ///< the most physical memory that the process has held
  std::int64_t step = 0;                              ///< that is being computed
  std::uint32_t spans = 0;                            ///< how many follow
  std::int32_t process = 0;                           ///< its number; 0: it is on another machine than rank 0
  std::array<char, 192> waits{};                      ///< what it does or waits for, ended by a zero

  /// Of a text that is too long its first words, and an ellipsis.
  void set_waits(std::string_view text);
};

/// A piece of the rank's time; 16 bytes, as a step of hundreds of ranks has thousands of them.
struct SummarySpan {
  float begin_ms = 0, length_ms = 0;  ///< since the step that is shown began on rank 0
  std::int32_t index = -1;            ///< microbatch or unit; -1: none
  std::uint8_t kind = 0, lane = 0;    ///< runtime::SpanKind, runtime::Trace::Lane
  std::uint16_t unused = 0;
};

/// Spans that a rank sends at most: about 16 thousand of all ranks together. An answer stays below 4 KiB with MPI's
/// header: MPI has copied it when the send returns, and a run that ends leaves no message that uses its memory.
[[nodiscard]] constexpr std::size_t summary_spans(int ranks) {
  constexpr std::size_t all = 1 << 14, most = 220, least = 16;
  const std::size_t share = all / static_cast<std::size_t>(ranks > 0 ? ranks : 1);
  return share > most ? most : share < least ? least : share;
}

/// All ranks at one time, as rank 0 heard it.
struct RankSnapshot {
  struct Rank {
    RankSummary summary;
    std::vector<SummarySpan> spans;
  };
  std::int64_t step = 0;  ///< the last that was done
  double step_ms = 0;     ///< what it took, of which spans are a part
  double at_seconds = 0;  ///< since the training began
  std::vector<Rank> ranks;
};

}  // namespace ranvier::apps
