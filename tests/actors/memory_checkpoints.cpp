#include "tests/actors/memory_checkpoints.hpp"

#include "actors/states/sharded_unit.hpp"
#include "offload/tier.hpp"
#include "runtime/base/error.hpp"
#include "runtime/files/xxh3.hpp"
#include "runtime/kernels/int8_block.hpp"

#include <algorithm>
#include <random>
#include <utility>

namespace ranvier::tests {

namespace {

/// State that the ranks of one process write together.
struct Parts {
  SavedState state;
  std::map<std::string, std::vector<bool>> have;
};

class MemoryTarget final : public actors::CheckpointTarget {
 public:
  MemoryTarget(runtime::EventLoop& loop, actors::Rank& rank, const CheckpointedJob& job,
               std::map<std::int64_t, Parts>& parts, CheckpointedResult& result, std::uint64_t seed)
      : loop_(&loop), rank_(&rank), job_(&job), parts_(&parts), result_(&result), random_(seed) {}

  void prepare(std::int64_t step) override {
    if (++prepared_ == job_->prepare_fails) fail(ErrorCode::io, "no folder for step {}", step);
    Parts& parts = (*parts_)[step];
    for (const models::UnitSpec& unit : rank_->plan().architecture->units()) {
      for (std::size_t array = 0; array < rank_->plan().options.tiers.arrays_of(unit.trained); ++array) {
        if (!job_->arrays[array]) continue;
        const std::string name = unit.name + " " + to_string(actors::optimizer_states[array]);
        parts.state.arrays[name].resize(unit.elements());
        std::vector<bool>& have = parts.have[name];
        have.assign(unit.elements(), true);
        for (const collectives::Range& range : actors::stored_elements(actors::kind_of(unit.trained, array), unit,
                                                                       unit.elements(), rank_->plan().options.tiers)
                                                   .in({0, unit.elements()}))
          std::fill_n(have.begin() + static_cast<std::ptrdiff_t>(range.begin), range.count, false);
      }
    }
  }
  void open(std::int64_t step, runtime::Handler opened) override {
    step_ = step;
    bytes_ = 0;
    ++opened_;
    loop_->after(some_time(), std::move(opened));
  }
  void put(const actors::StatePiece& piece, std::size_t number, std::span<const std::byte> blocks,
           std::uint64_t hash, runtime::Handler done) override {
    expect(rank_->plan().snapshot.pieces.at(number) == piece, "piece {} differs from the plan", number);
    expect(blocks.size() == offload::Tier::whole_blocks(piece.bytes()), "{} bytes in {} of blocks", piece.bytes(),
           blocks.size());
    if (job_->stuck_rank == rank_->plan().rank) return;
    loop_->after(some_time(), [this, &piece, blocks, hash, done = std::move(done)] {
      take(piece, blocks, hash);
      done();
    });
  }
  void close(std::function<void(actors::CheckpointShare)> done) override {
    actors::CheckpointShare share{.failure = {}, .bytes = bytes_, .data = {}};
    // One that was not prepared is not opened.
    if (opened_ == job_->write_fails && job_->failing_rank == rank_->plan().rank)
      share.failure = fmt::format("no space at step {}", step_);
    if (rank_->plan().rank % 2 == 1) share.data.resize(5, std::byte{7});
    loop_->after(some_time(), [share = std::move(share), done = std::move(done)] { done(share); });
  }
  std::string commit(std::int64_t step, std::span<const actors::StateScalar> scalars,
                     std::span<const actors::CheckpointShare> shares) override {
    for (std::size_t rank = 0; rank < shares.size(); ++rank)
      expect(shares[rank].data.size() == (rank % 2 == 1 ? 5 : 0), "rank {} reports wrong data", rank);
    Parts& parts = parts_->at(step);
    for (const auto& [name, have] : parts.have)
      expect(std::find(have.begin(), have.end(), false) == have.end(), "{} is incomplete at step {}", name, step);
    for (const auto& [name, value] : scalars) parts.state.scalars.emplace(name, value);
    result_->states[step] = std::move(parts.state);
    parts_->erase(step);
    return {};
  }
  void discard(std::int64_t step) noexcept override {
    result_->discarded.push_back(step);
    parts_->erase(step);
  }

