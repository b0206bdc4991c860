// Options of ranvier-train from flags and a config file: one struct per concern, with defaults resolved and checks done
// that need no data. Every rank parses its own arguments; ranks then compare options_hash(). One thread at a time.
#pragma once

#include "actors/rank/trainer_options.hpp"
#include "apps/options/option_effects.hpp"
#include "apps/program/device_flag.hpp"
#include "apps/program/manual.hpp"
#include "apps/program/options.hpp"
#include "models/core/lora.hpp"
#include "models/families/model.hpp"
#include "models/text/text_source.hpp"
#include "models/tokenizers/added_tokens.hpp"
#include "models/weights/weight_layout.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::apps {

struct ModelOptions {
  std::string name = "gpt";  ///< preset, or family with sizes from flags; models::named_models()
  models::ModelSizes sizes;  ///< sizes, with the trainer's precision
  /// Sizes from flags that --model lacks; the model of --init-from may have them.
  std::map<models::Size, int> other_sizes = {};
  std::string train;   ///< regular expression for names of trained parameters; empty: all
  std::string freeze;  ///< regular expression for names of frozen parameters; empty: none
  models::LoraOptions lora{.rank = 0, .targets = {"q_proj", "v_proj"}};  ///< rank 0: no adapters

  [[nodiscard]] int size(models::Size which) const { return models::value_of(sizes, which); }
  [[nodiscard]] bool adapts() const { return lora.rank > 0; }
  /// Throws ErrorCode::usage, naming the flag, for an invalid regular expression.
  [[nodiscard]] models::Tuning tuning() const {
    models::Tuning tuning = models::make_tuning(train, freeze);
    if (adapts()) tuning.lora = std::make_shared<const models::LoraOptions>(lora);
    return tuning;
  }
  [[nodiscard]] bool is_preset() const { return models::is_preset(name); }
  /// Sizes of a GPT. Throws std::bad_variant_access for another family.
  [[nodiscard]] models::GptOptions& gpt() { return std::get<models::GptOptions>(sizes); }
  [[nodiscard]] const models::GptOptions& gpt() const { return std::get<models::GptOptions>(sizes); }
};

/// Sharding options that are not in actors::TrainerOptions.
struct ShardOptions {
  int node_size = 0;            ///< rank r is on node r / node_size; 0: nodes by MPI, never with --world
  std::string links;            ///< path of a file of measured links; empty: none
  std::optional<int> prefetch;  ///< units gathered ahead of use; none: chosen by device memory
};

enum class Tokenizer { none, bytes, gpt2 };

struct DataOptions {
  std::string data;  ///< path, or paths with weights; models::parse_weighted_paths()
  Tokenizer tokenizer = Tokenizer::bytes;
  std::string gpt2;             ///< path of the tokenizer's file or folder
  models::TextReading reading;  ///< all but `reads` are flags
  models::SpecialTokenPolicy specials = models::SpecialTokenPolicy::tokenizer;  ///< special tokens in text
  std::vector<std::string> labels;                                              ///< names of the classes, by number
  models::Documents documents = models::Documents::join;
  std::optional<std::int32_t> document_end;  ///< last token of documents; none: the tokenizer's end of text
  bool shuffle = true;
  bool augment = false;           ///< train on random crops of images, half of them mirrored
  double validation_split = 0;    ///< fraction of the data, at its end
  std::int64_t eval_samples = 0;  ///< samples of the validation part to evaluate; 0: all
  bool eval_only = false;  ///< evaluate the validation part, or all data without a split, instead of training
  double mlm_probability = 0.15;  ///< fraction of tokens to predict, for BERT and RoBERTa
  std::optional<int> mask_token;  ///< none: the tokenizer's mask token, or 256 for bytes
  std::string hellaswag;          ///< path of a question file; empty: none
  std::string sample_prompt;      ///< empty: the BOS or end-of-text token, or a newline if there is neither
};

/// Transfer of messages between ranks from and to GPU memory.
enum class PointToPoint {
  automatic,  ///< direct if MPI supports it
  staged,     ///< through pinned memory
  direct,
};

/// Backend of collectives on GPUs.
enum class CollectiveBackend {
  automatic,  ///< NCCL if possible
  nccl,
  plans,
};

struct DeviceOptions {
  DeviceFlag device = DeviceFlag::cpu;
  std::optional<int> gpu;  ///< GPU number; none: the GPUs of a node in turn
  PointToPoint point_to_point = PointToPoint::automatic;
  CollectiveBackend collectives = CollectiveBackend::automatic;
  bool measures_products = true;  ///< benchmark matrix multiplications on a GPU; models/ops/product_choice.hpp
  std::string products_file;      ///< file that keeps measured choices; empty: none
  models::AttentionKernels attention = models::AttentionKernels::measured;  ///< as requested; attention_choice.hpp
  bool fast_attention_backward = false;     ///< cuDNN's fast kernel, whose bits differ between runs
  bool cuda_graphs = true;                  ///< replay blocks as CUDA graphs; runtime/device/graph_cache_cuda.hpp
  std::optional<std::size_t> memory_bytes;  ///< budget; none: the machine's memory
  int threads = 0;                          ///< compute threads; 0: this rank's share of the node's cores
};

