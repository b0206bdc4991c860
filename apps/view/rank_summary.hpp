// A rank's report for the live page, sent to rank 0 as plain bytes. Its size is bounded, so that rank 0 can poll
// hundreds of ranks at once.
#pragma once

#include "runtime/trace/trace.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace ranvier::apps {

struct RankSummary {
  std::array<double, runtime::span_kinds> seconds{};  ///< time per kind of span since the start
  double bytes_intra = 0, bytes_inter = 0;            ///< bytes sent within the node, and to other nodes
  std::uint64_t device_bytes = 0;                     ///< allocated device memory
  std::uint64_t resident_bytes = 0;                   ///< peak physical memory of the process
  std::int64_t step = 0;                              ///< current step
  std::uint32_t spans = 0;                            ///< number of spans that follow
  std::int32_t process = 0;                           ///< process id; 0: not on rank 0's machine
  std::array<char, 192> waits{};                      ///< current work or wait, zero-terminated

  /// Cuts a text that is too long and adds an ellipsis.
  void set_waits(std::string_view text);
};

inline void RankSummary::set_waits(std::string_view text) {
  constexpr std::string_view ellipsis = " …";
  waits.fill('\0');
  if (text.size() < waits.size()) {
    std::ranges::copy(text, waits.begin());
    return;
  }
  const std::size_t space = text.rfind(' ', waits.size() - 1 - ellipsis.size());
  const std::size_t kept = space == std::string_view::npos ? 0 : space;
  std::ranges::copy(ellipsis, std::ranges::copy(text.substr(0, kept), waits.begin()).out);
}

/// A span; 16 bytes, because a step of hundreds of ranks has thousands.
struct SummarySpan {
  float begin_ms = 0, length_ms = 0;  ///< relative to rank 0's start of the step
  std::int32_t index = -1;            ///< microbatch or unit; -1: none
  std::uint8_t kind = 0, lane = 0;    ///< runtime::SpanKind, runtime::Trace::Lane
  std::uint16_t unused = 0;
};

/// Maximum number of spans per rank: about 16,384 over all ranks. A reply stays below 4 KiB with MPI's header, so MPI
/// copies it eagerly, and a run that ends leaves no pending send.
[[nodiscard]] constexpr std::size_t summary_spans(int ranks) {
  constexpr std::size_t all = 1 << 14, most = 220, least = 16;
  const std::size_t share = all / static_cast<std::size_t>(ranks > 0 ? ranks : 1);
  return share > most ? most : share < least ? least : share;
}

/// Reports of all ranks, collected by rank 0.
struct RankSnapshot {
  struct Rank {
    RankSummary summary;
    std::vector<SummarySpan> spans;
  };
  std::int64_t step = 0;  ///< last finished step
  double step_ms = 0;     ///< duration of `step`, which contains all spans
  double at_seconds = 0;  ///< time since the start of training
  std::vector<Rank> ranks = {};
};

}  // namespace ranvier::apps
