// Jobs that are watched while they train: by requests, by ill-behaved clients, and by a browser where there is one.
#include "tests/apps/browser.hpp"
#include "tests/apps/http_client.hpp"
#include "tests/apps/small_run.hpp"

#include <boost/json/parse.hpp>
#include <doctest/doctest.h>

#include <array>
#include <csignal>
#include <cstdlib>
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
  [[nodiscard]] Flags endless_run() const {
    return small_run(text, {"--g-inter", "2", "--g-data", "2", "--steps", "1000000", "--validation-split", "0.1",
                            "--eval-every", "20", "--serve", "0"});
  }
  static std::string address(std::uint16_t port) { return "http://127.0.0.1:" + std::to_string(port) + "/"; }
  /// Where somebody wants to look at it.
  static void keep_screenshot(Browser& browser, const std::string& name) {
    if (const char* const folder = std::getenv("RANVIER_SCREENSHOTS"))
      browser.save_screenshot(std::string(folder) + "/" + name + ".png");
  }
  /// Curves, an evaluation, and all four ranks.
  static constexpr const char* page_has_heard_all =
      "document.querySelector('.values') !== null && document.querySelector('.evaluation') !== null && "
      "ranks !== null && ranks.ranks.length === 4";
  static constexpr const char* page_is_lost =
      "getComputedStyle(document.getElementById('lost')).display !== 'none'";
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

TEST_CASE_FIXTURE(Fixture, "a page shows in a browser what a job does, while it trains and after it has ended") {
  if (!Browser::is_there()) {
    MESSAGE("skipped: there is no chromium");
    return;
  }
  Job job(4, endless_run());
  const std::uint16_t port = port_of(job);
  Browser browser(file("browser"));
  browser.look_like(1400, 1900);
  browser.open(address(port));
  REQUIRE(browser.becomes_true(page_has_heard_all));
  const std::string page(browser.value("document.documentElement.outerHTML").as_string());
  INFO(page);
  for (const char* words : {"gpt 4 × 32, 2 heads", "<b>training</b>", " / 1000000</b>", "2 stages × 2 rows",
                            "class=\"values\"", "class=\"evaluation\"", "as heard ", "inside nodes",
                            "<td class=\"text\">microbatch-size</td>", "embedding … h.1"}) {
    CAPTURE(words);
    CHECK(page.find(words) != std::string::npos);
  }
  CHECK(browser.value(page_is_lost) == json::value(false));
  const std::string wider = "document.documentElement.scrollWidth > innerWidth";
  const std::string paper = "getComputedStyle(document.body).backgroundColor";
  const json::value light = browser.value(paper);
  keep_screenshot(browser, "page");
  browser.look_like(1400, 1900, true);
  CHECK(browser.value(paper) != light);
  keep_screenshot(browser, "dark");
  browser.look_like(400, 2600);
  CHECK(browser.value(wider) == json::value(false));
  keep_screenshot(browser, "phone");
  browser.look_like(1400, 1900);

  job.signal_launcher(SIGUSR1);
  CHECK(job.wait(60s).status == 75);  // stopped, in order
  REQUIRE(browser.becomes_true(page_is_lost));
  CHECK(browser.value(page_has_heard_all) == json::value(true));  // what was heard last stays
  CHECK(browser.exceptions().empty());
  keep_screenshot(browser, "ended");
}

TEST_CASE_FIXTURE(Fixture, "a page shows in a browser that a job has failed, and what was heard of it before") {
  if (!Browser::is_there()) {
    MESSAGE("skipped: there is no chromium");
    return;
  }
  Job job(4, endless_run());
  Browser browser(file("browser"));
  browser.look_like(1400, 1900);
  browser.open(address(port_of(job)));
  REQUIRE(browser.becomes_true(page_has_heard_all));
  CHECK(browser.value(page_is_lost) == json::value(false));
  job.signal_rank(3, SIGKILL);
  const Outcome outcome = job.wait(60s);
  CHECK(!outcome.timed_out);
  CHECK(outcome.status != 0);
  REQUIRE(browser.becomes_true(page_is_lost));
  CHECK(browser.value(page_has_heard_all) == json::value(true));
  CHECK(browser.exceptions().empty());
  keep_screenshot(browser, "failed");
}
