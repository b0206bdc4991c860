// The stored history of a run's records, and what its readers get.
#include "apps/view/history.hpp"

#include "apps/view/live_run.hpp"
#include "tests/apps/read_with_others.hpp"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

using namespace ranvier::apps;
using namespace ranvier::tests;
using doctest::Approx;
namespace json = boost::json;

namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

std::string step_line(std::int64_t step, double loss, double seconds = 0.5) {
  return fmt::format(
      R"({{"step":{},"loss":{},"grad_norm":1.5,"lr":0.001,"loss_scale":1,"skipped":false,"tokens":100,)"
      R"("seconds":{},"tokens_per_second":200,"mfu":0.25}})",
      step, loss, seconds);
}

json::object parsed(const LiveRun::Text& text) { return json::parse(*text).as_object(); }

/// Metric families of a text for Prometheus, each with its samples' lines.
std::vector<std::pair<std::string, std::vector<std::string>>> families(const std::string& text) {
  std::vector<std::pair<std::string, std::vector<std::string>>> all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ")) {
      const std::string name = line.substr(7, line.find(' ', 7) - 7);
      std::string type;
      REQUIRE(std::getline(lines, type));
      CHECK((type == "# TYPE " + name + " gauge" || type == "# TYPE " + name + " counter"));
      CHECK(type.ends_with(" counter") == name.ends_with("_total"));
      all.emplace_back(name, std::vector<std::string>());
      continue;
    }
    REQUIRE(!all.empty());
    const auto& name = all.back().first;
    CHECK(line.starts_with(name));
    CHECK((line[name.size()] == ' ' || line[name.size()] == '{'));
    all.back().second.push_back(line.substr(name.size()));
  }
  return all;
}

}  // namespace

