// Samples text during training with the training pipeline. Each token needs a forward pass over all tokens so far (no
// KV cache) and an agreement on the sampled token. Works for any location of states, also for models that exceed a
// device. All rows compute the same. Loop thread only.
#pragma once

#include "actors/rank/grid_pass.hpp"
#include "models/core/sample_source.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace ranvier::actors {

class SampleWriter final : public Actor {
 public:
  explicit SampleWriter(const GridPass::Parts& forward);

  [[nodiscard]] const char* name() const noexcept override { return "text sample"; }
  [[nodiscard]] std::vector<Wait> waits() const override { return pass_.waits(); }
  [[nodiscard]] std::string details() const override { return pass_.details(); }

  /// Calls `done` with the tokens of prompt and text, or nothing after a stop request of any rank.
  void run(std::int64_t step, std::function<void(std::optional<std::span<const std::int32_t>> tokens)> done);

 private:
  /// Presents the last tokens, at most the model's positions, as a sample.
  class Window final : public models::TokenSamples {
   public:
    Window() : TokenSamples(1) {}
    /// `positions` is at least the number of tokens; tokens must stay until the next call. Not during reads.
    void show(std::span<const std::int32_t> tokens, int positions) {
      tokens_ = tokens;
      set_positions(positions);
    }
    [[nodiscard]] std::int64_t samples() const override { return 1; }
    void read_input(std::int64_t n, std::byte* to) const override;
    void read_target(std::int64_t n, std::byte* to) const override;

   private:
    std::span<const std::int32_t> tokens_;
  };

  void draw();

  const RankPlan* plan_;
  const SampleOptions& options_;
  float* logits_;  // pinned on the last stage; otherwise null
  Window window_;
  GridPass pass_;
  std::int64_t step_ = 0;
  std::vector<std::int32_t> tokens_;
  std::function<void(std::optional<std::span<const std::int32_t>>)> done_;
};

}  // namespace ranvier::actors
