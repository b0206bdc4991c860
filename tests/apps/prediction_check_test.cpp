#include "apps/train/prediction_check.hpp"

#include "apps/train/totals.hpp"
#include "tests/apps/plan_profiles.hpp"
#include "tests/doubles/virtual_time.hpp"
#include "tests/apps/printed_errors.hpp"

#include <boost/json/parse.hpp>

using namespace ranvier;
using namespace ranvier::apps;
using namespace ranvier::tests;
using runtime::SpanKind;

namespace {

/// Two stages with two ranks each.
std::vector<RankTotals> four_ranks() {
  std::vector<RankTotals> ranks(4);
  for (std::size_t r = 0; r < 4; ++r) {
    ranks[r].step = {.seconds = 0.2,
                     .busy_seconds = 0.1 + 0.02 * static_cast<double>(r),
                     .bytes_intra = 1 << 20,
                     .bytes_inter = r < 2 ? 1 << 19 : 0.0,
                     .bytes_read = 3 << 20,
                     .bytes_written = r == 0 ? 1 << 20 : 0.0,
                     .steps = 3};
    ranks[r].device_bytes = (r + 1) << 20;
  }
  return ranks;
}

actors::Prediction prediction() {
  actors::Prediction made;
  made.step_seconds = 0.19;
  made.stages = {
      {.forward_seconds = 0.04, .backward_seconds = 0.05, .optimizer_seconds = 0.005, .step_seconds = 0.19},
      {.forward_seconds = 0.05, .backward_seconds = 0.1, .optimizer_seconds = 0.002, .step_seconds = 0.19}};
  made.traffic.assign(4, {.intra = 1 << 20, .read = 3 << 20});
  made.traffic[0].inter = made.traffic[1].inter = made.traffic[2].written = 1 << 19;
  made.device_bytes = 4 << 20;
  return made;
}

}  // namespace

TEST_CASE("a usual step is the median of all but the first, and evaluations between steps do not count") {
  SetClock clock;
  runtime::Trace trace(1, clock);
  const std::vector<int> nodes{0, 0, 2};
  StepMeter meter(1, nodes);
  CHECK(meter.usual().steps == 0);
  using std::chrono::milliseconds;
  std::array<std::uint64_t, 3> sent{};
  offload::FileBytes files;
  for (const int factor : {9, 1, 1, 50, 1}) {
    const auto begin = clock.time;
    clock.time += milliseconds(10 * factor);
    trace.add(SpanKind::forward, runtime::Trace::Lane::compute, begin, begin + milliseconds(2 * factor));
    trace.add(SpanKind::optimizer, runtime::Trace::Lane::compute, begin, begin + milliseconds(1 * factor));
    trace.add(SpanKind::wait, runtime::Trace::Lane::compute, begin, begin + milliseconds(5));
    sent[0] += 100 * static_cast<std::uint64_t>(factor);
    sent[2] += 7 * static_cast<std::uint64_t>(factor);
    files.read += 11 * static_cast<std::uint64_t>(factor);
    files.written += 3 * static_cast<std::uint64_t>(factor);
    meter.step(trace, sent, files);
  }
  const StepMeter::UsualStep step = meter.usual();
  CHECK(step.steps == 4);
  CHECK(step.seconds == doctest::Approx(10e-3));
  CHECK(step.busy_seconds == doctest::Approx(3e-3));
  CHECK(step.bytes_intra == 100);
  CHECK(step.bytes_inter == 7);
  CHECK(step.bytes_read == 11);
  CHECK(step.bytes_written == 3);
}

