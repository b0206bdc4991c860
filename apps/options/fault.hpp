// Fault injection by RANVIER_FAULT=rank:step:WHAT (apps/guides/trouble.md). Callable from any thread.
#pragma once

#include "actors/rank/trainer_options.hpp"

#include <cstdint>
#include <optional>

namespace ranvier::apps {

/// Fault of a training step: WHAT is throw|fp16-overflow|nan|loss-spike|flip-ARRAY|hang|slow[:TIMES]|stream|file. None
/// if no fault or a ReadFault is requested. Throws ErrorCode::usage for any other text.
[[nodiscard]] std::optional<actors::TrainerOptions::Fault> fault_from_environment();

/// Fault of a read before training: WHAT is load|slow-load[:TIMES]|data, and "step" is the number of the read.
struct ReadFault {
  enum class Kind {
    load,       ///< a read of weights or states never returns
    slow_load,  ///< from this read on, each takes `times` timeouts and reports progress
    data,       ///< a read of data never returns
  };
  int rank = 0;
  std::int64_t piece = 1;  ///< number of the read of weights or states, from 1
  Kind kind = Kind::load;
  double times = 2;
};
/// None if no fault or a fault of a training step is requested. Throws ErrorCode::usage for invalid text.
[[nodiscard]] std::optional<ReadFault> read_fault_from_environment();

}  // namespace ranvier::apps
