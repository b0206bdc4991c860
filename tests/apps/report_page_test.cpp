// Reports about runs, from files in ranvier-train's format.
#include "apps/report/report_options.hpp"
#include "apps/report/report_page.hpp"

#include "apps/view/page.hpp"
#include "runtime/trace/trace.hpp"
#include "tests/apps/flags.hpp"
#include "tests/apps/printed_errors.hpp"

#include <boost/json/parse.hpp>

using namespace ranvier;
using namespace ranvier::apps;
using namespace ranvier::tests;
using namespace std::chrono_literals;
using doctest::Approx;
namespace json = boost::json;

namespace {

struct Fixture : InFolder {
  /// Losses 1 + 9 / step, with 0.5 s per step.
  [[nodiscard]] std::string metrics(const std::string& name, int steps, const std::string& more = {}) const {
    std::string text;
    for (int step = 1; step <= steps; ++step)
      text += fmt::format(
          R"({{"step":{},"loss":{},"grad_norm":1,"lr":0.001,"loss_scale":1,"skipped":false,"tokens":100,"seconds":0.5,)"
          R"("tokens_per_second":200,"mfu":0.25,"measured_mfu":0.5,"memory":{{"parameters":1048576,"nvme":0}}{}}})"
          "\n",
          step, 1 + 9.0 / step,
          step == 1       ? R"(,"configuration":{"seed":"1","data":"<b>"})"
          : step == steps ? ",\"validation_loss\":1.5"
                          : "");
    return folder.write(name, text + more).string();
  }
  [[nodiscard]] static ReportOptions options(const std::vector<std::string>& arguments) {
    return parse_flags("ranvier-report", arguments, parse_report_options);
  }
};

std::string value(const std::vector<SummaryRow>& rows, const std::string& name, std::size_t run = 0) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.name == name; });
  return found == rows.end() ? "no row" : found->values.at(run);
}

/// The data in a page.
json::object data_of(const std::string& page) {
  const std::string_view begin = "<script id=\"report\" type=\"application/json\">", end = "</script>";
  REQUIRE(count_of(page, std::string(begin)) == 1);
  const std::size_t at = page.find(begin) + begin.size();
  return json::parse(page.substr(at, page.find(end, at) - at)).as_object();
}

double share(const RankSnapshot& ranks, std::size_t rank, runtime::SpanKind kind) {
  return ranks.ranks.at(rank).summary.seconds[static_cast<std::size_t>(kind)] / ranks.at_seconds;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a report has runs side by side, in one file without external resources") {
  const std::string first = metrics("a.jsonl", 200), second = metrics("b.jsonl", 100,
                                                                      "{\"checkpoint\":100,\"bytes\":1,"
                                                                      "\"seconds\":1,\"waited_seconds\":50}\n");
  CHECK(write_report(options({first, second, "--names", "one,<two>", "-o", file("report.html")})) ==
        "report: " + file("report.html") + "\n");
  const std::string page = folder.read("report.html");
  CHECK(page.starts_with("<!doctype html>"));
  CHECK(page.ends_with("</html>\n"));
  for (const char* outside : {"https://", "<script src", "<img", "url(", "@import", "<b>", "<two>"})
    CHECK(count_of(page, outside) == 0);
  CHECK(count_of(page, "<link") == count_of(page, "<link rel=\"icon\" href=\"data:,\">"));
  CHECK(count_of(page, "http://") == count_of(page, "http://www.w3.org/2000/svg"));  // a name
  check_has(page, {"<title>one, &lt;two&gt;</title>",
                   "JavaScript. one, &lt;two&gt;; steps: 200, 100; tokens or images: 20k, 10k;"});
  const json::object data = data_of(page);
  CHECK(data.at("title") == "one, <two>");
  CHECK(data.at("summary").at(0) == json::array{"steps", json::array{"200", "100"}});
  const json::value& one = data.at("runs").at(0);
  const json::value& two = data.at("runs").at(1);
  CHECK(two.at("name") == "<two>");
  CHECK(two.at("about").at("options") == json::parse(R"([["","seed","1"],["","data","<b>"]])"));
  CHECK(one.at("series").at("step").as_array().size() == 200);
  CHECK(two.at("series").at("loss").at(1).to_number<double>() == 5.5);
  CHECK(two.at("series").at("measured_mfu").at(99).to_number<double>() == 0.5);
  CHECK(one.at("status").at("evaluations") == json::parse("[[200,1.5,null,null]]"));
  CHECK(one.at("status").at("last").at("memory").at("parameters") == 1048576);
  CHECK(two.at("status").at("checkpoints").at(0).at("waited_seconds").to_number<double>() == 50);
  CHECK(one.at("ranks").at("ranks").as_array().empty());
  const auto rows = summary_rows({read_run({first, {}}, "a"), read_run({second, {}}, "b")});
  CHECK(value(rows, "steps") == "200");
  CHECK(value(rows, "tokens or images") == "20k");
  CHECK(value(rows, "throughput per second", 1) == "200");
  CHECK(value(rows, "goodput per second", 0) == "200");
  CHECK(value(rows, "goodput per second", 1) == "100");  // checkpoints stalled it for as long as its steps took
  CHECK(value(rows, "productive time", 1) == "50.0%");
  CHECK(value(rows, "MFU") == "25.0%");
  CHECK(value(rows, "measured MFU") == "50.0%");
  CHECK(value(rows, "last loss", 1) == "1.0905");  // mean of steps 99 and 100
  CHECK(value(rows, "best validation loss") == "1.5");
  CHECK(value(rows, "waiting") == "no row");
  CHECK(value(rows, "best validation accuracy") == "no row");
}

