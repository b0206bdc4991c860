// Jobs that are watched while they train: by requests, by ill-behaved clients, and by a browser where there is one.
#include "apps/report/report_options.hpp"
#include "apps/view/live_run.hpp"
#include "apps/view/page_server.hpp"
#include "apps/view/serve_address.hpp"
#include "tests/apps/browser.hpp"
#include "tests/apps/http_client.hpp"
#include "tests/apps/small_run.hpp"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <csignal>
#include <regex>
#include <thread>

using namespace ranvier::tests;
using namespace std::chrono_literals;
namespace json = boost::json;

namespace {

/// Number of connections to a port of this machine with more unsent data in the kernel than a slow client's buffer
/// takes.
std::size_t held_answers(std::uint16_t port) {
  std::size_t held = 0;
  for (const std::string& line : lines_of(read_file("/proc/net/tcp"))) {
    // "  12: 0100007F:1F90 0100007F:C0DE 01 0001A2B3:00000000 …": local, remote, state, unsent and unread bytes
    std::istringstream words(line);
    std::string number, local, remote, state, bytes;
    words >> number >> local >> remote >> state >> bytes;
    if (local != fmt::format("0100007F:{:04X}", port)) continue;
    held += std::strtoul(bytes.c_str(), nullptr, 16) > (std::size_t{64} << 10) ? 1 : 0;
  }
  return held;
}

struct Fixture : SmallText {
  /// Waits for the line with the page's address.
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
  static bool has_browser() {
    if (!Browser::is_there()) MESSAGE("skipped: chromium is not installed");
    return Browser::is_there();
  }
  static std::string address(std::uint16_t port) { return "http://127.0.0.1:" + std::to_string(port) + "/"; }
  /// Saves a picture for people to look at.
  static void keep_screenshot(Browser& browser, const std::string& name) {
    const char* const named = std::getenv("RANVIER_SCREENSHOTS");
    const std::filesystem::path folder = named != nullptr ? named : RANVIER_SCREENSHOTS;
    std::filesystem::create_directories(folder);
    browser.save_screenshot(folder / (name + ".png"));
  }
  /// Curves, an evaluation, and all four ranks.
  static constexpr const char* page_shows_all =
      "document.querySelector('.values') !== null && document.querySelector('.evaluation') !== null && "
      "live.ranks !== null && live.ranks.ranks.length === 4";
  static constexpr const char* page_knows_the_end = "isOver() && !listening && !busy";
  static std::string ending(Browser& browser) {
    return browser.value("document.getElementById('ending').textContent").as_string().c_str();
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "a watched run gives the same bits, regardless of its watchers, and reports everything") {
  constexpr std::size_t compared = 100;
  // Both train until they are stopped, so that clients have enough time.
  const auto flags = [&](const std::string& name, const Flags& more = {}) {
    return small_run(text, join({"--g-inter", "2", "--g-data", "2", "--steps", "1000000", "--validation-split",
                                 "0.1", "--eval-every", "10", "--metrics", file(name + ".jsonl")},
                                more));
  };
  const auto end = [&](Job& job, const std::string& name) {
    REQUIRE(job.wait_for_lines(file(name + ".jsonl"), static_cast<int>(compared), 60s));
    job.signal_launcher(SIGUSR1);
    require_status(75, job.wait(60s));  // stopped as requested
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
  // Clients that read no response, some of which have requested more than buffers hold; clients that have sent half a
  // request, or nothing; clients that wait for the run's end.
  constexpr std::size_t slow = 20, requests = 400;
  const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  std::string many;
  for (std::size_t i = 0; i < requests; ++i) many += request;
  std::vector<HttpClient> others;
  for (std::size_t i = 0; i < 200; ++i) {
    others.emplace_back(port, 2048);
    others.back().send(i < slow  ? many
                       : i < 80  ? request
                       : i < 140 ? "GET /sta"
                       : i < 170 ? ""
                                 : "GET /phase?seen=3 HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  bool stuck = false;
  bool heard_ranks = false, scraped = false;
  double step = 0;
  for (int i = 0; i < 3000 && !(heard_ranks && scraped && stuck && step >= static_cast<double>(compared)); ++i) {
    stuck = stuck || held_answers(port) >= slow;
    step = get(port, "/status").at("step").to_number<double>();
    heard_ranks = heard_ranks || get(port, "/ranks").at("ranks").as_array().size() == 4;
    scraped = scraped || http_get(port, "/metrics").body.find("\nranvier_steps 1000000\n") != std::string::npos;
    CHECK(get(port, "/series?points=10").at("step").as_array().size() <= 10);
    std::this_thread::sleep_for(10ms);
  }
  CHECK(heard_ranks);
  CHECK(scraped);
  CHECK(stuck);
  CHECK(step >= static_cast<double>(compared));
  end(job, "watched");
  CHECK(first("alone", "loss") == first("watched", "loss"));
  CHECK(first("alone", "grad_norm") == first("watched", "grad_norm"));
}

TEST_CASE_FIXTURE(Fixture, "a page shows in a browser what a job does, during training and after it was stopped") {
  if (!has_browser()) return;
  Job job(4, endless_run());
  const std::uint16_t port = port_of(job);
  Browser browser(file("browser"));
  browser.look_like(1400, 1900);
  browser.open(address(port));
  REQUIRE(browser.becomes_true(page_shows_all));
  const std::string page(browser.value("document.documentElement.outerHTML").as_string());
  INFO(page);
  for (const char* words :
       {"gpt 4 × 32, 2 heads", "<b>training</b>", " / 1000000</b>", "2 stages × 2 rows", "class=\"values\"",
        "class=\"evaluation\"", " since the start", "inside nodes", "<td class=\"text\">microbatch-size</td>",
        "embedding … h.1", "<th>perplexity</th>", "<td class=\"text\">device</td>"}) {
    CAPTURE(words);
    check_has(page, {words});
  }
  for (const char* words : {"HellaSwag</th>", "accuracy</th>"}) {  // not in this run
    CAPTURE(words);
    check_lacks(page, {words});
  }
  CHECK(browser.value("count(999600) + count(1000) + count(999.6) + count(12.34) + count(-999600)") ==
        "1.00M1.00k1.00k12.3-1.00M");
  CHECK(ending(browser).empty());
  const std::string wider = "document.documentElement.scrollWidth > innerWidth";
  const std::string paper = "getComputedStyle(document.body).backgroundColor";
  const json::value light = browser.value(paper);
  keep_screenshot(browser, "page");
  browser.look_like(1400, 1900, true);
  CHECK(browser.value(paper) != light);
  keep_screenshot(browser, "dark");
  browser.look_like(360, 2600);
  browser.value("document.querySelectorAll('details').forEach(each => each.open = true)");
  CHECK(browser.value(wider) == json::value(false));
  CHECK(
      browser.value("[...document.querySelectorAll('.scroll')].filter(each => each.scrollWidth > each.clientWidth)"
                    ".map(each => each.firstChild.className).join()") == "");
  keep_screenshot(browser, "phone");
  browser.value("document.querySelectorAll('details').forEach(each => each.open = false)");
  browser.look_like(1400, 1900);

  REQUIRE(browser.becomes_true("live.status.step > 100"));
  const auto number = [&](const std::string& expression) { return browser.value(expression).to_number<double>(); };
  const auto middle = [&](const std::string& id, double across) {
    const std::string box = "document.getElementById('" + id + "').getBoundingClientRect()";
    return std::pair(number(box + ".left + " + std::to_string(across) + " * " + box + ".width"),
                     number(box + ".top + " + box + ".height / 2"));
  };
  const auto [left, y] = middle("plot-loss", 0.4);
  browser.drag(left, y, middle("plot-loss", 0.6).first, y);
  REQUIRE(browser.becomes_true(
      "range !== null && !document.getElementById('whole').hidden && "
      "live.series.step[0] >= range[0] && live.series.step[live.series.step.length - 1] < live.status.step"));
  CHECK(number("range[0]") > 1);
  CHECK(number("range[1] - range[0]") < number("live.status.step") / 2);
  keep_screenshot(browser, "zoomed");
  const auto [button_x, button_y] = middle("whole", 0.5);
  browser.drag(button_x, button_y, button_x, button_y);
  REQUIRE(browser.becomes_true(
      "range === null && document.getElementById('whole').hidden && live.series.step[0] < 100"));

  job.signal_launcher(SIGUSR1);
  CHECK(job.wait(60s).status == 75);  // stopped as requested
  REQUIRE(browser.becomes_true(page_knows_the_end));
  CHECK(std::regex_search(
      ending(browser), std::regex("^The run was stopped: after step [0-9]+ of 1000000, by SIGUSR1 at rank [0-9]")));
  CHECK(browser.value(page_shows_all) == json::value(true));  // the last data stay
  CHECK(browser.exceptions().empty());
  keep_screenshot(browser, "stopped");
}

TEST_CASE_FIXTURE(Fixture,
                  "a page that is open when a job ends has its last values, and shows that the job has finished") {
  if (!has_browser()) return;
  Job job(4, small_run(text, {"--g-inter", "2", "--g-data", "2", "--steps", "40", "--validation-split", "0.1",
                              "--eval-every", "40", "--timeout", "100", "--serve", "0"}));
  const std::uint16_t port = port_of(job);
  job.signal_rank(3, SIGSTOP);  // until the browser is connected
  Browser browser(file("browser"));
  browser.look_like(1400, 1900);
  browser.open(address(port));
  REQUIRE(browser.becomes_true("listening && heard"));
  job.signal_rank(3, SIGCONT);
  require_status(0, job.wait(60s));
  REQUIRE(browser.becomes_true(page_knows_the_end));
  CHECK(ending(browser) == "The run has finished. Below is the last data received.");
  CHECK(browser.value("document.getElementById('card-step').textContent") == "step40 / 40");
  CHECK(browser.value("document.querySelectorAll('.evaluation').length") == 1);
  CHECK(browser.value("live.series.step[live.series.step.length - 1]") == 40);
  CHECK(browser.exceptions().empty());
  keep_screenshot(browser, "done");
}

TEST_CASE_FIXTURE(Fixture, "a page names the rank that made a job fail, and keeps the data received before") {
  if (!has_browser()) return;
  struct Case {
    int signal;
    const char* name;
    const char* timeout;
    std::vector<std::string> words;
  };
  Browser browser(file("browser"));
  browser.look_like(1400, 1900);
  const std::vector<Case> cases{
      {SIGKILL, "killed", "20", {"rank 3 (stage 1, row 1) exited without an error message"}},
      {SIGSTOP, "silent", "3", {"rank 3 (stage 1, row 1) does not answer", "--timeout 3"}}};
  for (const Case& one : cases) {
    CAPTURE(one.name);
    // Open MPI gives the other ranks this many seconds to end, usually one, which may be too short on a busy machine.
    // It waits as long before it notifies them.
    Job job(4, small_run(text, join(endless_run(), {"--timeout", one.timeout})),
            {{"OMPI_MCA_odls_base_sigkill_timeout", "3"}});
    browser.open(address(port_of(job)));
    REQUIRE(browser.becomes_true(page_shows_all));
    CHECK(ending(browser).empty());
    job.signal_rank(3, one.signal);
    const Outcome outcome = require_failure(job.wait(60s));
    REQUIRE(browser.becomes_true(page_knows_the_end));
    const std::string said = ending(browser);
    INFO(said);
    CHECK(said.starts_with("The run has failed: "));
    check_has(said, one.words);
    CHECK(browser.value(page_shows_all) == json::value(true));
    CHECK(browser.exceptions().empty());
    keep_screenshot(browser, one.name);
  }
}

TEST_CASE_FIXTURE(Fixture, "a page shows in a browser 512 ranks and a million steps") {
  if (!has_browser()) return;
  using namespace ranvier;
  constexpr std::int64_t steps = 1'000'000;
  constexpr int stages = 16, rows = 32, ranks = stages * rows;
  apps::LiveRun run;
  apps::LiveRun::About about{
      .model = "made up", .item = "token", .steps = 2 * steps, .grid = {stages, rows}, .stages = {}, .options = {}};
  for (int stage = 0; stage < stages; ++stage)
    about.stages.push_back(json::parse(
        fmt::format(R"({{"layers":"h.{}","planned_bytes":{{"device":{{"parameters":1048576,"optimizer":0}},)"
                    R"("host":{{"parameters":0,"optimizer":4194304}}}}}})",
                    stage)));
  run.begin(about);
  run.set_phase("training");
  for (std::int64_t step = 1; step <= steps; ++step)
    run.take(fmt::format(
        R"({{"step":{},"loss":{:.4f},"grad_norm":1.5,"lr":0.001,"tokens":512,"tokens_per_second":1e6,"seconds":0.5}})",
        step, 2 + 8000.0 / (1000.0 + static_cast<double>(step)) + 0.1 * static_cast<double>(step % 7)));
  apps::RankSnapshot snapshot{.step = steps, .step_ms = 500, .at_seconds = 500'000, .ranks = {}};
  snapshot.ranks.resize(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    auto& [summary, spans] = snapshot.ranks[static_cast<std::size_t>(rank)];
    summary.seconds.fill(1000.0 * rank);
    summary.set_waits("waits for a message");
    for (std::size_t i = 0; i < apps::summary_spans(ranks); ++i)
      spans.push_back({.begin_ms = 15.0F * static_cast<float>(i),
                       .length_ms = 14,
                       .index = static_cast<std::int32_t>(i),
                       .kind = static_cast<std::uint8_t>((i + static_cast<std::size_t>(rank)) % 4)});
  }
  run.take(snapshot);
  apps::PageServer server("--serve 0", {},
                          [&](const apps::PageRequest& request) { return apps::answer_about(run, "", request); });
  // Size of the responses that a browser requests every two seconds.
  CHECK(http_get(server.port(), "/ranks").body.size() < std::size_t{1} << 20);
  CHECK(http_get(server.port(), "/series?points=1200").body.size() < std::size_t{1} << 19);

  Browser browser(file("browser"));
  browser.look_like(1400, 2900);
  browser.open(address(server.port()));
  REQUIRE(browser.becomes_true(
      "heard && live.ranks.ranks.length === 512 && document.querySelectorAll('.values').length === 5"));
  CHECK(browser.value("live.series.step[live.series.step.length - 1]") == steps);
  CHECK(browser.value("document.querySelectorAll('.ranks tr').length") == 65);  // 64 of them, and names of columns
  CHECK(browser.value("document.querySelectorAll('.memory tr').length") == 1 + 2 * stages);
  // Every row of the picture has all kinds of spans.
  const std::string colours = R"((() => {
    const rows = new Map();
    for (const path of document.querySelectorAll('.timeline path'))
      for (const [, y] of path.getAttribute('d').matchAll(/M\S+ (\d+)h/g))
        rows.set(y, (rows.get(y) || new Set()).add(path.getAttribute('fill')));
    return rows.size === 512 ? Math.min(...[...rows.values()].map(fills => fills.size)) : 0;
  })())";
  CHECK(browser.value(colours).to_number<double>() >= 4);
  keep_screenshot(browser, "large");
  static_cast<void>(browser.value("range = [654000, 655000], refresh(), 0"));
  REQUIRE(browser.becomes_true(
      "live.series.step[0] >= 654000 && live.series.step[live.series.step.length - 1] < 656000"));
  CHECK(browser.value("live.series.step.length").to_number<double>() > 20);
  browser.look_like(400, 2600);
  CHECK(browser.value("document.documentElement.scrollWidth > innerWidth") == json::value(false));
  CHECK(browser.exceptions().empty());
}

TEST_CASE_FIXTURE(Fixture, "a report shows several finished runs in a browser, from its file only, and prints") {
  if (!has_browser()) return;
  using namespace ranvier;
  const auto write = [&](const std::string& name, const std::string& content) {
    std::ofstream(file(name)) << content;
    return file(name);
  };
  const auto metrics = [&](int steps, const std::string& grid) {
    std::string lines;
    for (int step = 1; step <= steps; ++step)
      lines += fmt::format(
          R"({{"step":{},"loss":{},"grad_norm":1,"lr":0.001,"tokens":100,"seconds":0.5,"tokens_per_second":200,)"
          R"("mfu":0.25,"memory":{{"parameters":1048576}}{}}})"
          "\n",
          step, 1 + 9.0 / step,
          step == steps
              ? R"(,"validation_loss":1.5,"sample":"</script><b>","configuration":{"seed":"1",)" + grid + "}"
              : "");
    return lines + R"({"bad_step":7,"reason":"loss","action":"skip"})" + "\n";
  };
  std::string trace = R"({"traceEvents":[)";
  for (const auto& [kind, rank, begin] : std::vector<std::tuple<const char*, int, int>>{
           {"step", 0, 0}, {"forward", 0, 0}, {"wait", 0, 40}, {"send", 1, 10}, {"forward", 1, 20}})
    trace += fmt::format(
        "\n"
        R"({{"ph":"X","name":"{0} 3","cat":"{0}","pid":{1},"ts":{2}e3,"dur":{3}e3,"args":{{"step":3}}}},)",
        kind, rank, begin, *kind == 's' && rank == 0 ? 100 : 40);
  const std::string first = write("a.jsonl", metrics(300, R"("g-inter":"2","g-data":"1")")) + "," +
                            write("trace.json", trace + "\n{}]}\n");
  static_cast<void>(
      apps::write_report({.runs = {first, write("b.jsonl", metrics(200, R"("g-inter":"1","g-data":"1")"))},
                          .names = {"one", "<two>"},
                          .output = file("report.html"),
                          .title = "a < b"}));
  Browser browser(file("browser"));
  browser.look_like(1500, 1900);
  browser.open("file://" + file("report.html"));
  const auto number = [&](const std::string& expression) { return browser.value(expression).to_number<double>(); };
  const auto drawn = [&](const std::string& selector) {
    return number("document.querySelectorAll('" + selector + "').length");
  };
  const auto text = [&](const std::string& selector) {
    return std::string(browser.value("document.querySelector('" + selector + "').textContent").as_string());
  };
  CHECK(browser.value("document.title") == "a < b");
  CHECK(text("#names") == "one<two>");
  CHECK(text("#card-steps") == "steps300200");
  CHECK(drawn(".values") == 12);
  CHECK(drawn(".evaluation") == 2);
  CHECK(text("#warnings") == "one, step 7: bad step (loss): skip<two>, step 7: bad step (loss): skip");
  CHECK(text("#differing") == "optionone<two>g-inter21");
  CHECK(text("#options") == "optionone<two>seed11g-inter21g-data11");
  CHECK(browser.value("document.querySelector('details').open") == json::value(false));
  CHECK(text(".step-of") == "step 3, 100.0 ms");
  CHECK(text(".timeline").starts_with("stage 0 row 0stage 1 row 0330 ms"));  // names, microbatches, axis
  CHECK(drawn(".timeline path") == 3);                                       // forward, send, wait
  CHECK(text(".ranks tr:last-child") == "11044.4%44.4%0.0%");
  CHECK(text(".memory") == "kindplannedparameters1.0 MiB");
  CHECK(text("pre") == "</script><b>");
  CHECK(number("[...document.querySelectorAll('.timeline')].filter(each => each.checkVisibility()).length") == 1);
  keep_screenshot(browser, "report");
  static_cast<void>(browser.value("range = [50, 100], refresh(), 0"));
  check_has(text("#plot-loss"), {"100"});
  check_lacks(text("#plot-loss"), {"200"});
  CHECK(drawn(".evaluation") == 0);
  static_cast<void>(browser.value("document.getElementById('whole').click()"));
  CHECK(drawn(".evaluation") == 2);

  browser.look_like(360, 2600);
  CHECK(browser.value("document.documentElement.scrollWidth > innerWidth") == json::value(false));
  keep_screenshot(browser, "report_phone");
  browser.look_like(720, 1000, true, "print");
  static_cast<void>(browser.value("dispatchEvent(new Event('beforeprint'))"));
  CHECK(browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)");
  CHECK(browser.value("getComputedStyle(document.querySelector('.scroll')).overflow") == "visible");
  check_has(text("#plot-loss"), {"200"});
  CHECK(browser.value("document.querySelector('.timeline').getAttribute('viewBox')") == "0 0 900 54");
  keep_screenshot(browser, "report_print");
  CHECK(browser.exceptions().empty());
}
