// What another value of an option means for a training that goes on: nothing to its bits, rounding, or another
// training. Every option of ranvier-train has an entry. Pure; any thread.
#pragma once

#include "runtime/options.hpp"

#include <boost/json/object.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace ranvier::apps {

enum class OptionEffect {
  shape,     ///< the states have other sizes: no checkpoint of another value can be loaded
  decides,   ///< another training
  rounding,  ///< the same training, within rounding
  bits,      ///< the same training, to the bit
  judges,    ///< likewise, until a step is bad
  tells,     ///< the same training; what is evaluated or written on the way differs
  run,       ///< of one run alone: not compared
};

/// By this name goes what lies at the paths of --data and --tokenizer, among resolved options: those paths may change,
/// the content may not.
inline constexpr const char* content_option = "data's content";
/// Checkpoints without it count as "none".
inline constexpr const char* special_tokens_option = "special-tokens";
/// Likewise what decides how the model computes and no flag says; models::computation_of().
inline constexpr const char* computation_option = "model's computation";

/// Of a flag, without dashes. Throws ErrorCode::internal for one that has no entry.
[[nodiscard]] OptionEffect effect_of(std::string_view flag);

/// As a checkpoint keeps them: flag → value, without those of a run alone.
[[nodiscard]] boost::json::object options_to_save(const std::vector<runtime::ResolvedOption>& options);

struct ChangedOption {
  std::string flag;
  std::string before, now;  ///< values; empty: none was given
  OptionEffect effect = OptionEffect::decides;
};

/// Those of both whose values differ, in the order of `options`. An option that one of them lacks is of another version
/// of the program, and the checkpoint cannot tell its value, but for special_tokens_option. `learns_positions`:
/// models::learns_positions() of the model; one that does not has the same states at any sequence length.
[[nodiscard]] std::vector<ChangedOption> changed_options(const boost::json::object& saved,
                                                         const std::vector<runtime::ResolvedOption>& options,
                                                         bool learns_positions);

/// Throws ErrorCode::usage, with all that differs and the remedy, where one of them would train something else and
/// `meant` (--resume-with) does not name it. Returns what the start says of the others, in lines.
[[nodiscard]] std::vector<std::string> accept_changes(const std::vector<ChangedOption>& changes,
                                                      const std::vector<std::string>& meant,
                                                      const std::string& checkpoint);

}  // namespace ranvier::apps