TEST_CASE("predictions are printed next to measurements, with the difference") {
  const auto profile = plan_profile(false);
  const PredictionCheck check = compare(prediction(), {2, 2}, profile, four_ranks());
  CAPTURE(check.text);
  check_has(check.text,
            {"prediction from profile 'test-cpu'", "step                      190.0 ms    200.0 ms      -5.0%\n",
             "stage 0 computes             50.0%       55.0%       -5.0\n",
             "stage 1 computes             80.0%       75.0%       +5.0\n",
             "sent inside nodes          4.0 MiB     4.0 MiB      +0.0%\n",
             "sent between nodes         1.0 MiB     1.0 MiB      +0.0%\n",
             "files read                12.0 MiB    12.0 MiB      +0.0%\n",
             "files written            512.0 KiB     1.0 MiB     -50.0%\n",
             "largest device memory      4.0 MiB     4.0 MiB      +0.0%\n"});
  check_lacks(check.text, {"GPU"});
  const auto record = boost::json::parse(check.record).as_object().at("prediction").as_object();
  CHECK(record.at("profile") == "test-cpu");
  CHECK(record.at("predicted").at("step_seconds").as_double() == doctest::Approx(0.19));
  CHECK(record.at("measured").at("step_seconds").as_double() == doctest::Approx(0.2));
  CHECK(record.at("measured").at("busy").as_array().size() == 2);
  CHECK(record.at("measured").at("file_bytes_read").as_double() == 12 << 20);
  CHECK(record.at("predicted").at("file_bytes_written").as_double() == 1 << 19);
}

TEST_CASE("bytes over the links of GPUs are printed without a measurement") {
  actors::Prediction made = prediction();
  for (actors::RankTraffic& rank : made.traffic) rank.to_device = 1 << 20;
  made.traffic[0].to_host = 1 << 20;
  const PredictionCheck check = compare(made, {2, 2}, plan_profile(true), four_ranks());
  CAPTURE(check.text);
  check_has(check.text, {"host to GPU                4.0 MiB", "GPU to host                1.0 MiB"});
  const auto record = boost::json::parse(check.record).as_object().at("prediction").as_object();
  CHECK(record.at("predicted").at("bytes_to_device").as_double() == 4 << 20);
  CHECK(!record.at("measured").as_object().contains("bytes_to_device"));
}

TEST_CASE("NCCL's bytes are printed separately from messages") {
  actors::Prediction made = prediction();
  for (actors::RankTraffic& rank : made.traffic) rank.nccl_intra = 3 << 20;
  made.traffic[0].nccl_inter = made.traffic[2].nccl_inter = 1 << 20;
  const PredictionCheck check = compare(made, {2, 2}, plan_profile(true), four_ranks());
  CAPTURE(check.text);
  check_has(check.text, {"sent inside nodes          4.0 MiB     4.0 MiB      +0.0%\n",
                         "sent between nodes         1.0 MiB     1.0 MiB      +0.0%\n",
                         "NCCL, inside nodes        12.0 MiB", "NCCL, between nodes        2.0 MiB"});
  const auto record = boost::json::parse(check.record).as_object().at("prediction").as_object();
  const auto& predicted = record.at("predicted").as_object();
  CHECK(predicted.at("bytes_inter").as_double() == 1 << 20);
  CHECK(predicted.at("nccl_bytes_intra").as_double() == 12 << 20);
  CHECK(predicted.at("nccl_bytes_inter").as_double() == 2 << 20);
  CHECK(!record.at("measured").as_object().contains("nccl_bytes_inter"));
  const PredictionCheck without = compare(prediction(), {2, 2}, plan_profile(true), four_ranks());
  check_lacks(without.text, {"NCCL"});
}

TEST_CASE("many stages share a line, and unused links have none") {
  constexpr int stages = 40;
  actors::Prediction made = prediction();
  made.stages.assign(stages, made.stages[0]);
  made.traffic.clear();
  std::vector<RankTotals> ranks(stages, four_ranks()[3]);
  const PredictionCheck check = compare(made, {stages, 1}, plan_profile(false), ranks);
  CAPTURE(check.text);
  check_has(check.text, {"average stage computes       50.0%       80.0%      -30.0\n"});
  check_lacks(check.text, {"stage 0 ", "between nodes"});
}

TEST_CASE("a profile of another kind of device is refused before training") {
  TrainOptions options;
  options.run.profile = "h100-sxm";
  const Error error = error_of([&] { static_cast<void>(profile_of_run(options, {}, 1)); });
  CHECK(error.code() == ErrorCode::usage);
  CHECK(says(error, "--profile h100-sxm describes GPUs"));
  options.run.profile = "nowhere.json";
  CHECK(says(printed_error_of([&] { static_cast<void>(profile_of_run(options, {}, 1)); }),
             "--profile nowhere.json: neither a file"));
}
