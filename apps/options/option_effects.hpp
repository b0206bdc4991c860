// The table of ranvier-train's options, and the effect of a changed option on a resumed run: same bits, rounding, or
// other results. Pure functions, callable from any thread.
#pragma once

#include "apps/program/options.hpp"

#include <boost/json/object.hpp>

#include <string>
#include <vector>

namespace ranvier::apps {

using Effect = OptionEffect;

/// Largest value of flags for sizes and counts. Keeps products of two of them inside 64 bits.
inline constexpr int max_count = 1 << 30;

/// An option of ranvier-train. The effect comes first, so that no declaration omits it.
struct TrainFlag {
  OptionEffect effect;
  Option option;
};

class TrainTable : public OptionTable {
 public:
  void add(TrainFlag flag, OptionTraits traits = {});
};

/// Name among resolved options of the fingerprint of --data and --tokenizer (data_content()). Their paths may change,
/// their content may not.
inline constexpr const char* content_option = "data's content";
/// A checkpoint without this option counts as "none".
inline constexpr const char* special_tokens_option = "special-tokens";
/// Name among resolved options of the properties of a model that no flag sets (models::computation_of()).
inline constexpr const char* computation_option = "model's computation";

/// Options for a checkpoint's manifest, flag → value, without those whose effect is `run`.
[[nodiscard]] boost::json::object options_to_save(const std::vector<ResolvedOption>& options);

struct ChangedOption {
  std::string flag;
  std::string before, now;  ///< values of the checkpoint and of this run; empty: not given
  OptionEffect effect = OptionEffect::decides;
};

/// Options in both whose values differ, in the order of `options`. An option that a checkpoint of another version lacks
/// is skipped, except special_tokens_option and types of states. `learns_positions`: models::learns_positions() of the
/// model. Without learned positions, the sequence length does not change the sizes of states.
[[nodiscard]] std::vector<ChangedOption> changed_options(const boost::json::object& saved,
                                                         const std::vector<ResolvedOption>& options,
                                                         bool learns_positions);

/// Whether the optimizer's moments start at zero: another update rule, or SGD with momentum instead of without, or the
/// reverse.
[[nodiscard]] bool are_moments_new(const std::vector<ChangedOption>& changes,
                                   const std::vector<ResolvedOption>& options);

/// Throws ErrorCode::usage, with all differences and the remedy, if a change alters results and `meant` (--resume-with)
/// does not name it. Returns lines about the other changes for the startup output.
[[nodiscard]] std::vector<std::string> accept_changes(const std::vector<ChangedOption>& changes,
                                                      const std::vector<std::string>& meant,
                                                      const std::string& checkpoint);

}  // namespace ranvier::apps
