// Flags of ranvier-train by subject. Declared into the program's option table, which the bound options outlive;
// resolved after its parse(). One thread at a time.
#pragma once

#include "apps/options/train_options.hpp"
#include "collectives/plans/algorithms.hpp"

#include <array>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::apps {

/// Adds flags for adapters and frozen parameters to the current concern.
void declare_tuning(TrainTable& table, ModelOptions& model);
/// Adopts the configuration of --init-adapter, and makes --save write an adapter. Throws ErrorCode::usage for
/// contradicting flags, ErrorCode::data for an unusable adapter.
void resolve_tuning(TrainOptions& options);

/// Collectives with a flag for their algorithm, and its field.
inline constexpr std::array algorithm_fields{
    std::pair{collectives::Collective::all_gather, &actors::AlgorithmNames::all_gather},
    std::pair{collectives::Collective::reduce_scatter, &actors::AlgorithmNames::reduce_scatter},
    std::pair{collectives::Collective::all_reduce, &actors::AlgorithmNames::all_reduce}};

[[nodiscard]] bool has_algorithm(collectives::Collective collective, std::string_view name);
/// Algorithms of any collective, each once.
[[nodiscard]] std::vector<std::string> all_algorithm_names();

/// Value of --gather-dtype and --reduce-dtype: "int8", "inter=int4,intra=int8".
[[nodiscard]] std::string wire_text(const collectives::WireTypes::Links& links);

/// Adds the concern "Sharding". `trainer` and `shard` outlive the table.
void declare_sharding(TrainTable& table, actors::TrainerOptions& trainer, ShardOptions& shard);

/// Reads the file of --links and sets the node size. `imagined`: the ranks come from --world. Throws ErrorCode::usage
/// if --group-size does not divide --g-data.
void resolve_sharding(TrainOptions& options, bool imagined);

/// Throws ErrorCode::usage for --shard-trained and --parameter-tier-trained if no part of the model is frozen. Call
/// after resolve_tuning().
void check_flags_of_part(const TrainOptions& options);

/// Adds the concern "Memory tiers", bound to the trainer's tiers and to `offload`, the preset's name. Both outlive the
/// table.
void declare_tiers(TrainTable& table, actors::TrainerOptions& trainer, std::string& offload);

/// Presets of --offload.
[[nodiscard]] std::vector<std::string> offload_names();

/// Sets all tiers to a preset of --offload, and `offload` to its name. Returns whether there is one.
[[nodiscard]] bool set_offload(actors::TierOptions& tiers, std::string& offload, std::string_view name);

/// Without activation checkpoints (--recompute), --offload does not place them. Throws ErrorCode::usage if a tier lacks
/// a required flag, or if a given flag has no use.
void resolve_tiers(TrainOptions& options);

/// Paths separated by commas, as in --nvme.
[[nodiscard]] std::string paths_text(std::span<const std::filesystem::path> paths);

/// Adds the concern "Stopping and resuming", bound to `options`, which outlives the table.
void declare_checkpoints(TrainTable& table, CheckpointOptions& options);

/// Resolves defaults. Throws ErrorCode::usage if a required flag is missing, or if --resume-with names an unknown flag.
void resolve_checkpoints(CheckpointOptions& options);

/// Adds flags for the pipeline schedule to the concern "Batch".
void declare_pipeline(TrainTable& table, actors::TrainerOptions& trainer);

/// Adds the concern "Planning": predictions.
void declare_planning(TrainTable& table, RunOptions& run);
/// Adds the concern "Watching": outputs for users.
void declare_watching(TrainTable& table, RunOptions& run);

/// Adds the concern "Data", bound to `data` and to the evaluation settings of `trainer`. All three outlive the table.
void declare_data(TrainTable& table, DataOptions& data, actors::TrainerOptions& trainer, const ModelOptions& model);

/// Whether --tokenizer PATH encodes at least a part of the data.
[[nodiscard]] bool encodes_text(const DataOptions& data);

/// Resolves tokenizer, vocabulary size and evaluation from the kind of data. Throws ErrorCode::usage for flags that
/// contradict each other or the data.
void resolve_data(TrainOptions& options);

/// Sets the names of the classes, from the initial weights or else from the data. Call after adopt_initial_weights().
/// Throws ErrorCode::usage if --label-field or --classes contradict them.
void resolve_labels(TrainOptions& options);

/// Checks that the data flags suit the final model. Throws ErrorCode::usage for a flag that needs another kind of model
/// (causal or masked).
void check_purpose(const TrainOptions& options);

}  // namespace ranvier::apps
