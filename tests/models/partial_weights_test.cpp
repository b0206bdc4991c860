#include "models/weights/partial_weights.hpp"

#include "models/weights/safetensors.hpp"
#include "models/weights/unit_weights.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using namespace ranvier::tests;
using Kind = PartialWeights::Kind;
namespace fs = std::filesystem;

namespace {

const std::vector<UnitSpec> units = {
    {"a", {{.name = "a.weight", .shape = {3, 5}}, {.name = "a.bias", .shape = {5}}}},
    {"b", {{.name = "b.weight", .shape = {40}}}}};

struct Fixture {
  /// Each of `writers` writes every other piece of 7 elements; the values are `first`, `first` + 1, …
  void write(const WeightLayout& layout, const fs::path& partial, float first, std::size_t writers = 2) const {
    std::uint64_t bytes = 0;
    for (std::size_t w = 0; w < writers; ++w) {
      WeightWriter writer(layout, partial);
      for (const UnitSpec& unit : units) {
        std::vector<float> values(unit.elements());
        std::iota(values.begin(), values.end(), first);
        for (std::size_t begin = 7 * w; begin < values.size(); begin += 7 * writers)
          writer.put(unit, begin,
                     std::span(values).subspan(begin, std::min<std::size_t>(7, values.size() - begin)));
      }
      writer.close();
      bytes += writer.bytes();
    }
    CHECK(bytes == layout.value_bytes());
  }

  void save(std::uint64_t max_bytes, float first, const CompanionFiles& files = {}) const {
    const WeightLayout layout(units, max_bytes);
    PartialWeights partial(model, Kind::folder, path, layout);
    write(layout, path, first);
    partial.commit(files);
  }

