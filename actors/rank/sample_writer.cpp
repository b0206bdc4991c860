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

SampleWriter::SampleWriter(GridPass::Parts parts, const SampleOptions& options, const Stage& stage)
    : options_(options), stage_(stage), pass_(std::move(parts), window_) {}

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
  const auto count = std::min(tokens_.size(), static_cast<std::size_t>(stage_.positions));
  const int positions = std::min(runtime::round_up(static_cast<int>(count), positions_step), stage_.positions);
  window_.show(std::span(tokens_).last(count), positions);
  pass_.run(
      {.step = step_,
       .samples = 1,
       .positions = positions,
       .details = {.logits = stage_.logits, .position = static_cast<int>(count) - 1}},
      1,
      [this, drawn](double, std::span<double> token) {
        if (stage_.draws)
          token[0] = models::sample_token({stage_.logits, stage_.vocabulary}, options_.sampling, drawn);
      },
      [this](std::span<const double> token, bool stop) {
        if (stop) return std::exchange(done_, nullptr)(std::nullopt);
        tokens_.push_back(static_cast<std::int32_t>(token[0]));
        draw();
      });
}

}  // namespace ranvier::actors
