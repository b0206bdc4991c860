// Trained parameters of a run: all, or those that match expressions. Any thread.
//
//   Tuning tuning;
//   tuning.train.emplace("self_attn", "`train`");
//   make_model(sizes, tuning);  // sets UnitSpec::trained
#pragma once

#include "models/core/architecture.hpp"
#include "models/core/name_pattern.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

struct LoraOptions;

struct Tuning {
  std::optional<NamePattern> train;         ///< none: all parameters
  std::optional<NamePattern> freeze;        ///< frozen among these; none: nothing
  std::shared_ptr<const LoraOptions> lora;  ///< null: no adapters

  /// Whether a parameter of this name is trained.
  [[nodiscard]] bool trains(std::string_view name) const;
};

/// For `train` and `freeze`, which may be empty. Throws ErrorCode::usage, naming the field, for an invalid expression.
[[nodiscard]] Tuning make_tuning(const std::string& train, const std::string& freeze);

/// Sets the unit trained or frozen. Throws ErrorCode::usage, naming one parameter of each, if only some are trained.
[[nodiscard]] UnitSpec tuned(UnitSpec unit, const Tuning& tuning);

/// Throws ErrorCode::usage, naming it, for an adapter target that the model does not have.
void expect_targets(const Architecture& architecture, const LoraOptions& lora);
/// Throws ErrorCode::usage, naming them, for modules of LoraOptions::whole outside the model's classification head,
/// or if there is no such head. A file's list may have head names of other models.
void expect_whole(const Architecture& architecture, const LoraOptions& lora, bool tells_classes);
/// Throws ErrorCode::usage, with names that expressions may match, if nothing is trained, or `freeze` matches
/// nothing.
void expect_trained(const Architecture& architecture, const Tuning& tuning);

}  // namespace ranvier::models
