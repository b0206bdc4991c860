#include "apps/files/weight_saving.hpp"

#include "actors/base/gather.hpp"
#include "apps/files/output_files.hpp"
#include "apps/program/flag_names.hpp"
#include "models/families/adapter_files.hpp"
#include "models/weights/unit_weights.hpp"
#include "runtime/device/arena.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

namespace ranvier::apps {

WeightTarget::WeightTarget(runtime::EventLoop& loop, runtime::Device& host, const actors::UnitStates& units,
                           Options options)
    : units_(units), options_(std::move(options)), files_(loop, host) {}

WeightTarget::~WeightTarget() { files_.finish(); }

void WeightTarget::attempt(std::function<void()> work, runtime::Handler done) {
  files_.write(
      [this, work = std::move(work)] {
        if (!failure_.empty()) return;
        try {
          work();
        } catch (const std::exception& error) {
          failure_ = message_of(error);
        }
      },
      std::move(done));
}

void WeightTarget::prepare(std::int64_t step) {
  partial_.reset();
  partial_.emplace(options_.place(step), options_.kind, options_.partial(step), options_.layout, options_.retry);
}

void WeightTarget::open(std::int64_t step, runtime::Handler opened) {
  failure_.clear();
  attempt([this, step] { writer_.emplace(options_.layout, options_.partial(step), options_.retry); },
          std::move(opened));
}

void WeightTarget::put(const actors::StatePiece& piece, std::size_t, std::span<const std::byte> blocks,
                       std::uint64_t, runtime::Handler done) {
  attempt(
      [this, piece, blocks] {
        const actors::UnitState& state = units_.all()[piece.unit];
        const models::UnitSpec& unit = options_.adapters ? models::in_peft_names(*state.spec) : *state.spec;
        const bool restores = options_.untrained && !state.trained();
        if (piece.dtype == runtime::DType::f32 && !restores)
          return writer_->put(unit, piece.begin, {reinterpret_cast<const float*>(blocks.data()), piece.count});
        runtime::with_float_type(piece.dtype, [&](auto type) {
          const auto* const elements = reinterpret_cast<const decltype(type)*>(blocks.data());
          std::vector<float> values(piece.count);
          std::transform(elements, elements + piece.count, values.begin(),
                         [](auto element) { return runtime::to_float(element); });
          if (restores)
            models::restore_values(*options_.untrained, unit, piece.begin, values, state.parameters.dtype);
          writer_->put(unit, piece.begin, values);
        });
      },
      std::move(done));
}

void WeightTarget::close(std::function<void(actors::CheckpointShare)> done) {
  attempt([this] { writer_->close(); },
          [this, done = std::move(done)] {
            actors::CheckpointShare share{.failure = failure_, .bytes = 0, .data = {}};
            if (writer_) share.bytes = writer_->bytes();
            writer_.reset();
            done(std::move(share));
          });
}

std::string WeightTarget::commit(std::int64_t step, std::span<const actors::StateScalar>,
                                 std::span<const actors::CheckpointShare> shares) {
  std::uint64_t bytes = 0;
  for (const actors::CheckpointShare& share : shares) bytes += share.bytes;
  expect(bytes == options_.layout.value_bytes(), "{}: ranks wrote {} bytes instead of {}",
         options_.place(step).string(), bytes, options_.layout.value_bytes());
  partial_->commit(options_.beside);
  partial_.reset();
  return {};
}

void WeightTarget::discard(std::int64_t) noexcept { partial_.reset(); }

namespace {

using Kind = models::PartialWeights::Kind;

constexpr runtime::Tag prepared_tag{runtime::Channel::weights, 0};
constexpr std::size_t piece_elements = std::size_t{1} << 20;

models::WeightLayout saved_layout(const TrainOptions& options, const Job& job) {
  const bool one = !config_path(options.run.save);
  std::vector<models::UnitSpec> units = job.architecture.units();
  if (options.model.adapts()) {
    units = models::adapter_units(units);
    std::ranges::transform(units, units.begin(), models::in_peft_names);
    return models::WeightLayout(units, std::numeric_limits<std::uint64_t>::max(), models::adapter_weights_name);
  }
  return models::WeightLayout(
      units, one ? std::numeric_limits<std::uint64_t>::max() : options.run.save_file_bytes,
      models::WeightLayout::single_name,
      job.untrained ? models::untrained_types(*job.untrained, units) : models::TensorTypes());
}

/// The small files next to the weights. `base`: path of the weights under the adapters.
models::CompanionFiles saved_beside(const TrainOptions& options, const Job& job, const std::string& base) {
  if (options.model.adapts())
    return {
        {models::adapter_config_name, models::adapter_config_json(options.model.lora, base, options.model.sizes)}};
  models::CompanionFiles beside = job.beside_weights;
  if (!job.config.empty()) beside["config.json"] = job.config;
  return beside;
}

/// Weights in folders, without paths; only the last save of a run is retried.
WeightTarget::Options saved_weights(const RankRun& run, const std::string& base) {
  return {.layout = saved_layout(run.options, run.job),
          .beside = saved_beside(run.options, run.job, base),
          .last_retry = DiskRetry(run.timeout(), "the weights take", saved_bytes(run.options, run.job)),
          .adapters = run.options.model.adapts(),
          .untrained = run.job.untrained};
}

WeightTarget::Options final_weights(const RankRun& run, const std::string& job, const std::string& base) {
  const std::string& save = run.options.run.save;
  const auto config = config_path(save);
  std::filesystem::path place = config ? config->parent_path() : runtime::target_of(weights_path(save));
  if (place.empty()) place = ".";
  const std::filesystem::path partial =
      config ? models::partial_path(place, "weights", job)
             : models::partial_path(place.parent_path(), place.filename().string(), job);
  WeightTarget::Options options = saved_weights(run, base);
  if (!config && !options.adapters) options.beside.clear();
  options.retry = options.last_retry;
  if (!config) options.kind = Kind::file;
  options.place = [place](std::int64_t) { return place; };
  options.partial = [partial](std::int64_t) { return partial; };
  return options;
}

}  // namespace

std::uint64_t saved_bytes(const TrainOptions& options, const Job& job) {
  const models::CompanionFiles beside = saved_beside(options, job, options.run.init_from);
  return std::accumulate(beside.begin(), beside.end(), saved_layout(options, job).bytes(),
                         [](std::uint64_t sum, const auto& file) { return sum + file.second.size(); });
}

std::filesystem::path saved_path(const TrainOptions& options, const Job& job) {
  const std::filesystem::path single = weights_path(options.run.save);
  return saved_layout(options, job).files().size() == 1 ? single
                                                        : single.parent_path() / models::WeightLayout::index_name;
}

std::filesystem::path weights_folder(const std::string& save, std::int64_t step) {
  return weights_path(save).parent_path() / fmt::format("weights-{:08}", step);
}

WeightTarget::Options weights_of_steps(const RankRun& run, const std::string& job, const std::string& base) {
  WeightTarget::Options options = saved_weights(run, base);
  options.place = [&run](std::int64_t step) { return weights_folder(run.options.run.save, step); };
  options.partial = [&run, job](std::int64_t step) {
    const std::filesystem::path place = weights_folder(run.options.run.save, step);
    return models::partial_path(place.parent_path(), place.filename().string(), job);
  };
  return options;
}

WeightSaving::WeightSaving(const RankRun& run, runtime::Device& host, actors::Rank& rank, const std::string& job,
                           const std::string& base)
    : run_(run),
      rank_(rank),
      bytes_(saved_bytes(run.options, run.job)),
      target_(run.loop, host, *rank.plan().states, final_weights(run, job, base)),
      files_(run.loop, host),
      values_(piece_elements) {
  const actors::RankPlan& plan = rank.plan();
  const actors::SliceMap map = actors::slice_map(plan.options);
  const auto stages_of = actors::stages_of_units(
      *plan.architecture, actors::slice_layers(*plan.architecture, map, plan.options.layers_per_stage), map);
  const auto& units = plan.states->all();
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (stages_of.at(units[u].spec->name).front() != plan.position.stage) continue;
    if (run.options.model.adapts() && !units[u].trained()) continue;
    // The global shard, which each scope's shard contains; so no two ranks write the same elements.
    const collectives::Range range = plan.column->layout.range(collectives::Scope::global, units[u].elements);
    const std::size_t end = std::min(range.begin + range.count, units[u].spec->elements());
    for (std::size_t begin = range.begin; begin < end; begin += piece_elements)
      pieces_.push_back({u, begin, std::min(piece_elements, end - begin)});
  }
}