TEST_CASE_FIXTURE(
    Fixture, "a report has device-hours, with a price the cost of a run and of a million tokens, and accuracies") {
  // 7200 steps of 0.5 s and half an hour of waiting on 2 × 4 devices, for 720,000 tokens.
  const std::string path = metrics(
      "a.jsonl", 7200,
      R"({"step":7201,"grad_norm":1,"tokens":0,"seconds":0,"configuration":{"g-inter":"2","g-data":"4"},)"
      R"("validation_accuracy":0.75,"hellaswag_accuracy":0.5})"
      "\n"
      R"({"step":7202,"grad_norm":1,"tokens":0,"seconds":0,"validation_loss":1.5,"validation_accuracy":0.5})"
      "\n"
      R"({"checkpoint":7202,"bytes":1,"seconds":1,"waited_seconds":1800})"
      "\n");
  const std::vector<RunFile> runs{read_run({path, {}}, "a")};
  const auto without = summary_rows(runs), rows = summary_rows(runs, 2.5);
  CHECK(value(without, "device-hours") == "12");
  CHECK(value(without, "cost") == "no row");
  CHECK(value(rows, "cost") == "30");
  CHECK(value(rows, "cost per million tokens or images") == "41.667");
  CHECK(value(rows, "last validation accuracy") == "50.0%");
  CHECK(value(rows, "best validation accuracy") == "75.0%");
  CHECK(value(rows, "last HellaSwag") == "50.0%");
  CHECK(!write_report(options({path, "--price", "2.5", "-o", file("r.html")})).empty());
  const json::value summary = data_of(folder.read("r.html")).at("summary");
  CHECK(std::ranges::count(summary.as_array(), json::value(json::array{"cost", json::array{"30"}})) == 1);
  CHECK(says(printed_error_of([&] { static_cast<void>(options({path, "--price", "-1"})); }),
             "--price is invalid: -1"));
  // The number of devices is unknown.
  CHECK(value(summary_rows({read_run({metrics("b.jsonl", 2), {}}, "b")}, 1), "device-hours") == "no row");
}

