// What makes a job smaller and is not done yet: the one list of flags that advice is taken from, for a dry run's
// verdict (fit.hpp) and for a machine without the memory that its ranks plan (host_memory.hpp). Pure; any thread.
#pragma once

#include "actors/rank/trainer_options.hpp"
#include "runtime/arena.hpp"

#include <functional>
#include <string>
#include <vector>

namespace ranvier::apps {

struct Remedy {
  struct Flag {
    std::string name, value;
  };
  std::vector<Flag> flags;  ///< as they would be given: "--recompute", "auto"
  std::string words;        ///< as a sentence has them: "--recompute auto", "a smaller --microbatch-size"
  /// Of what it makes less.
  std::vector<runtime::MemoryKind> kinds;
  /// What becomes of that: there is less of it, or it goes to the host's memory or to files.
  enum class Way { less, to_host, to_files } way = Way::less;
  /// Does it to the options of a job; null where that takes more than options of actors, such as another model.
  std::function<void(actors::TrainerOptions&)> make = nullptr;
};

/// For a job with these options; those that change less come first. `part`: a part of the model is trained, so that
/// most of what can be shared out are frozen parameters (PaRO §3.2: parameters first, then optimizer states, then
/// gradients).
[[nodiscard]] std::vector<Remedy> remedies_of(const actors::TrainerOptions& options, bool part);

}  // namespace ranvier::apps
