// What a run trains of a model: all of it, or the parameters that expressions name. Any thread.
//
//   Tuning tuning;
//   tuning.train.emplace("self_attn", "--train");
//   make_model(sizes, tuning);  // its units say whether they are trained
#pragma once

#include "models/architecture.hpp"
#include "models/weights/name_pattern.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

struct LoraOptions;

struct Tuning {
  std::optional<NamePattern> train;         ///< none: everything
  std::optional<NamePattern> freeze;        ///< of that; none: nothing
  std::shared_ptr<const LoraOptions> lora;  ///< null: there are no adapters

  /// Whether a parameter of this name is trained.
  [[nodiscard]] bool trains(std::string_view name) const;
};

/// For --train and --freeze, which may be empty. Throws ErrorCode::usage, naming the flag, for what is no expression.
[[nodiscard]] Tuning make_tuning(const std::string& train, const std::string& freeze);

/// Has the unit trained or frozen as its parameters are. Throws ErrorCode::usage, naming one of each, where a part of
/// them is.
[[nodiscard]] UnitSpec tuned(UnitSpec unit, const Tuning& tuning);

/// Throws ErrorCode::usage, naming it, for a target of adapters that the model does not have.
void expect_targets(const Architecture& architecture, const LoraOptions& lora);
/// Throws ErrorCode::usage, naming them, for modules of LoraOptions::whole that are not of the model's head for classes
/// alone, or where it has no such head. A file's list may have names of heads that other models have.
void expect_whole(const Architecture& architecture, const LoraOptions& lora, bool tells_classes);
/// Throws ErrorCode::usage, with names that expressions may match, where nothing of the model is trained, or --freeze
/// matches nothing.
void expect_trained(const Architecture& architecture, const Tuning& tuning);

}  // namespace ranvier::models
