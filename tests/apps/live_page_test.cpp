// Jobs that are watched while they train: by requests, by ill-behaved clients, and by a browser where there is one.
#include "tests/apps/http_client.hpp"
#include "tests/apps/small_run.hpp"

#include <boost/json/parse.hpp>
#include <doctest/doctest.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

using namespace ranvier::tests;
using namespace std::chrono_literals;
namespace json = boost::json;

namespace {

struct Fixture : SmallText {
  /// Waits for the line that says where the page is.
  static std::uint16_t port_of(const Job& job) {
    for (int i = 0; i < 1500; ++i) {
      const std::string said = job.said();
      const std::size_t at = said.find("page: http://127.0.0.1:");
      if (at != std::string::npos && said.find('\n', at) != std::string::npos)
        return static_cast<std::uint16_t>(std::atoi(said.c_str() + at + 23));
      std::this_thread::sleep_for(20ms);
    }
    FAIL("no page: " << job.said());
    return 0;
  }
  static json::object get(std::uint16_t port, const std::string& target) {
    const auto answer = http_get(port, target);
    REQUIRE(answer.status == 200);
    return json::parse(answer.body).as_object();
  }
  /// Until the value there is at least that.
  static void wait_for(std::uint16_t port, const char* name, double least) {
    for (int i = 0; i < 1500; ++i) {
      if (get(port, "/status").at(name).to_number<double>() >= least) return;
      std::this_thread::sleep_for(20ms);
    }
    FAIL("nothing happens");
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "a run that is watched trains to the same bits, whatever its watchers do, and tells all of it") {
  constexpr std::size_t compared = 100;
  // Both train until they are told to end: whoever watches has the time that it needs.
  const auto flags = [&](const std::string& name, const Flags& more = {}) {
    Flags all{"--g-inter",          "2",   "--g-data",     "2",  "--steps",   "1000000",
              "--validation-split", "0.1", "--eval-every", "10", "--metrics", file(name + ".jsonl")};
    all.insert(all.end(), more.begin(), more.end());
    return small_run(text, all);
  };
  const auto end = [&](Job& job, const std::string& name) {
    REQUIRE(job.wait_for_lines(file(name + ".jsonl"), static_cast<int>(compared), 60s));
    job.signal_launcher(SIGUSR1);
    const Outcome outcome = job.wait(60s);
    INFO(outcome.output);
    REQUIRE(outcome.status == 75);  // stopped, in order
  };
  const auto first = [&](const std::string& name, const std::string& key) {
    auto values = metric(file(name + ".jsonl"), key);
    REQUIRE(values.size() >= compared);
    values.resize(compared);
    return values;
  };
  {
    Job alone(4, flags("alone"));
    end(alone, "alone");
  }

  Job job(4, flags("watched", {"--serve", "0"}));
  const std::uint16_t port = port_of(job);
  std::vector<HttpClient> others;
  for (int i = 0; i < 100; ++i) others.emplace_back(port, 2048);
  for (std::size_t i = 0; i < others.size(); ++i)
    others[i].send(i % 2 == 0 ? "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" : "GET /sta");
  bool heard_ranks = false, scraped = false;
  double step = 0;
  for (int i = 0; i < 3000 && !(heard_ranks && scraped && step >= static_cast<double>(compared)); ++i) {
    step = get(port, "/status").at("step").to_number<double>();
    heard_ranks = heard_ranks || get(port, "/ranks").at("ranks").as_array().size() == 4;
    scraped = scraped || http_get(port, "/metrics").body.find("\nranvier_steps 1000000\n") != std::string::npos;
    CHECK(get(port, "/series?points=10").at("step").as_array().size() <= 10);
    std::this_thread::sleep_for(10ms);
  }
  CHECK(heard_ranks);
  CHECK(scraped);
  CHECK(step >= static_cast<double>(compared));
  end(job, "watched");
  CHECK(first("alone", "loss") == first("watched", "loss"));
  CHECK(first("alone", "grad_norm") == first("watched", "grad_norm"));
}

TEST_CASE_FIXTURE(Fixture, "a page shows in a browser what the ranks of a job do") {
  std::string browser;
  for (const char* path : {"/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"})
    if (browser.empty() && std::filesystem::exists(path)) browser = path;
  if (browser.empty()) {
    MESSAGE("skipped: there is no chromium");
    return;
  }
  Job job(4, small_run(text, {"--g-inter", "2", "--g-data", "2", "--steps", "1000000", "--validation-split", "0.1",
                              "--eval-every", "20", "--serve", "0"}));
  const std::uint16_t port = port_of(job);
  wait_for(port, "step", 25);
  bool heard = false;
  for (int i = 0; i < 1500 && !heard; ++i) {
    heard = get(port, "/ranks").at("ranks").as_array().size() == 4;
    std::this_thread::sleep_for(20ms);
  }
  REQUIRE(heard);
  const auto looks = [&](const std::string& more) {
    return "timeout 180 " + browser +
           " --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir=" + file("browser") +
           " --virtual-time-budget=6000 " + more + " http://127.0.0.1:" + std::to_string(port) + "/ 2>/dev/null";
  };
  std::string dom;
  std::FILE* output = ::popen(looks("--dump-dom").c_str(), "r");
  REQUIRE(output != nullptr);
  std::array<char, 4096> some;
  while (const std::size_t bytes = std::fread(some.data(), 1, some.size(), output)) dom.append(some.data(), bytes);
  CHECK(::pclose(output) == 0);
  INFO(dom);
  const auto shows = [&](const std::string& words) { return dom.find(words) != std::string::npos; };
  CHECK(shows("gpt 4 × 32, 2 heads"));
  CHECK(shows("<b>training</b>"));
  CHECK(shows(" / 1000000</b>"));
  CHECK(shows("2 stages × 2 rows"));
  CHECK(shows("class=\"values\""));  // curves
  CHECK(shows("class=\"evaluation\""));
  CHECK(shows("as heard "));  // of ranks
  CHECK(shows("inside nodes"));
  CHECK(shows("<td class=\"text\">microbatch-size</td>"));
  CHECK(shows("embedding … h.1"));
  CHECK(!shows("id=\"lost\" style=\"display: block"));
  if (const char* shots = std::getenv("RANVIER_SCREENSHOTS")) {
    for (const auto& [name, size] : {std::pair{"page", "1400,1900"}, {"phone", "400,2600"}})
      CHECK(std::system((looks("--screenshot=" + std::string(shots) + "/" + name + ".png --window-size=" + size) +
                         " >/dev/null")
                            .c_str()) == 0);
  }
  job.signal_launcher(15);
  job.wait(60s);
}
