// Jobs that are watched while they train: by requests, by ill-behaved clients, and by a browser where there is one.
#include "tests/apps/http_client.hpp"
#include "tests/apps/small_run.hpp"

#include <boost/json/parse.hpp>
#include <doctest/doctest.h>

#include <array>
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
  const auto result = [&](const Flags& more, const std::string& name) {
    Flags flags{"--g-inter",
                "2",
                "--g-data",
                "2",
                "--steps",
                "100",
                "--validation-split",
                "0.1",
                "--eval-every",
                "10",
                "--metrics",
                file(name + ".jsonl"),
                "--save",
                file(name + ".safetensors")};
    flags.insert(flags.end(), more.begin(), more.end());
    return small_run(text, flags);
  };
  const Outcome alone = run(4, result({}, "alone"), 60s);
  INFO(alone.output);
  REQUIRE(alone.status == 0);

  Job job(4, result({"--serve", "0"}, "watched"));
  const std::uint16_t port = port_of(job);
  std::vector<HttpClient> others;
  for (int i = 0; i < 100; ++i) others.emplace_back(port, 2048);
  for (std::size_t i = 0; i < others.size(); ++i)
    others[i].send(i % 2 == 0 ? "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" : "GET /sta");
  json::object status = get(port, "/status"), ranks = get(port, "/ranks");
  bool heard_ranks = false;
  std::string prometheus;
  for (int i = 0; i < 3000 && status.at("step").to_number<int>() < 100; ++i) {
    HttpClient client(port);
    const auto answer = client.get("/status");
    if (answer.status != 200) break;  // the job has ended
    status = json::parse(answer.body).as_object();
    const auto all = client.get("/ranks"), scraped = client.get("/metrics"),
               series = client.get("/series?points=10");
    if (all.status == 200) ranks = json::parse(all.body).as_object();
    if (scraped.status == 200) prometheus = scraped.body;
    if (series.status == 200) CHECK(json::parse(series.body).at("step").as_array().size() <= 10);
    heard_ranks = heard_ranks || ranks.at("ranks").as_array().size() == 4;
    std::this_thread::sleep_for(2ms);
  }
  const Outcome watched = job.wait(60s);
  INFO(watched.output);
  REQUIRE(watched.status == 0);
  CHECK(status.at("steps") == 100);
  CHECK(heard_ranks);
  CHECK(prometheus.find("\nranvier_steps 100\n") != std::string::npos);
  CHECK(metric(file("alone.jsonl"), "loss") == metric(file("watched.jsonl"), "loss"));
  CHECK(metric(file("alone.jsonl"), "grad_norm") == metric(file("watched.jsonl"), "grad_norm"));
  CHECK((read_file(file("alone.safetensors")) == read_file(file("watched.safetensors"))));
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
  get(port, "/ranks");
  std::this_thread::sleep_for(1500ms);  // they are asked by now
  const auto looks = [&](const std::string& more) {
    return "timeout 60 " + browser +
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
