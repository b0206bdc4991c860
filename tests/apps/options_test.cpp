#include "apps/program/options.hpp"

#include "runtime/base/error.hpp"
#include "tests/apps/flags.hpp"
#include "tests/apps/printed_errors.hpp"

using namespace ranvier;
using namespace ranvier::apps;
using namespace ranvier::tests;

namespace {

enum class Colour { red, green };

struct Fields {
  int steps = 5;
  double rate = 0.5;
  Colour colour = Colour::red;
  std::optional<std::size_t> memory;
  bool shuffle = true;
  bool dry = false;
  std::string config;
};

OptionTable declare(Fields& fields, bool usual = false) {
  OptionTable table;
  table.concern("Run");
  table.add({"steps", "N", "how many", whole(fields.steps, 1, 100)},
            {.usual = usual, .unused = unused_if([&fields] { return fields.dry; }, "with --dry-run")});
  table.add({"learning-rate", "X", "how fast", real(fields.rate, 0, 1, true)});
  table.add(
      {"colour", "NAME", "of it", choice<Colour>(fields.colour, {{"red", Colour::red}, {"green", Colour::green}})});
  table.concern("Machine");
  table.add({"memory", "SIZE", "budget", bytes(fields.memory), "all", true});
  table.add({"shuffle", "on|off", "order", toggle(fields.shuffle)});
  table.add({"dry-run", "", "only look", switch_on(fields.dry)});
  table.add({"config", "FILE", "options", text(fields.config), {}, true, "more about it"});
  return table;
}

void parse_into(OptionTable& table, const Flags& flags) {
  parse_flags("program", flags, [&](int argc, const char* const* argv) { table.parse(argc, argv); });
}

Fields parse(const Flags& flags) {
  Fields fields;
  auto table = declare(fields);
  parse_into(table, flags);
  return fields;
}

Error refusal(const Flags& flags) {
  return printed_error_of([&] { parse(flags); });
}

}  // namespace

TEST_CASE("flags fill the fields that they are bound to") {
  const auto fields =
      parse("--steps 7 --learning-rate=1e-3 --colour green --memory 1.5GiB --shuffle off --dry-run");
  CHECK(fields.steps == 7);
  CHECK(fields.rate == 1e-3);
  CHECK(fields.colour == Colour::green);
  CHECK(fields.memory == std::size_t{3} << 29);
  CHECK_FALSE(fields.shuffle);
  CHECK(fields.dry);
}

TEST_CASE("without flags the defaults apply") {
  const auto fields = parse({});
  CHECK(fields.steps == 5);
  CHECK(fields.shuffle);
  CHECK_FALSE(fields.dry);
  CHECK_FALSE(fields.memory.has_value());
}

TEST_CASE("a config file has the same keys as flags, and flags override it") {
  const TemporaryFolder folder;
  const auto path = folder.write("run.conf", "# a run\n\nsteps = 9   # nine\nlearning-rate=0.25\ndry-run = on\n");
  const auto fields = parse(fmt::format("--config {} --steps 3", path.string()));
  CHECK(fields.steps == 3);
  CHECK(fields.rate == 0.25);
  CHECK(fields.dry);
}

TEST_CASE("values out of range or of another type are refused with flag, value and accepted values") {
  for (const char* value : {"0", "101", "-1", "1.5", "abc", "", "7 ", "99999999999999999999"}) {
    CAPTURE(value);
    const auto error = refusal({"--steps", value});
    CHECK(error.code() == ErrorCode::usage);
    const std::string_view printed = *value == '\0' ? "''" : value;
    CHECK(says(error, fmt::format("--steps is invalid: {}; use a whole number from 1 to 100", printed)));
  }
  for (const char* value : {"-0.1", "1", "nan", "inf", "x"}) {
    CAPTURE(value);
    CHECK(says(refusal(fmt::format("--learning-rate {}", value)), "a number from 0 to 1 (excluded)"));
  }
  CHECK(says(refusal("--colour blue"), "one of red, green"));
  CHECK(says(refusal("--shuffle perhaps"), "on or off"));
  CHECK(says(refusal("--memory 5MB"), "512MiB"));
  CHECK(says(refusal("--memory 0"), "512MiB"));
}

