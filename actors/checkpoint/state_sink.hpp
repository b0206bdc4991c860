// Interface of a destination for segments of training state: files, memory, another rank. Loop thread only.
#pragma once

#include "actors/optimizer/state_records.hpp"
#include "runtime/loop/event_loop.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace ranvier::actors {

/// A segment: elements [begin, begin + count) of a unit's array, written by this rank only.
struct StatePiece {
  std::size_t unit = 0;   ///< index in the stage
  std::size_t array = 0;  ///< index in state_array_names
  std::size_t begin = 0, count = 0;
  runtime::DType dtype = runtime::DType::f32;  ///< fp32, or the layers' precision for frozen units

  [[nodiscard]] std::size_t bytes() const noexcept { return count * runtime::size_of(dtype); }
  friend bool operator==(const StatePiece&, const StatePiece&) = default;
};

class StateSink {
 public:
  virtual ~StateSink() = default;

  /// Takes a segment. `number`: index in Snapshot::Plan. `blocks`: the segment's bytes, padded with zeros to blocks of
  /// 4096 bytes and aligned to them; `hash`: their XXH3. The memory stays until `done`, which is called once, during
  /// the call or later. Segments come in any order, several at a time, each once. After a failure, which a sink reports
  /// elsewhere, it still takes segments.
  virtual void put(const StatePiece& piece, std::size_t number, std::span<const std::byte> blocks,
                   std::uint64_t hash, runtime::Handler done) = 0;
};

}  // namespace ranvier::actors