TEST_CASE("a million steps become a bounded number of points that keep means, extremes and the ends") {
  constexpr std::int64_t steps = 1'000'000;
  Series series(1 << 12);
  double sum = 0;
  for (std::int64_t step = 1; step <= steps; ++step) {
    const double loss = step == 654'321 ? 99.0 : step == 123'456 ? -3.0 : 1.0 + static_cast<double>(step % 7);
    sum += loss;
    series.add(step, {loss, 1, 0.001, step == 777 ? none : 10.0, 1, none});
  }
  CHECK(series.size() <= 1 << 12);
  CHECK(series.last_step() == steps);
  for (const std::size_t most : {1, 2, 100, 777, 1 << 12}) {
    const auto points = series.between(0, steps, most);
    REQUIRE(!points.empty());
    CHECK(points.size() <= most);
    CHECK(points.front().first == 1);
    CHECK(points.back().last == steps);
    double mean = 0, least = 1e9, largest = -1e9;
    std::int64_t next = 1;
    std::size_t losses = 0, rates = 0;
    for (const StepBin& point : points) {
      CHECK(point.first == next);  // no step is missing or repeated
      next = point.last + 1;
      const BinnedValue& loss = point[Metric::loss];
      CHECK(loss.count == point.last - point.first + 1);
      mean += loss.mean * loss.count / steps;
      least = std::min<double>(least, loss.least);
      largest = std::max<double>(largest, loss.most);
      losses += loss.count;
      rates += point[Metric::throughput].count;
      CHECK(point[Metric::mfu].count == 0);
    }
    CHECK(losses == steps);
    CHECK(rates == steps - 1);
    CHECK(mean == Approx(sum / steps).epsilon(1e-9));
    CHECK(least == -3);
    CHECK(largest == 99);
  }
  // A part of it has a finer resolution.
  const auto part = series.between(654'000, 655'000, 1000);
  CHECK(part.size() > 2);
  CHECK(part.front().first <= 654'000);
  CHECK(part.back().last >= 655'000);
  CHECK(part.back().last < 656'000);
  CHECK(series.between(steps + 1, steps + 10, 10).empty());
}

TEST_CASE("repeated steps replace the earlier ones") {
  Series series(64);
  for (std::int64_t step = 1; step <= 10; ++step) series.add(step, {static_cast<double>(step), 1, 1, 1, 2, 1});
  CHECK(series.add(6, {60, 1, 1, 1, 2, 1}) == Approx(10));  // 6 to 10 took 2 s each
  const auto points = series.between(1, 100, 64);
  REQUIRE(points.size() == 6);
  CHECK(points[4][Metric::loss].mean == 5);
  CHECK(points[5][Metric::loss].mean == 60);
}

TEST_CASE("a history has a run's records, and accepts only lines that are records") {
  History history;
  CHECK(history.take(step_line(1, 5)));
  CHECK(history.take(
      R"({"step":2,"loss":4,"grad_norm":1,"lr":0.1,"tokens":100,"seconds":0.5,"tokens_per_second":200,)"
      R"("mfu":0.2,"skipped":true,"validation_loss":4.5,"validation_perplexity":90,"sample":"a\nb"})"));
  CHECK(history.take(R"({"step":2,"hellaswag_accuracy":0.25})"));
  CHECK(history.take(R"({"checkpoint":2,"bytes":1000,"seconds":1.5,"waited_seconds":0.25})"));
  CHECK(history.take(R"({"checkpoint":3,"bytes":0,"seconds":0,"waited_seconds":0,"failure":"full"})"));
  CHECK(
      history.take(R"({"bad_step":4,"reason":"loss","action":"skip","loss":null,"grad_norm":null,"in_a_row":1})"));
  CHECK(history.take(R"({"run":{"began":"2026","steps":9,"seed":1,"resumed_step":2}})"));
  CHECK(!history.take("{\"step\":"));
  CHECK(!history.take("7"));
  CHECK(history.series().size() == 2);
  REQUIRE(history.evaluations().size() == 1);
  CHECK(history.evaluations()[0].hellaswag == 0.25);
  CHECK(history.samples().back().text == "a\nb");
  CHECK(history.checkpoints().size() == 2);
  REQUIRE(history.warnings().size() == 2);
  CHECK(history.warnings()[0].text == "checkpoint failed: full");
  CHECK(history.warnings()[1].text == "bad step (loss): skip");
  CHECK(history.runs().size() == 1);
  CHECK(history.totals().tokens == 200);
  CHECK(history.totals().skipped == 1);
  CHECK(history.totals().checkpoint_waits == 0.25);
  // Rollback to the checkpoint of step 1.
  CHECK(history.take(step_line(2, 3)));
  CHECK(history.totals().steps == 2);
  CHECK(history.totals().tokens == 200);
  CHECK(history.totals().seconds == Approx(1.5));
  CHECK(history.totals().repeated_seconds == Approx(0.5));
  CHECK(history.evaluations().empty());
}

TEST_CASE("all contents of a history are bounded") {
  History history(256);
  const std::string text(100'000, 'x');
  for (int step = 1; step <= 5000; ++step) {
    history.take(step_line(step, 1));
    history.take(
        fmt::format(R"({{"step":{},"validation_loss":1.0,"sample":"{}"}})", step, step % 100 ? "x" : text));
    history.take(fmt::format(R"({{"checkpoint":{},"failure":"{}"}})", step, step % 100 ? "x" : text));
  }
  CHECK(history.series().size() <= 256);
  CHECK(history.evaluations().size() <= 2048);
  CHECK(history.evaluations().back().step == 5000);
  CHECK(history.samples().size() == 8);
  CHECK(history.samples().back().text.size() < 10'000);
  CHECK(history.checkpoints().size() == 64);
  CHECK(history.warnings().size() == 64);
  CHECK(history.warnings().back().text.size() < 500);
}

TEST_CASE("a watched run reports everything as JSON and for Prometheus") {
  LiveRun run;
  CHECK(!run.ranks_wanted());
  LiveRun::About about{
      .model = "a \"model\"\\", .item = "token", .steps = 10, .grid = {2, 1}, .stages = {}, .options = {}};
  about.stages = {json::parse(R"({"layers":"wte … h.1","planned_bytes":{"device":{"gradients":20}}})"),
                  json::parse(R"({"layers":"h.2","planned_bytes":{"host":{"optimizer":40}}})")};
  about.options = {{"Grid", "g-inter", "2", false}, {"Run", "empty", "", false}};
  run.begin(about);
  run.set_phase("training");
  for (int step = 1; step <= 5; ++step) run.take(step_line(step, 6.0 - step));
  run.take(R"({"step":5,"validation_loss":2.5,"validation_accuracy":0.75,"hellaswag_accuracy":0.5})");
  RankSnapshot snapshot{.step = 5, .step_ms = 500, .at_seconds = 2.5, .ranks = {}};
  snapshot.ranks.resize(2);
  snapshot.ranks[1].summary.waits = {"has waited for \"x\""};
  snapshot.ranks[1].summary.seconds[0] = 1.25;
  snapshot.ranks[1].summary.bytes_inter = 1e12;
  snapshot.ranks[1].spans = {{.begin_ms = 1.5F, .length_ms = 2.25F, .index = 3, .kind = 1, .lane = 0}};
  run.take(snapshot);
  snapshot.ranks[1].summary.bytes_inter = 3e12;
  run.take(snapshot);

  const json::object said = parsed(run.about());
  CHECK(said.at("model") == "a \"model\"\\");
  CHECK(said.at("options").as_array().size() == 1);
  CHECK(said.at("layers").at(0).at("planned_bytes").at("device").at("gradients") == 20);
  CHECK(said.at("layers").at(1).at("planned_bytes").at("host").at("optimizer") == 40);
  const json::object status = parsed(run.status());
  CHECK(status.at("phase") == "training");
  CHECK(status.at("step") == 5);
  CHECK(status.at("eta_seconds").to_number<double>() == Approx(2.5));
  CHECK(status.at("evaluations").at(0) == json::array{5, 2.5, 0.75, 0.5});
  const json::object series = parsed(run.series(2, 4, 100));
  CHECK(series.at("step") == json::array{2, 3, 4});
  CHECK(series.at("loss") == json::array{4, 3, 2});
  CHECK(parsed(run.series(0, 0, 2)).at("step") == json::array{3, 5});
  CHECK(parsed(run.series(0, 0, 2)).at("loss_most").at(0).to_number<double>() == 5);
  CHECK(parsed(run.series(0, 0, std::size_t{1} << 60)).at("step").as_array().size() == 5);
  CHECK(!run.ranks_wanted());
  const json::object ranks = parsed(run.ranks());
  CHECK(run.ranks_wanted());
  CHECK(!run.ranks_wanted(LiveRun::Clock::now() + std::chrono::seconds(30)));
  CHECK(ranks.at("ranks").at(1).at("waits") == "has waited for \"x\"");
  CHECK(ranks.at("ranks").at(1).at("inter_since").to_number<double>() == 2e12);
  CHECK(ranks.at("ranks").at(1).at("spans").at(0) == json::parse("[1,0,3,1.5,2.25]"));

  const auto all = families(*run.prometheus());
  const auto values = [&](const std::string& name) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.first == name; });
    REQUIRE(found != all.end());
    return found->second;
  };
  CHECK(values("ranvier_loss") == std::vector<std::string>{" 1"});
  CHECK(values("ranvier_validation_loss") == std::vector<std::string>{" 2.5"});
  CHECK(values("ranvier_validation_accuracy_ratio") == std::vector<std::string>{" 0.75"});
  CHECK(values("ranvier_hellaswag_accuracy_ratio") == std::vector<std::string>{" 0.5"});
  CHECK(values("ranvier_trained_tokens") == std::vector<std::string>{" 500"});
  CHECK(values("ranvier_info")[0] == R"({model="a \"model\"\\",stages="2",rows="1",phase="training"} 1)");
  CHECK(values("ranvier_rank_seconds_total")[8] == R"({rank="1",stage="1",row="0",kind="forward"} 1.25)");
  CHECK(values("ranvier_rank_sent_bytes_total")[3] == R"({rank="1",stage="1",row="0",link="inter"} 3000000000000)");
}

TEST_CASE("a watched run reports its phases and its end, once for each change") {
  std::vector<std::string> told;
  LiveRun run([&] {
    const auto phase = run.phase();
    told.push_back(phase.name + (phase.message.empty() ? "" : ": " + phase.message));
  });
  const auto begin = [&] {
    run.begin({.model = "m", .item = "token", .steps = 9, .grid = {1, 1}, .stages = {}, .options = {}});
  };
  CHECK(run.phase_after(0) == nullptr);  // nothing is new
  CHECK(parsed(run.phase_after(-1)).at("phase") == "starting");
  begin();
  run.set_phase("training");
  run.take(step_line(4, 2));
  run.stopping("SIGUSR1 at rank 0", "the run ends after step 5");
  run.set_phase("training");  // the current phase
  run.set_phase("saving");
  run.end(true);
  run.fail("too late");
  CHECK(told == std::vector<std::string>{"starting", "training",
                                         "stopping: SIGUSR1 at rank 0: the run ends after step 5",
                                         "saving: SIGUSR1 at rank 0: the run ends after step 5",
                                         "stopped: after step 4 of 9, by SIGUSR1 at rank 0"});
  CHECK(parsed(run.status()).at("phase") == "stopped");
  CHECK(parsed(run.status()).at("message") == "after step 4 of 9, by SIGUSR1 at rank 0");
  CHECK(run.prometheus()->find("phase=\"stopped\"") != std::string::npos);
  const std::int64_t number = run.phase().number;
  CHECK(run.phase_after(number) == nullptr);
  CHECK(parsed(run.phase_after(number - 1)).at("number") == number);
  told.clear();
  begin();  // a new run resumes
  run.end(false);
  CHECK(told == std::vector<std::string>{"starting", "done"});
  begin();
  run.fail("rank 3 is gone", false);
  run.stopping("SIGTERM", "soon");
  run.fail("so is rank 2", false);
  CHECK(told.back() == "failed: rank 3 is gone");
  run.fail("rank 3: no space");
  run.fail("rank 2: no space");
  CHECK(told.back() == "failed: rank 3: no space");
}

TEST_CASE("a watched run detects which ranks on its machine have exited") {
  const pid_t process = ::fork();
  if (process == 0) {
    ::pause();
    ::_exit(0);
  }
  REQUIRE(process > 0);
  LiveRun run;
  RankSnapshot snapshot;
  snapshot.ranks.resize(3);
  snapshot.ranks[0].summary.process = ::getpid();
  snapshot.ranks[2].summary.process = process;  // and rank 1 is on another machine
  run.take(snapshot);
  CHECK(run.lost_ranks().empty());
  ::kill(process, SIGKILL);
  ::waitpid(process, nullptr, 0);
  CHECK(run.lost_ranks() == std::vector<int>{2});
  run.take(snapshot);  // nothing is known about processes that never existed
  CHECK(run.lost_ranks().empty());
}

TEST_CASE("another run in the same file does not count as repeated steps") {
  History history;
  for (int step = 1; step <= 3; ++step) history.take(step_line(step, 4));
  history.take(R"({"run":{"began":"2026","steps":3,"seed":1}})");
  for (int step = 1; step <= 3; ++step) history.take(step_line(step, 4));
  CHECK(history.totals().steps == 3);
  CHECK(history.totals().seconds == doctest::Approx(1.5));
  CHECK(history.totals().repeated_seconds == 0);
}

TEST_CASE("Prometheus's own reader accepts the output") {
  LiveRun run;
  run.begin({.model = "a \"b\"\\", .item = "image", .steps = 3, .grid = {1, 2}, .stages = {}, .options = {}});
  run.take(R"({"step":2,"loss":null,"grad_norm":0.5,"tokens":8,"tokens_per_second":200})");
  RankSnapshot snapshot;
  snapshot.ranks.resize(2);
  run.take(snapshot);
  const TemporaryFolder folder;
  const auto text = read_with("prometheus", folder.write("metrics", *run.prometheus()).string());
  if (!text) return;
  for (const char* line :
       {"gauge ranvier_info {'model': 'a \"b\"\\\\', 'stages': '1', 'rows': '2', 'phase': 'starting'} 1",
        "gauge ranvier_step {} 2", "gauge ranvier_loss {} nan", "gauge ranvier_images_per_second {} 200",
        "counter ranvier_bad_steps_total {} 0",
        "counter ranvier_rank_sent_bytes_total {'rank': '1', 'stage': '0', 'row': '1', 'link': 'inter'} 0"})
    CHECK_MESSAGE(text->find(line + std::string("\n")) != std::string::npos, line, " is not in ", *text);
}

TEST_CASE("a watched run without records still gives a complete response") {
  const LiveRun run;
  for (const auto& text : {run.about(), run.status(), run.series(0, 0, 100), run.ranks()})
    CHECK(json::parse(*text).is_object());
  CHECK(families(*run.prometheus()).size() > 10);
}

TEST_CASE("a warning is recorded when a rank becomes a straggler, and when it no longer is one") {
  History history;
  const auto take = [&](int step, const std::string& stragglers) {
    return history.take(fmt::format(R"({{"step":{},"loss":4,"grad_norm":1,"seconds":0.5{}}})", step,
                                    stragglers.empty() ? "" : ",\"stragglers\":" + stragglers));
  };
  constexpr const char* third = R"({"rank":3,"times":1.524,"seconds_per_step":0.1234})";
  constexpr const char* fifth = R"({"rank":5,"times":2,"seconds_per_step":1})";
  take(1, "");
  take(2, fmt::format("[{}]", third));
  take(3, fmt::format("[{},{}]", third, fifth));
  take(4, fmt::format("[{}]", fifth));
  take(5, fmt::format("[{}]", fifth));
  const auto& warnings = history.warnings();
  REQUIRE(warnings.size() == 3);
  CHECK(warnings[0].step == 2);
  CHECK(warnings[0].text ==
        "straggler: rank 3 computes 1.52 times as long as its stage's median row; cost 0.123 s per step");
  CHECK(warnings[1].text ==
        "straggler: rank 5 computes 2.00 times as long as its stage's median row; cost 1 s per step");
  CHECK(warnings[2].step == 4);
  CHECK(warnings[2].text == "no longer a straggler: rank 3");
  // A resumed run detects them again.
  history.take(R"({"run":{"began":"2026","resumed_step":5}})");
  take(6, fmt::format("[{},{}]", third, fifth));
  REQUIRE(warnings.size() == 4);
  check_has(warnings[3].text, {"; rank 5 computes"});
  // Anything but a list of ranks is ignored.
  for (const char* odd : {"3", "[]", "[3,\"a\",{}]", "[{\"rank\":\"3\"}]", "[{\"rank\":7}]"}) CHECK(take(7, odd));
}
