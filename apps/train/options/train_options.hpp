// What ranvier-train was asked to do: one struct per concern, filled from flags and a config file, checked as
// far as that needs no data, with every default resolved. Every rank parses for itself; ranks compare
// options_hash().
#pragma once

#include "apps/program/device_flag.hpp"
#include "apps/train/options/tier_flags.hpp"
#include "collectives/links.hpp"
#include "collectives/shard.hpp"
#include "models/gpt.hpp"
#include "models/text/token_file.hpp"
#include "runtime/grid.hpp"
#include "runtime/options.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::apps {

struct ModelOptions {
  std::string name = "gpt";  ///< a preset, or "gpt" for sizes of one's own
  models::GptOptions gpt;    ///< its precision comes from PrecisionOptions
};

struct GridOptions {
  int ranks = 1;  ///< of the job, or of the one that --world imagines
  runtime::GridShape shape;
};

/// How the ranks of a column share its states out, and what carries them. nodes_of() and group_size_of() resolve
/// what depends on where the ranks are.
struct ShardOptions {
  collectives::Sharding sharding;              ///< ddp
  int group_size = 0;                          ///< ranks of a column that hold one copy; 0: those on one node
  int node_size = 0;                           ///< rank r is on node r / node_size; 0: ask MPI, never with --world
  std::string links;                           ///< path; empty: none
  std::optional<collectives::Links> measured;  ///< what that file says
  std::string all_gather = "auto", reduce_scatter = "auto", all_reduce = "auto";  ///< or an algorithm's name
  bool reuse = true;            ///< units that are still there from their last use are not gathered again
  std::optional<int> prefetch;  ///< units gathered ahead of their use; none: as many as memory allows
};

enum class PipelinePolicy { message_driven, one_forward_one_backward, gpipe };

/// How many layers share one saved activation.
struct Recompute {
  enum class Mode { off, every, automatic };
  Mode mode = Mode::off;
  int interval = 0;  ///< with Mode::every, at least 1

  friend bool operator==(const Recompute&, const Recompute&) = default;
};

struct BatchOptions {
  int batch_size = 16;      ///< samples of a step, over all rows
  int microbatch_size = 4;  ///< at most a row's share of the batch
  int pipeline_limit = 1;   ///< microbatches in flight per pipeline
  PipelinePolicy policy = PipelinePolicy::message_driven;
  Recompute recompute;
};

enum class Tokenizer { none, bytes, gpt2 };

struct DataOptions {
  std::string data;  ///< a path, or several with weights: models::parse_weighted_paths
  Tokenizer tokenizer = Tokenizer::bytes;
  std::string gpt2;  ///< path of the tokenizer's files
  models::TokenFormat format = models::TokenFormat::automatic;
  std::string json_field = "text";  ///< of JSON lines
  bool shuffle = true;
  double validation_split = 0;  ///< share of the tokens, at the end of the file
  std::int64_t eval_every = 0;  ///< steps; 0: never
  std::int64_t eval_samples = 0;  ///< of the validation part; 0: all
  bool eval_only = false;         ///< instead of training; of all data unless there is a validation split
  std::string hellaswag;        ///< path; empty: none
  std::int64_t sample_every = 0;  ///< steps; 0: never
  std::string sample_prompt;      ///< empty: the end of text, or a new line where there is no such token
  int sample_tokens = 64;         ///< to draw
};

enum class LearningRateDecay { constant, linear, cosine };

struct OptimizerOptions {
  double learning_rate = 6e-4;
  std::int64_t warmup_steps = 0;
  LearningRateDecay decay = LearningRateDecay::cosine;
  double min_learning_rate = 6e-5;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;  ///< largest global norm of the gradient; 0: not clipped
};

struct PrecisionOptions {
  models::Precision types;
  double loss_scale = 1;  ///< the first one; adapted in fp16 only
};

/// How messages between ranks leave and reach a GPU's memory.
enum class PointToPoint {
  automatic,  ///< directly where MPI can
  staged,     ///< by way of pinned memory
  direct,
};

/// Who carries out collectives on GPUs.
enum class CollectiveCarrier {
  automatic,  ///< NCCL where it can
  nccl,
  plans,
};

struct DeviceOptions {
  DeviceChoice device = DeviceChoice::cpu;
  std::optional<int> gpu;                   ///< of cuda; none: the local rank's, in turn
  PointToPoint point_to_point = PointToPoint::automatic;
  CollectiveCarrier collectives = CollectiveCarrier::automatic;
  bool measures_products = true;            ///< on a GPU; models/ops/product_choice.hpp
  std::string products_file;                ///< remembers what was measured; empty: nothing does
  models::AttentionKernels attention = models::AttentionKernels::measured;  ///< as asked for; attention_choice.hpp
  bool fast_attention_backward = false;     ///< cuDNN's, whose bits differ from run to run
  bool cuda_graphs = true;                  ///< runtime/graph_cache_cuda.hpp
  std::optional<std::size_t> memory_bytes;  ///< budget; none: what the machine has
  int threads = 0;                          ///< 0: this rank's share of its node's cores
};

enum class Request { train, dry_run, help, version };

struct RunOptions {
  Request request = Request::train;
  std::int64_t steps = 500;
  std::uint64_t seed = 1234;
  double timeout_seconds = 60;
  std::string init_from;  ///< paths; empty: none
  std::string ignored_tensors;  ///< of init_from: a regular expression for their names; empty: none
  std::string save;
  std::string metrics;
  std::string trace;
  bool overwrite = false;  ///< metrics begin anew, and weights may replace those of init_from
  std::string config;
};

struct TrainOptions {
  ModelOptions model;
  GridOptions grid;
  ShardOptions shard;
  BatchOptions batch;
  DataOptions data;
  OptimizerOptions optimizer;
  PrecisionOptions precision;
  DeviceOptions device;
  TierOptions tiers;
  RunOptions run;
  /// For the start to say: what was taken from elsewhere than flags, and which of them change nothing.
  std::vector<std::string> notes;
};

/// `ranks` is that of the job. Throws ErrorCode::usage with a message that names flag, value and remedy.
/// With Request::help or ::version nothing else is resolved or checked.
[[nodiscard]] TrainOptions parse_train_options(int argc, const char* const* argv, int ranks);

[[nodiscard]] std::string train_help();

/// The node of every rank: as --node-size says, or else as `asked` does, which is what MPI answered.
[[nodiscard]] std::vector<int> nodes_of(const TrainOptions& options, std::span<const int> asked);

/// Ranks of a group, where the rows of the grid are on these nodes (collectives::common_rows).
[[nodiscard]] int group_size_of(const ShardOptions& options, std::span<const int> node_of_row);

/// Every option with the value that the run uses, in the order of the help text.
[[nodiscard]] std::vector<runtime::ResolvedOption> resolved(const TrainOptions& options);

/// Equal on two ranks if they were given the same run.
[[nodiscard]] std::uint64_t options_hash(const TrainOptions& options);

}  // namespace ranvier::apps
