// What ranvier-train was asked to do: what actors read, and one struct for each concern of the program, filled from
// flags and a config file, checked as far as that needs no data, with every default resolved. Every rank parses for
// itself; ranks compare options_hash().
#pragma once

#include "actors/rank/trainer_options.hpp"
#include "apps/program/device_flag.hpp"
#include "apps/program/manual.hpp"
#include "apps/train/options/checkpoint_flags.hpp"
#include "models/lora.hpp"
#include "models/model.hpp"
#include "models/text/special_token_policy.hpp"
#include "models/text/text_source.hpp"
#include "models/weights/weight_layout.hpp"
#include "runtime/options.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

struct ModelOptions {
  std::string name = "gpt";  ///< models::named_models(): a preset, or a family for sizes of one's own
  models::ModelSizes sizes;  ///< of the trainer's precision
  /// Sizes given by flags that --model does not have; the model of --init-from may have them.
  std::map<models::Size, int> other_sizes = {};
  std::string train;   ///< expression for names of parameters that are trained; empty: all
  std::string freeze;  ///< and of those that are not; empty: none
  models::LoraOptions lora{.rank = 0, .targets = {"q_proj", "v_proj"}};  ///< rank 0: there are no adapters

  [[nodiscard]] int size(models::Size which) const { return models::value_of(sizes, which); }
  [[nodiscard]] bool adapts() const { return lora.rank > 0; }
  /// Throws ErrorCode::usage, naming the flag, for what is no expression.
  [[nodiscard]] models::Tuning tuning() const {
    models::Tuning tuning = models::make_tuning(train, freeze);
    if (adapts()) tuning.lora = std::make_shared<const models::LoraOptions>(lora);
    return tuning;
  }
  [[nodiscard]] bool is_preset() const { return models::is_preset(name); }
  /// Of a program that knows GPT alone. Throws std::bad_variant_access for another family.
  [[nodiscard]] models::GptOptions& gpt() { return std::get<models::GptOptions>(sizes); }
  [[nodiscard]] const models::GptOptions& gpt() const { return std::get<models::GptOptions>(sizes); }
};

/// What decides how states are shared out, beside what actors read.
struct ShardOptions {
  int node_size = 0;            ///< rank r is on node r / node_size; 0: ask MPI, never with --world
  std::string links;            ///< path of measured links; empty: none
  std::optional<int> prefetch;  ///< layers gathered ahead; none: as many as memory allows
};

enum class Tokenizer { none, bytes, gpt2 };

struct DataOptions {
  /// Not a flag: told of each piece of a file that is read before training, by the thread that waits for it; null:
  /// nobody is.
  std::function<void(const std::filesystem::path&)> reads = nullptr;
  std::string data;  ///< a path, or several with weights: models::parse_weighted_paths
  Tokenizer tokenizer = Tokenizer::bytes;
  std::string gpt2;  ///< path of the tokenizer's files
  models::TokenFormat format = models::TokenFormat::automatic;
  models::SpecialTokenPolicy specials = models::SpecialTokenPolicy::tokenizer;  ///< in text for a tokenizer
  std::string json_field = "text";                                              ///< text field of JSON lines
  std::string prompt_field;         ///< of JSON lines: they are prompts and answers; empty: not
  std::string label_field;          ///< of JSON lines: which class the text is of; empty: none is told
  std::vector<std::string> labels;  ///< names of the model's classes of texts
  models::Documents documents = models::Documents::join;
  std::optional<std::int32_t> document_end;  ///< of token files; none: the tokenizer's end of text
  bool shuffle = true;
  bool augment = false;           ///< training's images are crops of them, mirrored or not
  double validation_split = 0;    ///< share of the tokens, at the end of the file
  std::int64_t eval_samples = 0;  ///< of the validation part; 0: all
  bool eval_only = false;         ///< instead of training; of all data unless there is a validation split
  double mlm_probability = 0.15;  ///< share of tokens to find, of models that fill masks
  std::optional<int> mask_token;  ///< none: the tokenizer's, or of bytes the one after them
  std::string hellaswag;          ///< path; empty: none
  std::string sample_prompt;      ///< empty: the end of text, or a new line where there is no such token
};

/// How messages between ranks leave and reach a GPU's memory.
enum class PointToPoint {
  automatic,  ///< directly where MPI can
  staged,     ///< by way of pinned memory
  direct,
};

/// Who carries out collectives on GPUs.
enum class CollectiveBackend {
  automatic,  ///< NCCL where it can
  nccl,
  plans,
};

