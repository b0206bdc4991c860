// The flags that say where states live, as a part of ranvier-train's: names that place all of them at once, a flag
// for each, and what goes through them on the way. Declared into the program's table, resolved after its parse().
// One thread at a time.
#pragma once

#include "actors/states/tier_options.hpp"
#include "runtime/options.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace ranvier::apps {

/// Where states live; see actors/states/tier_options.hpp.
struct TierOptions {
  std::string offload = "none";  ///< a name for where all of them live, but for what was said of some
  actors::TierKind optimizer = actors::TierKind::device;
  actors::TierKind parameters = actors::TierKind::device;
  actors::TierKind gradients = actors::TierKind::device;
  actors::TierKind activations = actors::TierKind::device;
  std::string nvme;                        ///< directories with commas between them; empty: none
  bool checksums = false;                  ///< of what is read back from there
  int bucket_elements = 16 * 1024 * 1024;  ///< most of a bucket
  int chunk_buckets = 2;                   ///< of a reduction; 0: all
  actors::StepPlace step = actors::StepPlace::device;
  actors::Commit commit = actors::Commit::wait;
};

/// Adds the concern "Memory tiers", bound to `tiers`, which outlives the table.
void declare_tiers(runtime::OptionTable& table, TierOptions& tiers);

/// `checkpoints`: layers are recomputed, so that there are some; without, --offload places none. Throws
/// ErrorCode::usage where a tier lacks what it needs, or something given has no use.
void resolve_tiers(TierOptions& tiers, bool checkpoints, const runtime::OptionTable& table);

/// The directories of --nvme.
[[nodiscard]] std::vector<std::filesystem::path> nvme_directories(const TierOptions& options);

}  // namespace ranvier::apps
