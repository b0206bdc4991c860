// Status of all ranks on rank 0, sent while it is requested, in virtual time.
#include "apps/train/rank_watch.hpp"

#include "runtime/simulation/simulation.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace std::chrono_literals;
using apps::RankSnapshot;
using apps::RankWatch;
using runtime::SpanKind;
using runtime::Trace;

namespace {

struct WatchedJob {
  explicit WatchedJob(int ranks) : simulation(ranks, {.seed = 7}) {
    for (int r = 0; r < ranks; ++r) traces.push_back(std::make_unique<Trace>(r, simulation.loop(r)));
    for (int r = 0; r < ranks; ++r) {
      watches.push_back(std::make_unique<RankWatch>(
          simulation.loop(r), simulation.transport(r), *traces[static_cast<std::size_t>(r)],
          RankWatch::Options{.describe =
                                 [r](apps::RankSummary& summary) {
                                   summary.bytes_intra = 100.0 * r;
                                   summary.waits = {"waits"};
                                 },
                             .wanted = [this] { return wanted; },
                             .heard = [this](RankSnapshot snapshot) { heard.push_back(std::move(snapshot)); },
                             .failed = [this](std::string message) { failures.push_back(std::move(message)); }}));
    }
  }
  /// Runs for this duration.
  void run(runtime::Duration time) {
    for (std::size_t r = 0; r < watches.size(); ++r) {
      auto& loop = simulation.loop(static_cast<int>(r));
      loop.after(time, [&loop] { loop.stop(); });
    }
    simulation.run();
  }

  runtime::Simulation simulation;
  std::vector<std::unique_ptr<Trace>> traces;
  bool wanted = false;
  std::vector<RankSnapshot> heard;
  std::vector<std::string> failures;
  std::vector<std::unique_ptr<RankWatch>> watches;
};

}  // namespace

TEST_CASE("ranks are queried only while their status is requested, once per second") {
  for (const int ranks : {1, 2, 5}) {
    WatchedJob job(ranks);
    job.run(10s);
    CHECK(job.heard.empty());
    CHECK(job.simulation.transport(0).completed() == 0);
    job.wanted = true;
    job.run(10s);
    CHECK(job.heard.size() >= 9);
    CHECK(job.heard.size() <= 11);
    for (const RankSnapshot& snapshot : job.heard) {
      REQUIRE(snapshot.ranks.size() == static_cast<std::size_t>(ranks));
      for (int r = 0; r < ranks; ++r) {
        CHECK(snapshot.ranks[static_cast<std::size_t>(r)].summary.bytes_intra == 100.0 * r);
        CHECK(std::string(snapshot.ranks[static_cast<std::size_t>(r)].summary.waits.data()) == "waits");
      }
    }
    job.wanted = false;
    const std::size_t before = job.heard.size();
    job.run(10s);
    CHECK(job.heard.size() <= before + 1);
    // Queries and replies do not count as progress of a hanging rank.
    for (int r = 0; r < ranks; ++r) CHECK(job.simulation.transport(r).completed() == 0);
  }
}

