#include "apps/bench/measurements.hpp"

#include "collectives/communicators/mpi_communicator.hpp"
#include "collectives/communicators/plan_communicator.hpp"
#include "collectives/plans/cost.hpp"
#include "runtime/base/arithmetic.hpp"

#include <algorithm>
#include <cstdio>
#include <set>

namespace ranvier::apps {

namespace {

using collectives::Collective;
using collectives::Communicator;
using collectives::PlanChoice;
using collectives::PlanCommunicator;
using collectives::Team;

constexpr auto dtype = runtime::DType::f32;

/// One algorithm at one size.
struct BenchCase {
  std::string algorithm;
  runtime::Buffer staging;
  std::unique_ptr<PlanCommunicator> plans;  ///< null: MPI's collective
  std::optional<double> predicted_seconds;
  std::vector<double> seconds;
};

class CollectiveBench {
 public:
  CollectiveBench(BenchRank& rank, const BenchOptions& options, std::span<const int> node_of,
                  const std::optional<collectives::Links>& links)
      : rank_(rank),
        options_(options),
        links_(links),
        team_(collectives::Groups(node_of, static_cast<int>(node_of.size())).column()),
        me_(team_.index_of(rank.session().rank())),
        nodes_(std::set<int>(node_of.begin(), node_of.end()).size()),
        mpi_(rank.session(), rank.loop(), team_, me_, team_.members),
        data_(rank.allocate(sizeof(float) * elements_of(*std::ranges::max_element(options.sizes)))) {
    // The data is zero, so repeated sums do not overflow.
  }

  void run() {
    std::size_t groups_left = options_.collectives.size() * options_.sizes.size();
    for (const Collective collective : options_.collectives) {
      for (const std::size_t bytes : options_.sizes) {
        const double left = options_.seconds - rank_.elapsed_seconds();
        if (left <= 0) {
          print_skipped(collective, bytes);
          continue;
        }
        time_together(collective, bytes, left / static_cast<double>(groups_left--));
      }
    }
  }

 private:
  /// Elements of a buffer of about `bytes`, a multiple of the number of ranks.
  [[nodiscard]] std::size_t elements_of(std::size_t bytes) const {
    const std::size_t ranks = team_.members.size();
    return std::max<std::size_t>(1, bytes / sizeof(float) / ranks) * ranks;
  }

  [[nodiscard]] bool prints() const { return rank_.session().rank() == 0; }

  /// Times all algorithms in turns, so that disturbances of the machine affect them equally.
  void time_together(Collective collective, std::size_t bytes, double seconds) {
    const std::size_t elements = elements_of(bytes);
    std::vector<BenchCase> cases;
    for (const std::string& name : options_.algorithms_of(collective))
      cases.push_back(make(collective, name, elements));
    double spent = 0;
    for (int round = 0; round <= options_.repeat; ++round) {  // the first does not count
      if (round > 1 && spent > seconds) break;
      for (BenchCase& each : cases) {
        const double took = rank_.slowest_seconds([&](runtime::Handler done) {
          const Communicator::Operand part{data_.data(), elements};
          Communicator& communicator = each.plans ? static_cast<Communicator&>(*each.plans) : mpi_;
          communicator.run(collective, {&part, 1}, dtype, each.algorithm, std::move(done));
        });
        spent += took;
        if (round > 0) each.seconds.push_back(took);
      }
    }
    if (prints()) {
      for (const BenchCase& each : cases) print(collective, each, elements * sizeof(float));
    }
  }

  BenchCase make(Collective collective, const std::string& name, std::size_t elements) {
    BenchCase made{.algorithm = name};
    if (name == "mpi") return made;
    const PlanChoice choice{.all_gather = name,
                            .reduce_scatter = name,
                            .all_reduce = name,
                            .chunk_bytes = options_.chunk_bytes,
                            .depth = options_.depth};
    const collectives::OperationShape shape{collective, {elements}, dtype};
    const std::size_t bytes = PlanCommunicator::staging_bytes(team_, me_, choice, {&shape, 1});
    made.staging = rank_.allocate(std::max<std::size_t>(bytes, 1));
    made.plans = std::make_unique<PlanCommunicator>(rank_.loop(), rank_.executor(),
                                                    PlanCommunicator::Options{.team = team_,
                                                                              .me = me_,
                                                                              .ranks = team_.members,
                                                                              .choice = choice,
                                                                              .staging = {made.staging.data()},
                                                                              .staging_bytes = bytes});
    if (links_) made.predicted_seconds = predict(collective, choice, elements);
    return made;
  }

  [[nodiscard]] double predict(Collective collective, const PlanChoice& choice, std::size_t elements) const {
    const int chunks = choice.chunks(team_.topology.ranks(), {&elements, 1}, dtype);
    const auto plan = choice.algorithm_of(collective).plan(team_.topology, elements, chunks, chunks - 1);
    return collectives::seconds(plan, team_.topology,
                                {.links = *links_,
                                 .element_bytes = size_of(dtype),
                                 .chunks = chunks,
                                 .depth = std::min(chunks, choice.depth)});
  }

  void print(Collective collective, const BenchCase& each, std::size_t bytes) const {
    const double seconds = runtime::median(each.seconds);
    fmt::print(R"({{"collective":"{}","algorithm":"{}","bytes":{},"ranks":{},"nodes":{},"seconds":{:.9f},)"
               R"("predicted_seconds":{},"bytes_per_second":{:.0f},"repeated":{}}})"
               "\n",
               to_string(collective), each.algorithm, bytes, team_.members.size(), nodes_, seconds,
               each.predicted_seconds ? fmt::format("{:.9f}", *each.predicted_seconds) : "null",
               static_cast<double>(bytes) / seconds, each.seconds.size());
    std::fflush(stdout);
  }

  void print_skipped(Collective collective, std::size_t bytes) const {
    if (!prints()) return;
    fmt::print(stderr, "ranvier-bench: {} of {} was skipped: --seconds {:g} used up\n", to_string(collective),
               bytes_text(bytes), options_.seconds);
  }

  BenchRank& rank_;
  const BenchOptions& options_;
  const std::optional<collectives::Links>& links_;
  Team team_;
  int me_;
  std::size_t nodes_;
  collectives::MpiCommunicator mpi_;
  runtime::Buffer data_;
};

}  // namespace

void time_collectives(BenchRank& rank, const BenchOptions& options, std::span<const int> node_of,
                      const std::optional<collectives::Links>& links) {
  CollectiveBench(rank, options, node_of, links).run();
}

}  // namespace ranvier::apps