TEST_CASE_FIXTURE(Fixture, "a report has the ranks' timeline from a trace, and the prediction of a profile") {
  struct Hand final : runtime::Clock {
    [[nodiscard]] runtime::Duration now() const override { return {}; }
  } clock;
  std::vector<std::string> events;
  for (int rank = 0; rank < 2; ++rank) {
    runtime::Trace trace(rank, clock);
    for (int step = 1; step <= 2; ++step) {
      const runtime::Duration begin = (step - 1) * 100ms;
      trace.set_activity(runtime::SpanKind::step, step);
      trace.add(runtime::SpanKind::forward, runtime::Trace::Lane::compute, begin, begin + 40ms, 0);
      trace.add(runtime::SpanKind::wait, runtime::Trace::Lane::loop, begin + 40ms,
                begin + 40ms + (rank + 1) * 10ms);
      trace.add(runtime::SpanKind::step, runtime::Trace::Lane::steps, begin, begin + 100ms, step);
    }
    events.push_back(trace.chrome_events());
  }
  runtime::write_trace_file(file("trace.json"), events);
  const std::string path =
      metrics("metrics.jsonl", 3,
              R"({"prediction":{"profile":"here","predicted":{"step_seconds":0.4,"bytes_intra":2048},)"
              R"("measured":{"step_seconds":0.5,"bytes_intra":1024}}})"
              "\n");
  const RankSnapshot trace = read_trace(file("trace.json"));
  CHECK(trace.step == 2);
  CHECK(trace.step_ms == Approx(100));
  CHECK(trace.at_seconds == Approx(0.2));
  CHECK(share(trace, 0, runtime::SpanKind::wait) == Approx(0.1));
  CHECK(share(trace, 1, runtime::SpanKind::wait) == Approx(0.2));
  REQUIRE(trace.ranks.at(1).spans.size() == 2);
  CHECK(trace.ranks[1].spans[1].kind == static_cast<std::uint8_t>(runtime::SpanKind::wait));
  CHECK(trace.ranks[1].spans[1].begin_ms == Approx(40));
  for (const std::string& given : {folder.path().string(), path + "," + file("trace.json")}) {
    const auto rows = summary_rows({read_run(run_paths(given), "x")});
    CHECK(value(rows, "waiting") == "15.0%");
    CHECK(value(rows, "computing") == "40.0%");
    CHECK(value(rows, "predicted / measured step") == "400.0 ms / 500.0 ms (-20.0%)");
    CHECK(value(rows, "predicted / measured bytes inside nodes") == "2.0 KiB / 1.0 KiB (+100.0%)");
  }
  CHECK(!write_report(options({folder.path().string(), "-o", file("report.html")})).empty());
  const json::value ranks = data_of(folder.read("report.html")).at("runs").at(0).at("ranks");
  CHECK(ranks.at("step") == 2);
  CHECK(ranks.at("step_ms").to_number<double>() == 100);
  REQUIRE(ranks.at("ranks").as_array().size() == 2);
  const json::value& spans = ranks.at("ranks").at(1).at("spans");
  CHECK(spans.as_array().size() == 2);
  CHECK(ranks.at("kinds").at(spans.at(0).at(0).to_number<std::size_t>()) == "forward");
  CHECK(ranks.at("kinds").at(spans.at(1).at(0).to_number<std::size_t>()) == "wait");

  const std::string run = folder.path().string();
  CHECK(write_report(options({run, "--timeline", file("t.svg"), "--title", "a < b"})) ==
        "timeline: " + file("t.svg") + "\n");
  const std::string picture = folder.read("t.svg");
  CHECK(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" "));
  CHECK(picture.ends_with("</svg>\n"));
  CHECK(count_of(picture, ">a &lt; b</text>") == 1);
  CHECK(count_of(picture, "prefers-color-scheme:dark") == 1);
  CHECK(count_of(picture, "<rect class=\"forward\"") == 3);  // two ranks and a key
  CHECK(count_of(picture, "<rect class=\"optimizer\"") == 0);
  CHECK(count_of(picture, "<text class=\"in\"") == 2);  // microbatch 0 on both

  // A trace is enough for a timeline.
  static_cast<void>(
      write_report(options({file("trace.json"), "--timeline", file("alone.svg"), "--title", "a < b"})));
  CHECK(folder.read("alone.svg") == picture);
  for (const char* const kind : {"--output", "--csv"}) {
    const Error error = printed_error_of(
        [&] { static_cast<void>(write_report(options({file("trace.json"), kind, file("other")}))); });
    check_has(error.what(), {"a trace only: " + file("trace.json"), "METRICS,TRACE"});
  }
}

