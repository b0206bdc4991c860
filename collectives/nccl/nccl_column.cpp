#include "collectives/nccl/nccl_column.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <exception>
#include <utility>

namespace ranvier::collectives {

using runtime::Handler;
using runtime::Transport;

std::string nccl_version_text(int version) {
  // Version codes: major · 10000 + minor · 100 + patch since 2.9, before that major · 1000 + …
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int minor = version < 10000 ? version % 1000 / 100 : version % 10000 / 100;
  return fmt::format("{}.{}.{}", major, minor, version % 100);
}

/// A communicator of one flow of actors.
class NcclColumn::Member final : public Communicator {
 public:
  Member(const NcclColumn& column, TeamKind kind, int number, PlanCommunicator::Options options)
      : column_(column), kind_(kind), number_(number), options_(std::move(options)) {}

  [[nodiscard]] const Team& team() const noexcept override { return options_.team; }
  [[nodiscard]] int me() const noexcept override { return options_.me; }

  void run(Collective collective, std::span<const Operand> parts, runtime::DType dtype, std::string what,
           Handler done) override {
    const Topology& topology = options_.team.topology;
    const NcclMode mode = mode_of(column_.options_.ways, collective);
    std::vector<NcclStep> steps;
    try {
      if (mode != NcclMode::plan) {
        steps = nccl_steps(mode, collective, topology, options_.me, parts, dtype, packing());
      } else if (auto operands = plans_.of(collective, parts, dtype, to_string(collective))) {
        // Each is one phase. Phases of a team run one after another on a stream, so they share one staging buffer.
        if (!options_.staging.empty()) operands->staging = options_.staging.front();
        steps = plan_steps(topology, *operands);
      }
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", what, error.what()));
    }
    // If one rank has nothing to do, then no rank has.
    if (steps.empty()) return column_.loop_.post(std::move(done));
    column_.phases_->submit({.number = number_,
                             .team = kind_,
                             .what = std::move(what),
                             .steps = std::move(steps),
                             .dtype = dtype,
                             .done = std::move(done)});
  }

  [[nodiscard]] std::vector<UnderWay> running() const override { return column_.phases_->running(number_); }

 private:
  /// Steps of one span run one after another on a stream, so they share one buffer.
  [[nodiscard]] NcclPacking packing() const {
    if (options_.staging.size() < 2) return {};
    return {options_.staging[0], options_.staging[1], options_.staging_bytes};
  }

  const NcclColumn& column_;
  TeamKind kind_;
  int number_;
  PlanCommunicator::Options options_;
  PlanOperands plans_{options_};
};

NcclColumn::NcclColumn(runtime::EventLoop& loop, Transport& transport, runtime::Device& device,
                       NcclLibrary& library, Options options)
    : loop_(loop),
      options_(std::move(options)),
      connections_(std::make_shared<NcclConnections>(loop, transport, device, library, options_.timeout)),
      phases_(std::make_shared<NcclPhases>(loop, transport, device, library, connections_, options_.ranks)) {}

NcclColumn::~NcclColumn() {
  close();
  // Handlers in the transport keep the other members alive, since receives were posted into them.
  phases_->free_events();
  connections_->free_streams();
}

std::unique_ptr<Communicator> NcclColumn::communicator(TeamKind team, int number,
                                                       PlanCommunicator::Options options) {
  expect(!connections_->connected(), "a communicator of the {} was requested after NCCL was connected",
         to_string(team));
  const NcclModes& ways = options_.ways;
  phases_->add_communicator(number);
  connections_->add(team, options, std::find(ways.begin(), ways.end(), NcclMode::hierarchical) != ways.end());
  return std::make_unique<Member>(*this, team, number, std::move(options));
}

void NcclColumn::connect(Handler done) {
  connections_->connect([weak = std::weak_ptr(phases_), done = std::move(done)] {
    if (const auto phases = weak.lock()) phases->start();
    done();
  });
}

std::vector<Transport::Pending> NcclColumn::waited_for() const { return phases_->waited_for(); }

void NcclColumn::close() noexcept {
  // An exception ends the job: peers may be gone.
  connections_->close(!phases_->on_gpu() && std::uncaught_exceptions() == 0);
}

}  // namespace ranvier::collectives