TEST_CASE("unknown names suggest the nearest one") {
  CHECK(says(refusal("--stesp 4"), "unknown flag --stesp: did you mean --steps?"));
  CHECK(says(refusal("--learning_rate=4"), "did you mean --learning-rate?"));
  CHECK(says(refusal("--rate 4"), "did you mean --learning-rate?"));
  CHECK(says(refusal("--elephant 4"), "--help"));
  CHECK(says(refusal({"4"}), "unexpected argument '4'"));
  CHECK(says(refusal("--steps"), "--steps"));
  CHECK(says(refusal("--steps 4 --steps 5"), "--steps is given twice"));
}

TEST_CASE("an invalid config file is refused with file and reason") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& content) {
    const auto path = folder.write("run.conf", content);
    return refusal(fmt::format("--config {}", path.string()));
  };
  check_has(refused("stesp = 4\n").what(), {"unknown key 'stesp' in", "did you mean steps?"});
  CHECK(says(refused("--steps = 4\n"), "use steps = …"));
  CHECK(says(refused("config = other.conf\n"), "cannot be nested"));
  CHECK(says(refused("steps 4\n"), "key = value"));
  CHECK(says(refused("# none\nsteps = 4\n %invalid_line% # nor here\n"),
             "line 3 is not key = value: '%invalid_line%'"));
  CHECK(says(refused("steps = x\n"), "steps in"));
  CHECK(says(refused("steps = 1\nsteps = 2\n"), "twice"));
  CHECK(says(refused(""), "cannot be read or is empty"));
  CHECK(says(refused(std::string("steps = 1\nst\0ps = 2\n", 20)), "zero byte at offset 12"));
  CHECK(says(refusal("--config /no/such/file"), "/no/such/file"));
}

TEST_CASE("help lists flags by topic with their defaults") {
  Fields fields;
  const auto help = help_text(declare(fields).facts());
  const auto run = help.find("\nRun\n");
  const auto machine = help.find("\nMachine\n");
  CHECK(run < machine);
  CHECK(help.find("--steps N") > run);
  CHECK(help.find("how many (default 5)") < machine);
  CHECK(help.find("budget (default all)") > machine);
}

TEST_CASE("help without a topic lists the usual flags, and how to list the others") {
  Fields fields;
  OptionTable table = declare(fields);
  const std::string last = table.facts().back().name;
  const auto has = [&](std::string_view concern, const std::string& words) {
    return help_text(table.facts(), concern).find(words) != std::string::npos;
  };
  CHECK(has("", "--" + last));
  table = declare(fields, true);
  CHECK(has("", "--steps N"));
  CHECK_FALSE(has("", "--" + last));
  CHECK(has("", " more flags: --help all, or --help with one of run, machine"));
  CHECK_FALSE(has("", "more about it"));
  for (const std::string& each : {std::string("all"), table.facts().back().concern}) {
    CHECK(has(each, "--" + last));
    CHECK(has(each, "more about it"));
    CHECK_FALSE(has(each, "more flags"));
  }
}

