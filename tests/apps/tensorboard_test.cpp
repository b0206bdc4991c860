// Event files of ranvier-train jobs, read by the tests' own reader; TensorBoard reads them in event_file_test.cpp.
#include "tests/apps/event_reader.hpp"
#include "tests/apps/small_run.hpp"

#include <boost/json/parse.hpp>

using namespace ranvier::tests;
using namespace std::chrono_literals;
namespace json = boost::json;

namespace {

/// Events of files by tag and step.
using Scalars = std::map<std::pair<std::string, std::int64_t>, double>;

struct Events {
  Scalars scalars;
  std::string configuration;  ///< configuration in the last file
};

Events events_of(const std::filesystem::path& folder) {
  std::vector<std::string> files;
  for (const auto& each : std::filesystem::directory_iterator(folder)) files.push_back(each.path().string());
  std::sort(files.begin(), files.end());
  Events events;
  for (const std::string& file : files) {
    for (const std::string& record : records_of(read_file(file))) {
      const auto fields = fields_of(record);
      const auto at = fields.find(2);
      const std::int64_t step = at == fields.end() ? 0 : std::stoll(at->second);
      if (!fields.contains(5)) continue;
      for (const auto& [number, value] : fields_of(field(record, 5))) {
        if (!fields_of(value).contains(2)) {
          if (field(value, 1) == "configuration") events.configuration = field(field(value, 8), 8);
          continue;
        }
        for (const auto& [tag, scalar] : scalars_of(record)) {
          INFO(tag, ", step ", step);
          CHECK(events.scalars.insert({{tag, step}, scalar}).second);
        }
        break;  // all of them
      }
    }
  }
  return events;
}

/// Values of --metrics by step, with the names of event files.
Scalars told_by(const std::string& metrics) {
  Scalars all;
  for (const std::string& line : lines_of(read_file(metrics))) {
    const json::object record = json::parse(line).as_object();
    const json::value* step = record.if_contains("step");
    if (step == nullptr) continue;
    for (const auto& [name, tag] : {std::pair{"loss", "loss/train"},
                                    {"validation_loss", "loss/validation"},
                                    {"grad_norm", "optimizer/gradient norm"},
                                    {"lr", "optimizer/learning rate"}})
      if (const json::value* value = record.if_contains(name))
        all[{tag, step->as_int64()}] = value->to_number<double>();
  }
  return all;
}

}  // namespace

TEST_CASE_FIXTURE(SmallText,
                  "--tensorboard has every step once if two runs train it, with the values of its metrics") {
  const std::string events = file("events");
  const auto train = [&](const char* steps, const char* grid, const Flags& more) {
    ends_well(2,
              join(join({"--steps", steps, "--lr-decay", "constant", "--validation-split", "0.1", "--eval-every",
                         "2", grid, "2", "--metrics", metrics, "--tensorboard", events},
                        {"--checkpoint", file("kept")}),
                   more),
              60s);
  };
  train("4", "--g-inter", {});
  std::filesystem::rename(metrics, file("first.jsonl"));
  train("6", "--g-data", {"--resume", "auto"});

  const Events own = events_of(events);
  Scalars told = told_by(file("first.jsonl"));
  told.merge(told_by(metrics));
  CHECK(told.size() == 6 * 3 + 3);
  for (const auto& [place, value] : told) {
    INFO("first ", place.first, ", second ", place.second);
    REQUIRE(own.scalars.contains(place));
    CHECK(own.scalars.at(place) == doctest::Approx(value).epsilon(1e-6));
  }
  check_has(own.configuration, {"|g-data|2|\n", "|resume|auto|\n"});
}