 private:
  [[nodiscard]] runtime::Duration some_time() {
    return std::chrono::microseconds(random_() % static_cast<std::uint64_t>(job_->slowest_put_us + 1));
  }
  void take(const actors::StatePiece& piece, std::span<const std::byte> blocks, std::uint64_t hash) {
    expect(runtime::xxh3(blocks) == hash, "a piece has a wrong hash");
    expect(std::all_of(blocks.begin() + static_cast<std::ptrdiff_t>(piece.bytes()), blocks.end(),
                       [](std::byte byte) { return byte == std::byte{}; }),
           "the padding behind a piece is not zero");
    Parts& parts = parts_->at(step_);
    const models::UnitSpec& unit = *rank_->plan().states->all()[piece.unit].spec;
    const std::string name = unit.name + " " + to_string(actors::optimizer_states[piece.array]);
    for (std::size_t e = piece.begin; e < piece.begin + piece.count; ++e) {
      expect(!parts.have.at(name).at(e), "element {} of {} is written twice", e, name);
      parts.have[name][e] = true;
    }
    bytes_ += piece.bytes();
    float* const values = parts.state.arrays[name].data() + piece.begin;
    if (runtime::is_in_blocks(piece.dtype)) {
      expect(piece.begin % runtime::int8_block_elements == 0, "a piece starts within a block");
      return runtime::floats_of_blocks(values, reinterpret_cast<const runtime::Int8Block*>(blocks.data()),
                                       piece.dtype, piece.count);
    }
    runtime::with_float_type(piece.dtype, [&](auto type) {
      const auto* const elements = reinterpret_cast<const decltype(type)*>(blocks.data());
      std::transform(elements, elements + piece.count, values,
                     [](auto element) { return runtime::to_float(element); });
    });
  }

  runtime::EventLoop* loop_;
  actors::Rank* rank_;
  const CheckpointedJob* job_;
  std::map<std::int64_t, Parts>* parts_;
  CheckpointedResult* result_;
  std::mt19937_64 random_;
  std::int64_t step_ = 0;
  std::uint64_t bytes_ = 0;
  int prepared_ = 0, opened_ = 0;
};

class MemorySource final : public actors::StateSource {
 public:
  explicit MemorySource(const SavedState& state) : state_(&state) {}

  void read(const models::UnitSpec& unit, std::string_view array, std::size_t begin,
            std::span<float> out) override {
    const std::vector<float>& all = state_->arrays.at(unit.name + " " + std::string(array));
    expect(begin + out.size() <= all.size(), "{} has no elements starting at {}", unit.name, begin);
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(begin), out.size(), out.begin());
  }
  std::vector<actors::StateScalar> scalars() const override {
    std::vector<actors::StateScalar> all;
    for (const auto& [name, value] : state_->scalars) all.push_back({name, value});
    return all;
  }

 private:
  const SavedState* state_;
};

}  // namespace

CheckpointedResult run_checkpointed(const models::GptOptions& gpt, actors::TrainerOptions options,
                                    const CheckpointedJob& job, std::uint64_t seed, Devices kind,
                                    const std::map<int, int>& stop_requests) {
  CheckpointedResult result;
  std::map<std::int64_t, Parts> parts;
  std::vector<std::unique_ptr<MemoryTarget>> targets;
  std::unique_ptr<MemorySource> source;
  if (job.from != nullptr) source = std::make_unique<MemorySource>(*job.from);
  const bool takes = job.every > 0 || job.period > runtime::Duration{} || job.at_end;
  if (takes && options.checkpoint_staging == 0) options.checkpoint_staging = std::size_t{40} << 10;
  const Prepare prepare = [&](runtime::EventLoop& loop, actors::Rank& rank) {
    if (source) rank.resume(*source);
    if (!takes) return;
    if (job.waits != nullptr && rank.plan().rank == 0) {
      loop.after(std::chrono::seconds(10), [&rank, &job] {
        *job.waits = rank.waits();
        fail(ErrorCode::transport, "a rank is stuck");
      });
    }
    targets.push_back(std::make_unique<MemoryTarget>(loop, rank, job, parts, result, seed + targets.size()));
    rank.add_checkpoints(
        {.target = targets.back().get(),
         .selection = {.arrays = job.arrays},
         .every = job.every,
         .period = job.period,
         .at_end = job.at_end,
         .bytes_per_second = job.bytes_per_second,
         .result = [&result](const actors::CheckpointResult& one) { result.results.push_back(one); }});
  };
  result.job = run_simulated(models::make_gpt(gpt, job.tuning), RandomTokens(gpt.sequence_length, gpt.vocab_size),
                             options, seed, stop_requests, kind, nullptr, prepare);
  return result;
}

}  // namespace ranvier::tests