void WeightSaving::start(runtime::Handler done) {
  done_ = std::move(done);
  if (!run_.speaks()) return run_.transport.receive(0, prepared_tag, {&prepared_, 1}, [this] { open(); });
  files_.attempt([this] { target_.prepare(0); },
                 [this](const std::string& failure) {
                   if (!failure.empty()) lose(failure);
                   for (int rank = 1; rank < run_.session.ranks(); ++rank)
                     run_.transport.send(rank, prepared_tag, {&prepared_, 1}, [] {});
                   open();
                 });
}

void WeightSaving::open() {
  target_.open(0, [this] { next(); });
}

void WeightSaving::next() {
  if (next_ == pieces_.size())
    return target_.close([this](const actors::CheckpointShare& share) { closed(share); });
  const UnitRange& piece = pieces_[next_++];
  const std::span<float> values(values_.data(), piece.count);
  rank_.read_weights(piece.unit, piece.begin, values, [this, &piece, values] {
    target_.put({.unit = piece.unit, .array = 0, .begin = piece.begin, .count = piece.count}, next_ - 1,
                std::as_bytes(values), 0, [this] { next(); });
  });
}

void WeightSaving::closed(const actors::CheckpointShare& share) {
  std::string block(reinterpret_cast<const char*>(&share.bytes), sizeof share.bytes);
  actors::gather(run_.transport, block + share.failure, [this](const std::vector<std::string>& blocks) {
    if (!run_.speaks()) return done_();
    commit(blocks);
  });
}

void WeightSaving::commit(const std::vector<std::string>& blocks) {
  std::vector<actors::CheckpointShare> shares(blocks.size());
  for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
    std::memcpy(&shares[rank].bytes, blocks[rank].data(), sizeof shares[rank].bytes);
    if (const std::string failure = blocks[rank].substr(sizeof shares[rank].bytes); !failure.empty())
      lose(fmt::format("{}: {}", describe_rank(run_.options, static_cast<int>(rank)), failure));
  }
  files_.attempt([this, shares = std::move(shares)] { std::ignore = target_.commit(0, {}, shares); },
                 [this](const std::string& failure) {
                   if (!failure.empty()) fail(ErrorCode::io, "{}", failure);
                   done_();
                 });
}

void WeightSaving::lose(const std::string& failure) const {
  const std::string& folder = run_.options.checkpoint.folder;
  fail(
      ErrorCode::io,
      "{}; the final weights ({}) are {}; use a larger disk, or a longer --timeout to free space meanwhile",
      failure, runtime::format_bytes(bytes_),
      folder.empty()
          ? "lost"
          : fmt::format("not saved; ranvier-checkpoint export can write the weights of the newest checkpoint in {}",
                        folder));
}

}  // namespace ranvier::apps