TEST_CASE("option info has the values, path kinds and lists of flags in the format of help texts") {
  bool asked = false;
  std::string concern, paths;
  Fields fields;
  OptionTable table = declare(fields);
  table.concern("What if it is long");
  table.add({"resume", "auto|none|PATH", "from", text(paths), "none"});
  table.add({"disks", "DIR[,DIR]", "where", text(paths)});
  table.add({"help", "[HEADING]", "print this", help_of(asked, concern)});
  const auto facts = table.facts();
  const auto fact = [&](std::string_view name) {
    for (const OptionInfo& each : facts)
      if (each.name == name) return each;
    return OptionInfo{};
  };
  using Words = std::vector<std::string>;
  CHECK(fact("colour").words == Words{"red", "green"});
  CHECK(fact("shuffle").words == Words{"on", "off"});
  CHECK(fact("steps").words.empty());
  CHECK(fact("steps").concern == "Run");
  CHECK(fact("resume").words == Words{"auto", "none"});
  CHECK(path_kind(fact("resume")) == PathKind::any);
  CHECK(path_kind(fact("disks")) == PathKind::folder);
  CHECK(path_kind(fact("steps")) == PathKind::none);
  CHECK(takes_list(fact("disks")));
  CHECK_FALSE(takes_list(fact("config")));
  CHECK(fact("help").words == Words{"run", "machine", "what-if-it-is-long", "all"});
  CHECK(fact("help").default_text == "");
  CHECK(help_with_default(fact("steps")) == "how many (default 5)");

  const auto parse_with = [&](const Flags& flags) {
    parse_into(table, flags);
    return concern;
  };
  CHECK(parse_with("--help long") == "What if it is long");
  CHECK(asked);
  CHECK(parse_with("-h what if it is long --steps 4") == "What if it is long");
  CHECK(fields.steps == 4);
  CHECK(parse_with("--help") == "");
  CHECK(parse_with("--help RUN") == "Run");
  CHECK(parse_with("--help all") == "all");
  CHECK(says(printed_error_of([&] { parse_with("--help steps"); }),
             "use all, or one of run, machine, what-if-it-is-long"));
}

TEST_CASE("a given option without effect gets a note with its value and the reason") {
  Fields fields;
  OptionTable table = declare(fields);
  const auto notes = [&](const Flags& flags) {
    parse_into(table, flags);
    return table.unused();
  };
  CHECK(notes("--steps 7").empty());
  CHECK(notes("--dry-run") == std::vector<std::string>{});
  CHECK(notes("--dry-run --steps 7") == std::vector<std::string>{"--steps 7 has no effect with --dry-run"});
}

TEST_CASE("the hash covers the resolved options, but not per-rank options") {
  Fields fields;
  const auto table = declare(fields);
  const auto hash = hash_of(table.resolved());
  fields.memory = 4096;
  CHECK(hash_of(table.resolved()) == hash);
  fields.steps = 6;
  CHECK(hash_of(table.resolved()) != hash);
}

TEST_CASE("sizes are read and written with binary units") {
  CHECK(parse_bytes("512MiB") == std::size_t{512} << 20);
  CHECK(parse_bytes("1.5KiB") == 1536);
  CHECK(parse_bytes("2 TiB") == std::size_t{2} << 40);
  CHECK(parse_bytes("17") == 17);
  CHECK(parse_bytes("0") == 0);
  for (const char* text : {"", "MiB", "1MB", "1.5", "-1", "1e400", "nan", "99999999TiB", "1KiBx"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_bytes(text).has_value());
  }
  for (const std::size_t size : {0ul, 1ul, 1023ul, 1024ul, 1536ul, 3ul << 30})
    CHECK(parse_bytes(bytes_text(size)) == size);
  CHECK(bytes_text(3ul << 30) == "3GiB");
  CHECK(bytes_text(1536) == "1536B");
}

TEST_CASE("times are read and written in days, hours, minutes and seconds") {
  using namespace std::chrono_literals;
  for (const auto& [text, time] : {std::pair{"90s", 90s},
                                   {"30m", 1800s},
                                   {"4h", 14400s},
                                   {"1h30m", 5400s},
                                   {"2d3s", 172803s},
                                   {"1d2h3m4s", 93784s},
                                   {"0s", 0s},
                                   {"0m", 0s}}) {
    CAPTURE(text);
    const auto read = apps::parse_duration(text);
    REQUIRE(read);
    CHECK(*read == time);
    CHECK(apps::parse_duration(apps::duration_text(time)) == time);
  }
  CHECK(apps::duration_text(5400s) == "1h30m");
  CHECK(apps::duration_text(90s) == "1m30s");
  for (const auto* text : {"", "4", "h", "4 h", "4hours", "-4h", "30m1h", "1h1h", "1.5h", "1h30",
                           "99999999999999999999s", "9223372036854775807d"}) {
    CAPTURE(text);
    CHECK_FALSE(apps::parse_duration(text));
  }
}