TEST_CASE("spans of the last step arrive relative to that step, the longest ones if there are many") {
  WatchedJob job(2);
  const runtime::Duration start = job.simulation.loop(0).now();
  job.run(100ms);
  job.watches[0]->step_done(1);
  job.run(100ms);
  job.watches[0]->step_done(2);  // from 100 to 200 ms
  Trace& trace = *job.traces[1];
  trace.add(SpanKind::forward, Trace::Lane::compute, start + 10ms, start + 60ms, 0);    // in the step before
  trace.add(SpanKind::backward, Trace::Lane::compute, start + 90ms, start + 120ms, 4);  // in both steps
  for (int i = 0; i < 1000; ++i)
    trace.add(SpanKind::send, Trace::Lane::communicate, start + 130ms + i * 1us, start + 130ms + i * 1us + 500ns,
              i);
  trace.add(SpanKind::wait, Trace::Lane::loop, start + 150ms, start + 190ms);
  trace.add(SpanKind::forward, Trace::Lane::compute, start + 195ms, start + 205ms, 5);  // also in the next step
  trace.add(SpanKind::forward, Trace::Lane::compute, start + 205ms, start + 210ms, 6);
  job.wanted = true;
  job.run(2s);
  REQUIRE(!job.heard.empty());
  const RankSnapshot& snapshot = job.heard.front();
  CHECK(snapshot.step == 2);
  CHECK(snapshot.step_ms == doctest::Approx(100).epsilon(0.01));
  const auto& spans = snapshot.ranks[1].spans;
  CHECK(spans.size() == apps::summary_spans(2));
  std::vector<apps::SummarySpan> passes;
  for (const auto& span : spans)
    if (span.kind != static_cast<std::uint8_t>(SpanKind::send)) passes.push_back(span);
  REQUIRE(passes.size() == 3);
  CHECK(passes[0].index == 4);
  CHECK(passes[0].begin_ms == 0);
  CHECK(passes[0].length_ms == doctest::Approx(20).epsilon(0.01));
  CHECK(passes[1].begin_ms == doctest::Approx(50).epsilon(0.01));
  CHECK(passes[1].length_ms == doctest::Approx(40).epsilon(0.01));
  CHECK(passes[2].index == 5);
  CHECK(passes[2].begin_ms + passes[2].length_ms == doctest::Approx(100).epsilon(0.01));
  CHECK(snapshot.ranks[1].summary.seconds[static_cast<std::size_t>(SpanKind::wait)] == doctest::Approx(0.04));
  CHECK(snapshot.ranks[0].spans.empty());
}

TEST_CASE("a watch that ends while replies are in flight leaves nothing behind") {
  WatchedJob job(3);
  job.wanted = true;
  job.run(1s + 100us);  // during a query
  const std::size_t before = job.heard.size();
  REQUIRE(before == 0);  // in flight
  job.watches[0].reset();
  job.run(5s);
  CHECK(job.heard.size() == before);
}

TEST_CASE("rank 0 gets the reason why another rank fails, even after its watch is gone, and a long one truncated") {
  WatchedJob job(3);
  job.run(1s);
  CHECK(job.failures.empty());
  job.watches[2].reset();
  RankWatch::tell_failure(job.simulation.transport(2), "rank 2: no more space");
  const std::string longest(2000, 'x');
  RankWatch::tell_failure(job.simulation.transport(1), longest);
  job.run(1s);
  REQUIRE(job.failures.size() == 2);
  std::sort(job.failures.begin(), job.failures.end());
  CHECK(job.failures[0] == "rank 2: no more space");
  CHECK(job.failures[1] == longest.substr(0, 1023));
}

TEST_CASE("summaries of hundreds of ranks are small, and summaries of few show every pass") {
  CHECK(apps::summary_spans(1) == 220);
  CHECK(apps::summary_spans(64) == 220);
  CHECK(apps::summary_spans(512) == 32);
  CHECK(apps::summary_spans(100'000) == 16);
}

TEST_CASE("a rank's wait is truncated between words if it is too long") {
  apps::RankSummary summary;
  const auto said = [&] { return std::string(summary.waits.data()); };
  summary.set_waits("a message");
  CHECK(said() == "a message");
  const std::string longest(summary.waits.size() - 1, 'x');
  summary.set_waits(longest);
  CHECK(said() == longest);
  summary.set_waits("the activation " + longest);
  CHECK(said() == "the activation …");
  summary.set_waits("");
  CHECK(said().empty());
  for (std::size_t length = 1; length < 300; ++length) {
    std::string words;
    while (words.size() < length) words += "gradient ";
    summary.set_waits(words);
    REQUIRE(said().size() < summary.waits.size());
    REQUIRE((said() == words || said().ends_with("gradient …")));
  }
}
