// Makes a run fail on purpose, to see how it does: RANVIER_FAULT=rank:step:WHAT; see apps/guides/trouble.md.
#pragma once

#include "actors/rank/trainer_options.hpp"

#include <cstdint>
#include <optional>

namespace ranvier::apps {

/// In training: WHAT is throw|fp16-overflow|nan|loss-spike|flip-ARRAY|hang|slow[:TIMES]|stream|file. None: nothing is
/// asked for, or what comes before. Throws ErrorCode::usage for what is neither.
[[nodiscard]] std::optional<actors::TrainerOptions::Fault> fault_from_environment();

/// With what a rank reads before it trains, where WHAT is load|slow-load[:TIMES]|data.
struct ReadFault {
  enum class Kind {
    load,       ///< a read of weights or states does not come back
    slow_load,  ///< from that piece on each takes `times` timeouts, and moves meanwhile
    data,       ///< a read of data does not come back
  };
  int rank = 0;
  std::int64_t piece = 1;  ///< of weights or states
  Kind kind = Kind::load;
  double times = 2;
};
/// None: nothing is asked for, or what comes later. Throws likewise.
[[nodiscard]] std::optional<ReadFault> read_fault_from_environment();

}  // namespace ranvier::apps