TEST_CASE_FIXTURE(Fixture,
                  "ranks of a timeline have their stages and rows as names if the configuration has the grid") {
  RunFile run = read_run({metrics("m.jsonl", 2), {}}, "run");
  run.ranks = {.step = 3, .step_ms = 10, .ranks = {}};
  for (int rank = 0; rank < 4; ++rank)
    run.ranks.ranks.push_back(
        {{},
         {{.begin_ms = 0, .length_ms = 5, .index = rank, .kind = 0}, {.begin_ms = 5, .length_ms = 1, .kind = 6}}});
  check_has(timeline_file(run, ""), {">Step 3, 10.0 ms</text>"});
  run.history.take(R"({"step":3,"grad_norm":1,"configuration":{"g-inter":"2","g-data":"2"}})");
  const std::string picture = timeline_file(run, "");
  check_has(picture,
            {">Step 3, 10.0 ms: 2 stages × 2 rows</text>", ">stage 1, row 0</text>", ">stage 0, row 1</text>"});
  CHECK(count_of(picture, "<rect class=\"send\"") == 5);  // four ranks and a key
  run.history.take(R"({"step":4,"grad_norm":1,"configuration":{"g-inter":"3","g-data":"2"}})");  // of another run
  check_has(timeline_file(run, ""), {">rank 3</text>"});
  run.history.take(R"({"step":5,"grad_norm":1,"configuration":{"g-inter":"4","g-data":"1"}})");
  check_has(timeline_file(run, ""), {">stage 3</text>"});
}

TEST_CASE_FIXTURE(Fixture, "the comma-separated values contain all steps of all runs") {
  const std::string path = metrics("a.jsonl", 3, "{\"checkpoint\":3}\nno record\n");
  CHECK(write_report(options({path, "--names", "a \"b\"", "--csv", file("all.csv")})) ==
        file("all.csv") + ": 3 lines\n");
  CHECK(
      folder.read("all.csv") ==
      "run,step,loss,validation_loss,validation_accuracy,hellaswag_accuracy,grad_norm,lr,loss_scale,skipped,tokens,"
      "tokens_per_second,model_flops_per_second,mfu,seconds,measured_mfu\n"
      "\"a \"\"b\"\"\",1,10,,,,1,0.001,1,0,100,200,,0.25,0.5,0.5\n"
      "\"a \"\"b\"\"\",2,5.5,,,,1,0.001,1,0,100,200,,0.25,0.5,0.5\n"
      "\"a \"\"b\"\"\",3,4,1.5,,,1,0.001,1,0,100,200,,0.25,0.5,0.5\n");
}

TEST_CASE_FIXTURE(Fixture, "a report of a file that is not a run, or over one of its inputs, is refused") {
  const std::string path = metrics("a.jsonl", 2), other = folder.write("text", "words\n").string();
  const auto refused = [&](const std::vector<std::string>& arguments, std::string_view words) {
    const Error error = printed_error_of([&] { static_cast<void>(write_report(options(arguments))); });
    return says(error, words);
  };
  CHECK(refused({}, "run is missing"));
  CHECK(refused({file("missing")}, "run file not found"));
  CHECK(refused({path + "," + file("missing"), "-o", file("r.html")}, "run file not found"));
  CHECK(refused({folder.path().string()}, "has no metrics.jsonl"));
  CHECK(refused({other, "-o", file("r.html")}, "metrics file has no steps"));
  CHECK(refused({path + "," + other, "-o", file("r.html")}, "trace has no spans"));
  CHECK(refused({path, "--names", "a,b"}, "2 names for 1 run"));
  CHECK(refused({path, "-o", path, "--overwrite"}, "would overwrite an input file"));
  CHECK(refused({path, "-o", other}, "text; add --overwrite or use another path"));
  CHECK(refused({path, "-o", other, "--csv", other}, "cannot be combined"));
  CHECK(refused({path, "--csv", file("a.csv"), "--timeline", file("t.svg")}, "cannot be combined"));
  CHECK(refused({path, "--timeline", file("t.svg"), "-o", other}, "cannot be combined"));
  CHECK(refused({path, path, "--timeline", file("t.svg")}, "takes one run, not 2"));
  CHECK(refused({path, "--timeline", file("t.svg")}, "trace has no complete step"));
  CHECK(refused({path, "--timeline", other}, "text; add --overwrite or use another path"));
  CHECK(folder.read("text") == "words\n");
}

TEST_CASE("nothing in the data of a page ends their element, and nothing in its texts is a tag") {
  const std::string page = finished_page("</title>", "<i>", R"({"name":"</script><!--<script>"})");
  CHECK(data_of(page).at("name") == "</script><!--<script>");
  check_has(page, {"<title>&lt;/title&gt;</title>", "&lt;i&gt;</noscript>"});
  CHECK(count_of(page, "<!--") == 0);
}
