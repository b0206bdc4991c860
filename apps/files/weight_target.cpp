#include "apps/files/weight_target.hpp"

#include "apps/program/flag_names.hpp"
#include "models/families/adapter_files.hpp"
#include "models/weights/unit_weights.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

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

}  // namespace ranvier::apps