  /// First value of a.weight, which determines all values; nullopt: there are no weights.
  [[nodiscard]] std::optional<float> first_value() const {
    std::error_code unknown;
    if (!fs::exists(model / "model.safetensors", unknown) &&
        !fs::exists(model / "model.safetensors.index.json", unknown))
      return std::nullopt;
    const Safetensors file(find_weights(model, "--init-from"));
    check_weights(file, units);
    float first = 0;
    file.read(*file.find("a.weight"), 0, 1, &first);
    for (const UnitSpec& unit : units) {
      std::vector<float> values(unit.elements());
      read_unit(file, unit, 0, values.size(), values.data());
      for (std::size_t i = 0; i < unit.parameters.size(); ++i)
        for (std::size_t j = 0; j < unit.parameters[i].elements(); ++j)
          CHECK(values[unit.offset(i) + j] == first + static_cast<float>(unit.offset(i) + j));
    }
    return first;
  }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(model)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  TemporaryFolder folder;
  fs::path model = folder.path() / "model";
  std::string job = random_job();
  fs::path path = partial_path(folder.path(), "model", job);  // next to it
  using Names = std::vector<std::string>;
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a missing folder appears with all of its files") {
  const WeightLayout layout(units, 100);
  {
    PartialWeights partial(model.string() + "/", Kind::folder, path, layout);
    write(layout, path, 1, 3);
    CHECK_FALSE(fs::exists(model));
    partial.commit({{"config.json", "{}"}});
  }
  CHECK(first_value() == 1);
  CHECK(names() == Names{"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                         "model.safetensors.index.json"});
  CHECK(folder.read("model/config.json") == "{}");
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE_FIXTURE(Fixture, "weights replace others in a folder, for any numbers of files") {
  fs::create_directory(model);
  folder.write("model/notes.txt", "mine");
  float first = 0;
  for (const std::uint64_t from : {1000, 100, 1})
    for (const std::uint64_t to : {1000, 100, 1}) {
      CAPTURE_ALL(from, to);
      save(from, ++first);
      CHECK(first_value() == first);
      save(to, ++first, {{"config.json", std::to_string(to)}});
      CHECK(first_value() == first);
      CHECK(folder.read("model/config.json") == std::to_string(to));
      const std::size_t files = WeightLayout(units, to).files().size();
      CHECK(names().size() == 2 + files + (files > 1 ? 1 : 0));
      CHECK(folder.read("model/notes.txt") == "mine");
    }
}

TEST_CASE_FIXTURE(Fixture, "the tokenizer and configurations of a replaced model are removed, other files stay") {
  fs::create_directory(model);
  folder.write("model/tokenizer.json", "unrelated: there are no weights yet");
  save(1000, 1, {{"config.json", "{}"}, {"generation_config.json", "{}"}});
  CHECK(fs::exists(model / "tokenizer.json"));
  folder.write("model/chat_template.jinja", "old");
  folder.write("model/README.md", "mine");
  save(1000, 2, {{"config.json", "new"}, {"vocab.txt", "new"}});
  CHECK(names() == Names{"README.md", "config.json", "model.safetensors", "vocab.txt"});
}

TEST_CASE_FIXTURE(Fixture, "a single file has its own name, and a link to it stays a link") {
  const fs::path target = folder.write("there.bin", "before"), link = folder.path() / "weights.safetensors";
  fs::create_symlink(target, link);
  folder.write("model.safetensors.index.json", "unrelated");
  const WeightLayout layout(units);
  PartialWeights partial(link, Kind::file, path, layout);
  write(layout, path, 1);
  CHECK(folder.read("there.bin") == "before");
  partial.commit();
  CHECK(fs::is_symlink(link));
  CHECK(Safetensors(target).tensors().size() == 3);
  CHECK(folder.read("model.safetensors.index.json") == "unrelated");
}

TEST_CASE_FIXTURE(Fixture, "until a commit, also if it never comes, the previous weights stay") {
  for (const std::uint64_t before : {1000, 100})
    for (const std::uint64_t max_bytes : {1000, 100}) {
      save(before, 5, {{"config.json", "old"}});
      const auto there = names();
      {
        const WeightLayout layout(units, max_bytes);
        PartialWeights partial(model, Kind::folder, path, layout);
        write(layout, path, 9);
        CHECK(first_value() == 5);
      }
      CHECK(names() == there);
      CHECK(first_value() == 5);
      CHECK(folder.read("model/config.json") == "old");
    }
}

TEST_CASE_FIXTURE(Fixture, "weights that cannot be renamed are kept completely, and the message says where") {
  fs::create_directories(model / "model.safetensors.index.json/in the way");
  const WeightLayout layout(units, 100);
  std::string message;
  {
    PartialWeights partial(model, Kind::folder, path, layout);
    write(layout, path, 3);
    const Error error = error_of([&] { partial.commit(); });
    CHECK(says(error, ErrorCode::io,
               "cannot rename the new weights to " + (model / "model.safetensors.index.json").string(),
               "move them from there to " + model.string()));
    message = error.what();
  }
  constexpr std::string_view before = " complete in ";
  const std::size_t at = message.find(before) + before.size();
  const fs::path kept = message.substr(at, message.find("; move ") - at);
  model = kept;
  CHECK(names() == Names{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                         "model.safetensors.index.json"});
  CHECK(first_value() == 3);
  PartialWeights::remove_leftovers(kept.parent_path());
  CHECK(fs::exists(kept));
}

TEST_CASE_FIXTURE(Fixture,
                  "leftovers of a killed process are removed; weights in progress and unrelated files are not") {
  fs::create_directory(model);
  const auto leftover = [&](const std::string& name) {
    fs::create_directory(model / name);
    std::ofstream(model / name / "model.safetensors") << "part";
  };
  leftover(".weights.0123456789abcdef.partial");
  leftover(".weights-00000010.00000000deadbeef.partial");
  fs::create_directory(model / ".weights.00000000deadbeef.partial");  // killed between two calls
  leftover(".mine.partial");
  const WeightLayout layout(units);
  const PartialWeights living(model, Kind::folder, partial_path(model, "weights", random_job()), layout);
  PartialWeights::remove_leftovers(model);
  CHECK(names() == Names{".mine.partial", living.path().filename().string()});
}

TEST_CASE_FIXTURE(Fixture, "a writer without access to the folder, or with a full disk, reports it") {
  const WeightLayout layout(units);
  WeightWriter elsewhere(layout, folder.path() / "elsewhere");
  const std::vector<float> values(units[0].elements());
  CHECK(says(error_of([&] { elsewhere.put(units[0], 0, values); }), "use a folder that all nodes share"));
  int asked = 0;
  std::optional<PartialWeights> partial;
  model = folder.path() / "not yet/model";
  path = partial_path(model.parent_path(), "model", job);
  partial.emplace(model, Kind::folder, path, layout, [&](const fs::path& place, int) {
    fs::create_directories(place.parent_path());
    return ++asked < 3;
  });
  CHECK(asked == 1);
  write(layout, path, 1);
  partial->commit();
  CHECK(first_value() == 1);
}
