// Where copies of training state go, piece by piece: files, memory, another rank. Loop thread only.
#pragma once

#include "actors/optimizer/state_records.hpp"
#include "runtime/event_loop.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace ranvier::actors {

/// Elements [begin, begin + count) of an array of a unit, which this rank is the only one to write.
struct StatePiece {
  std::size_t unit = 0;   ///< of the stage
  std::size_t array = 0;  ///< of state_array_names
  std::size_t begin = 0, count = 0;
  runtime::DType dtype =
      runtime::DType::f32;  ///< of the elements: weights of a frozen unit are as layers read them

  [[nodiscard]] std::size_t bytes() const noexcept { return count * runtime::size_of(dtype); }
  friend bool operator==(const StatePiece&, const StatePiece&) = default;
};

class StateSink {
 public:
  virtual ~StateSink() = default;

  /// `number`: of the piece in Snapshot::Plan. `blocks` are whole blocks of 4096 bytes in memory that begins on
  /// one, with the piece's bytes and zeros behind them; `hash` is their XXH3. They stay until `done`, which is called
  /// once, later or at once. Pieces come in any order, several at a time, and none twice. A sink that fails says so
  /// elsewhere, and still takes what comes.
  virtual void put(const StatePiece& piece, std::size_t number, std::span<const std::byte> blocks,
                   std::uint64_t hash, runtime::Handler done) = 0;
};

}  // namespace ranvier::actors