struct DeviceOptions {
  DeviceFlag device = DeviceFlag::cpu;
  std::optional<int> gpu;  ///< of cuda; none: the local rank's, in turn
  PointToPoint point_to_point = PointToPoint::automatic;
  CollectiveBackend collectives = CollectiveBackend::automatic;
  bool measures_products = true;  ///< on a GPU; models/ops/product_choice.hpp
  std::string products_file;      ///< remembers what was measured; empty: nothing does
  models::AttentionKernels attention = models::AttentionKernels::measured;  ///< as asked for; attention_choice.hpp
  bool fast_attention_backward = false;     ///< cuDNN's, whose bits differ from run to run
  bool cuda_graphs = true;                  ///< runtime/graph_cache_cuda.hpp
  std::optional<std::size_t> memory_bytes;  ///< budget; none: what the machine has
  int threads = 0;                          ///< 0: this rank's share of its node's cores
};

enum class Request { train, dry_run, info };

struct RunOptions {
  Request request = Request::train;
  InfoRequest info;
  double timeout_seconds = 60;
  std::string init_from;        ///< paths; empty: none
  std::string ignored_tensors;  ///< of init_from: a regular expression for their names; empty: none
  std::string init_adapter;     ///< folder; empty: adapters begin as PEFT draws them
  std::string save;
  std::int64_t save_every = 0;                                             ///< steps; 0: at the end alone
  std::size_t save_file_bytes = models::WeightLayout::default_file_bytes;  ///< that values take in a file at most
  std::string metrics;
  std::string trace;
  std::string serve;        ///< where a page of the run is served: a port, or an address and a port; empty: nowhere
  std::string tensorboard;  ///< folder for event files; empty: none
  std::int64_t log_every = 1;   ///< steps, of which the line of one is printed
  bool quiet = false;           ///< no lines of steps at all, nor what the start plans
  bool overwrite = false;       ///< outputs replace existing files, and metrics start from scratch
  bool separate_ranks = false;  ///< processes that do not find each other train alone
  std::string config;
  bool plans = false;   ///< chooses flags that were not given (apps/plan/start_plan.hpp)
  std::string profile;  ///< of the machines: a path, a name or "none"; empty: what is found
};

struct TrainOptions {
  int ranks = 1;  ///< of the job, or of the one that --world imagines
  ModelOptions model;
  /// What actors read, as far as flags say it. Nodes, devices, data and prompt are added by plan_job().
  actors::TrainerOptions trainer;
  std::string offload = "none";  ///< a name for where all states live, but for what was said of some
  ShardOptions shard;
  DataOptions data;
  DeviceOptions device;
  CheckpointOptions checkpoint;
  RunOptions run;
  std::vector<std::string> given;  ///< names of flags, and keys of the config file, in the order of the help text
  /// For the start to say: what was taken from elsewhere than flags, and which of them change nothing.
  std::vector<std::string> notes;
};

/// Values of flags that are not given, as the device or the checkpoint decides (apps/train/run_defaults.hpp).
struct RunDefaults {
  runtime::DType precision = runtime::DType::f32;
  std::string precision_reason;  ///< for the startup output, as in "default of this GPU"; empty: no line
  /// Values that would follow from other flags, by flag without dashes, as the checkpoint has recorded them.
  std::map<std::string, std::string> recorded;
};

/// `ranks` is that of the job. Throws ErrorCode::usage with a message that names flag, value and remedy.
/// With Request::inquiry nothing else is resolved or checked.
[[nodiscard]] TrainOptions parse_train_options(int argc, const char* const* argv, int ranks,
                                               const RunDefaults& defaults = {});

/// `program` is the one that is asked: each that trains with launch() has these flags.
[[nodiscard]] Manual train_manual(const char* program);

/// A flag of ranvier-train and its value, as they would be given.
struct GivenFlag {
  std::string name;  ///< without dashes
  std::string value;

  friend bool operator==(const GivenFlag&, const GivenFlag&) = default;
};
/// Those that the arguments, and a config file among them, give; in the order of the help text, each once. Nothing is
/// resolved. Throws ErrorCode::usage for what is no flag, or no value of it.
[[nodiscard]] std::vector<GivenFlag> given_train_flags(int argc, const char* const* argv);

/// Every option with the value that the run uses, in the order of the help text.
[[nodiscard]] std::vector<runtime::ResolvedOption> resolved(const TrainOptions& options);

/// Likewise, of a run that was given nothing, before anything follows from anything else.
[[nodiscard]] std::vector<runtime::ResolvedOption> default_flags();

/// Equal on two ranks if they were given the same run.
[[nodiscard]] std::uint64_t options_hash(const TrainOptions& options);

}  // namespace ranvier::apps
