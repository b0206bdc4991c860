#include "actors/rank/sample_writer.hpp"

#include "runtime/base/arithmetic.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ranvier::actors {

namespace {

constexpr int positions_step = 32;  // rounding of the number of positions, so that few sizes of passes occur

}  // namespace

void SampleWriter::Window::read_input(std::int64_t, std::byte* to) const {
  std::memset(to, 0, input_bytes());
  std::memcpy(to, tokens_.data(), tokens_.size_bytes());
}

void SampleWriter::Window::read_target(std::int64_t, std::byte* to) const { std::memset(to, 0, target_bytes()); }

SampleWriter::SampleWriter(const GridPass::Parts& forward)
    : plan_(forward.plan),
      options_(plan_->options.sample),
      logits_(plan_->stage->last() ? forward.context->arena.slot_as<float>(plan_->sample_logits) : nullptr),
      pass_(forward, window_) {}

void SampleWriter::run(std::int64_t step, std::function<void(std::optional<std::span<const std::int32_t>>)> done) {
  step_ = step;
  done_ = std::move(done);
  tokens_ = options_.prompt;
  draw();
}

void SampleWriter::draw() {
  const std::size_t drawn = tokens_.size() - options_.prompt.size();
  const bool ended = drawn > 0 && tokens_.back() == options_.end_of_text;
  if (drawn == static_cast<std::size_t>(options_.tokens) || ended) return std::exchange(done_, nullptr)(tokens_);
  const int most = plan_->architecture->positions;
  const auto count = std::min(tokens_.size(), static_cast<std::size_t>(most));
  const int positions = std::min(runtime::round_up(static_cast<int>(count), positions_step), most);
  window_.show(std::span(tokens_).last(count), positions);
  pass_.run(
      {.step = step_,
       .samples = 1,
       .positions = positions,
       .details = {.logits = logits_, .position = static_cast<int>(count) - 1}},
      1,
      [this, drawn](double, std::span<double> token) {
        if (logits_ != nullptr && plan_->position.row == 0)
          token[0] = models::sample_token({logits_, plan_->stage->vocabulary()}, options_.sampling, drawn);
      },
      [this](std::span<const double> token, bool stop) {
        if (stop) return std::exchange(done_, nullptr)(std::nullopt);
        tokens_.push_back(static_cast<std::int32_t>(token[0]));
        draw();
      });
}

}  // namespace ranvier::actors
