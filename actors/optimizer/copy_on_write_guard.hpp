// Somebody who copies states that count while the next step is under way (checkpoint/snapshot.hpp), and must have a
// bucket before it changes. Loop thread only.
#pragma once

#include "actors/gradients/chunk_schedule.hpp"
#include "runtime/event_loop.hpp"

#include <cstddef>

namespace ranvier::actors {

class CopyOnWriteGuard {
 public:
  virtual ~CopyOnWriteGuard() = default;

  /// Calls `go` once this copy of the bucket's states (StateRecords::number_of) may change: at once, or as soon as it
  /// is copied.
  virtual void before_change(const ChunkSchedule::Bucket& bucket, std::size_t copy, runtime::Handler go) = 0;
};

}  // namespace ranvier::actors
