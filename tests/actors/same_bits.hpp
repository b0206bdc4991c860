// Jobs that must give the same bits: their comparison, and jobs that are drawn at random.
#pragma once

#include "tests/actors/simulated_job.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>

namespace ranvier::tests {

/// A skipped step's norm is an arbitrary result of the overflow.
void check_same_bits(const JobResult& a, const JobResult& b);

/// Draws numbers, and one of several values.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  [[nodiscard]] int operator()(int least, int most) { return std::uniform_int_distribution(least, most)(random_); }
  template <typename... Values>
  [[nodiscard]] auto of(Values... values) {
    const std::array all{values...};
    return all[static_cast<std::size_t>((*this)(0, static_cast<int>(all.size()) - 1))];
  }

 private:
  std::mt19937_64 random_;
};

[[nodiscard]] models::Precision draw_precision(Draw& draw);
/// One of all shardings; half of the draws have a name.
[[nodiscard]] collectives::Sharding draw_sharding(Draw& draw);

/// Draws a group size, usually a strict part of the rows, and the nodes of all ranks, which may differ in size and
/// split groups.
void draw_groups(actors::TrainerOptions& options, Draw& draw);

/// A quarter of the sources have documents.
[[nodiscard]] std::unique_ptr<RandomTokens> draw_tokens(int vocabulary, Draw& draw);

/// A model and its samples, for jobs in the model's precision.
struct DrawnModel {
  models::Architecture architecture;
  std::unique_ptr<models::SampleSource> samples;
  bool writes_texts = false;                              ///< whether jobs may sample texts
  std::unique_ptr<models::Architecture> alike = nullptr;  ///< model with equal results; null: none
};

/// Draws AdamW, Muon, or SGD with or without momentum.
void draw_rule(actors::TrainerOptions& options, Draw& draw);

/// Draws types of elements in messages that give the same bits in any placement, for a third of the jobs of several
/// rows. Parameters of frozen units get another sharding, and fp32 master weights on the device may be the layers'
/// parameters.
void draw_wire(actors::TrainerOptions& options, bool partly_trained, Draw& draw);

/// Draws what must not change any bit of a job: its stages and schedule, recomputation, the location of states, and
/// their partition. With `trained_sharding` also the sharding of the frozen base. `layers` of the model include
/// embedding and head.
void draw_placement(actors::TrainerOptions& options, int layers, Draw& draw);

/// Draws jobs of models, with any rows, sharding, precision and faults. Compares each on a single stage, with all
/// states on the device, and in a drawn placement: messages come in any order, and work on streams may be late. Also
/// checks that frozen units keep their values, that replicas do not differ, and the bytes of a rank's states. The
/// numbers of jobs are for effort(); `first` is the seed of the first. Replay one with --seed=N.
void check_any_placement(const std::function<DrawnModel(Draw&)>& make, int usual, int all, int under_sanitizers,
                         std::uint64_t first = 0);

/// Initial values of a unit in a job, rounded to the layers' precision if it is frozen.
[[nodiscard]] std::vector<float> initial_values(const models::UnitSpec& unit,
                                                const actors::TrainerOptions& options);

}  // namespace ranvier::tests
