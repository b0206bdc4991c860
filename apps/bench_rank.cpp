#include "apps/bench_rank.hpp"

#include "collectives/tree.hpp"

#include <numeric>
#include <vector>

namespace ranvier::apps {

namespace {

// Apart from those of what is measured.
constexpr auto barrier_channel = runtime::Channel::summary;

}  // namespace

BenchRank::BenchRank(runtime::MpiSession& session)
    : session_(session),
      device_(runtime::make_cpu_device({})),
      additions_(device_->make_stream("additions", runtime::StreamWidth::one)),
      transport_(session, loop_),
      executor_(loop_, transport_, *additions_) {
  device_->on_failure([this](std::exception_ptr error) { loop_.stop(std::move(error)); });
  const collectives::Plan plan = collectives::tree_all_reduce(session.ranks(), 1);
  const auto scripts =
      std::make_shared<const std::vector<collectives::Script>>(1, collectives::script_of(plan, session.rank()));
  barrier_ = {.parts = {{reinterpret_cast<std::byte*>(&barrier_value_), scripts}},
              .members = std::vector<int>(session.ranks()),
              .me = session.rank(),
              .dtype = runtime::DType::f64,
              .channel = barrier_channel,
              .depth = 1};
  std::iota(barrier_.members.begin(), barrier_.members.end(), 0);
  barrier_staging_ =
      std::make_unique<double[]>(collectives::Executor::staging_bytes(barrier_) / sizeof(double) + 1);
  barrier_.staging = reinterpret_cast<std::byte*>(barrier_staging_.get());
}

double BenchRank::slowest(Clock::duration duration) {
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(duration);
  return 1e-9 * static_cast<double>(session_.largest(nanoseconds.count()));
}

double BenchRank::slowest_seconds(const Work& work) {
  Clock::time_point begin, end;
  executor_.run(barrier_, [&] {
    begin = Clock::now();
    work([&] {
      end = Clock::now();
      loop_.stop();
    });
  });
  loop_.run();
  return slowest(end - begin);
}

double BenchRank::elapsed_seconds() { return slowest(Clock::now() - made_); }

}  // namespace ranvier::apps