/// --checkpoint, --resume and --time-limit.
struct CheckpointOptions {
  std::string folder;                              ///< empty: no checkpoints
  std::int64_t every_steps = 0;                    ///< steps between checkpoints; 0: every_time applies
  std::optional<std::chrono::seconds> every_time;  ///< time between checkpoints; none: every_steps applies
  int keep = 3;                                    ///< newest checkpoints that are kept
  std::int64_t archive_every = 0;               ///< checkpoints at multiples of this step are never pruned; 0: none
  std::optional<std::size_t> bytes_per_second;  ///< largest write rate per rank and second; none: unlimited
  std::string resume = "none";                  ///< none, auto, or the path of a checkpoint or its folder
  std::vector<std::string> resume_with;         ///< flags that may differ from the checkpoint, without dashes
  std::optional<std::chrono::seconds> time_limit;   ///< counted from the start of the process; none: unlimited
  std::optional<std::chrono::seconds> stop_before;  ///< margin before time_limit; none only without a limit

  [[nodiscard]] bool resumes() const noexcept { return resume != "none"; }
};

enum class Request { train, dry_run, info };

struct RunOptions {
  Request request = Request::train;
  InfoRequest info;
  double timeout_seconds = 60;
  std::string init_from;        ///< path of initial weights; empty: none
  std::string ignored_tensors;  ///< regular expression for tensors of init_from to skip; empty: none
  std::string init_adapter;     ///< folder of an initial adapter; empty: initialized as in PEFT
  std::string save;
  std::int64_t save_every = 0;  ///< steps between saves; 0: only at the end
  std::size_t save_file_bytes = models::WeightLayout::default_file_bytes;  ///< largest size of tensors per file
  std::string metrics;
  std::string trace;
  std::string serve;            ///< port, or address and port, of the live page; empty: none
  std::string tensorboard;      ///< folder for event files; empty: none
  std::int64_t log_every = 1;   ///< print every Nth step
  bool quiet = false;           ///< print no step lines and no plan at startup
  bool overwrite = false;       ///< replace existing outputs, and start metrics from scratch
  bool separate_ranks = false;  ///< processes that MPI does not connect train separately
  std::string config;
  bool plans = false;   ///< choose flags that were not given (apps/plan/start_plan.hpp)
  std::string profile;  ///< machine profile: path, name or "none"; empty: search as in the planning guide
};

struct TrainOptions {
  int ranks = 1;  ///< ranks of the job, or assumed by --world
  ModelOptions model;
  /// Options for actors, without nodes, devices, data and prompt, which plan_job() adds.
  actors::TrainerOptions trainer;
  std::string offload = "none";  ///< preset of tiers; single tiers may differ
  ShardOptions shard;
  DataOptions data;
  DeviceOptions device;
  CheckpointOptions checkpoint;
  RunOptions run;
  std::vector<std::string> given;  ///< names of given flags and keys of the config file
  /// Lines for the startup output: values from other sources than flags, and flags without effect.
  std::vector<std::string> notes;

  [[nodiscard]] bool is_given(std::string_view flag) const;
};

/// Options as they were asked for: no default depends on another option, and nothing is checked.
struct AskedOptions {
  TrainOptions options;
  int world = 0;  ///< --world; 0: not given
  bool half_gradients = false;
  bool dry_run = false;
};

/// Values for flags that the user did not give: the checkpoint's on resume, otherwise the device's default.
struct RunDefaults {
  runtime::DType precision = runtime::DType::f32;
  std::string precision_reason;  ///< for the startup output, as in "default of this GPU"; empty: no line
  /// Values that the checkpoint recorded; keys without dashes.
  std::map<std::string, std::string> recorded;
};
/// Chosen by all ranks from their own flags, before the others are resolved; the same on all. If GPUs differ, all
/// support the precision. An unreadable file is ignored: the code that needs it reports flag and remedy.
[[nodiscard]] RunDefaults run_defaults(runtime::MpiSession& session, const std::vector<GivenFlag>& given);

/// Throws ErrorCode::usage, naming flag and value, for an invalid value.
[[nodiscard]] AskedOptions asked_options(const std::vector<GivenFlag>& flags);

/// Resolves and checks `asked.options` for a job of `ranks` ranks. Throws ErrorCode::usage, naming flag, value and
/// remedy.
void resolve(AskedOptions& asked, int ranks, const RunDefaults& defaults = {});

/// Parses, resolves and checks all options for a job of `ranks` ranks. Throws ErrorCode::usage, naming flag, value and
/// remedy. With Request::info nothing else is resolved or checked. `chosen`: valid values as if given, in place of
/// those in the arguments; an empty value removes the flag.
[[nodiscard]] TrainOptions parse_train_options(int argc, const char* const* argv, int ranks,
                                               const RunDefaults& defaults = {},
                                               const std::vector<GivenFlag>& chosen = {});

/// Manual of `program`, since every program that trains with launch() has these flags.
[[nodiscard]] Manual train_manual(const char* program);

/// Flags in the arguments and in their config file, in the order of the help text, each once. Resolves no defaults.
/// Throws ErrorCode::usage for an unknown flag or an invalid value.
[[nodiscard]] std::vector<GivenFlag> given_train_flags(int argc, const char* const* argv);

/// All options with resolved values, in the order of the help text.
[[nodiscard]] std::vector<ResolvedOption> resolved(const TrainOptions& options);

/// Options before flags are read.
[[nodiscard]] AskedOptions default_options();
/// Table of all flags, bound to `asked`, which outlives it.
[[nodiscard]] TrainTable declare_train(AskedOptions& asked);

/// Table of all flags with their plain defaults. Any thread.
[[nodiscard]] const TrainTable& train_table();

/// Facts about a flag, given without dashes. Any thread. Throws ErrorCode::internal for an unknown flag.
[[nodiscard]] const OptionTraits& traits_of(std::string_view flag);

/// All options with their plain defaults, before any is derived from another.
[[nodiscard]] std::vector<ResolvedOption> default_flags();

/// Hash of all options, equal on ranks of the same run.
[[nodiscard]] std::uint64_t options_hash(const TrainOptions& options);

}  // namespace ranvier::apps
