// Flags that reduce a job's memory and are not set yet: one list for the fit check (fit.hpp) and for the check of host
// memory (host_memory.hpp). Pure functions, callable from any thread.
#pragma once

#include "actors/rank/trainer_options.hpp"
#include "runtime/device/arena.hpp"

#include <functional>
#include <string>
#include <vector>

namespace ranvier::apps {

struct Remedy {
  struct Flag {
    std::string name, value;
  };
  std::vector<Flag> flags;  ///< name and value: "--recompute", "auto"
  std::string words;        ///< phrase in messages: "--recompute auto", "a smaller --microbatch-size"
  /// Kinds of memory that it reduces.
  std::vector<runtime::MemoryKind> kinds;
  /// Reduces the memory, or moves it to host memory or files.
  enum class Way { less, to_host, to_files } way = Way::less;
  /// Applies it to a job's options; null if it cannot be planned.
  std::function<void(actors::TrainerOptions&)> make = nullptr;
};

/// Remedies for these options, smaller changes first. `part`: only a part of the model is trained, so frozen parameters
/// are sharded first (PaRO §3.2: parameters, then optimizer states, then gradients).
[[nodiscard]] std::vector<Remedy> remedies_of(const actors::TrainerOptions& options, bool part);

}  // namespace ranvier::apps
