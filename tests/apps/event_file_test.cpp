// Event files, read by the tests' own reader, and by TensorBoard if it is installed.
#include "apps/view/event_file.hpp"

#include "tests/apps/event_reader.hpp"
#include "tests/apps/read_with_others.hpp"

#include <fmt/format.h>

#include <bit>

using namespace ranvier;
using namespace ranvier::apps;
using namespace ranvier::tests;

TEST_CASE("CRC-32C equals RFC 3720's values") {
  CHECK(crc32c("123456789") == 0xe3069283u);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
  CHECK(crc32c("") == 0);
}

TEST_CASE("an event file has a run's scalars and texts, and marks repeated steps") {
  const TemporaryFolder folder;
  std::string name;
  {
    EventFile file(folder.path() / "logs", 7);
    file.configuration({{"seed", "1"}, {"train", "a|b"}});
    file.take(R"({"step":300,"loss":2.5,"grad_norm":0.5,"lr":1e-3,"skipped":false,"mfu":null,"measured_mfu":0.25})"
              "\n");
    file.take(R"({"step":300,"validation_loss":3.25,"sample":"one\ntwo"})");
    file.take(R"({"checkpoint":300,"bytes":1})");
    file.take("no record");
    name = file.file().path().string();
  }
  check_has(name, {"/logs/events.out.tfevents."});
  const auto records = records_of(folder.read("logs/" + std::filesystem::path(name).filename().string()));
  REQUIRE(records.size() == 6);
  CHECK(field(records[0], 3) == "brain.Event:2");
  CHECK(std::bit_cast<double>(little_endian(field(records[0], 1))) > 1.7e9);
  CHECK(field(records[1], 2) == "8");
  CHECK(field(field(records[1], 7), 1) == "1");
  const auto text = [&](const std::string& record) {
    const std::string value = field(field(record, 5), 1);
    CHECK(field(field(field(value, 9), 1), 1) == "text");
    CHECK(field(field(value, 8), 1) == "7");
    CHECK(field(field(field(field(value, 8), 2), 2), 1) == "1");
    return field(value, 1) + ": " + field(field(value, 8), 8);
  };
  CHECK(text(records[2]) == "configuration: |flag|value|\n|---|---|\n|seed|1|\n|train|a\\|b|\n");
  CHECK(field(records[3], 2) == "300");
  CHECK(scalars_of(records[3]) == std::map<std::string, float>{{"loss/train", 2.5F},
                                                               {"optimizer/gradient norm", 0.5F},
                                                               {"optimizer/learning rate", 1e-3F},
                                                               {"speed/measured MFU", 0.25F}});
  CHECK(scalars_of(records[4]) == std::map<std::string, float>{{"loss/validation", 3.25F}});
  CHECK(text(records[5]) == "sample:     one\n    two");
  // Another run in the same second has a separate file.
  EventFile next(folder.path() / "logs", 0), another(folder.path() / "logs", 0);
  CHECK(next.file().path() != another.file().path());
}

TEST_CASE("TensorBoard reads event files, and discards repeated steps") {
  const TemporaryFolder folder;
  {
    EventFile first(folder.path(), 0);
    for (int step = 1; step <= 3; ++step) first.take(fmt::format(R"({{"step":{},"loss":{}}})", step, 10 - step));
    first.take(R"({"step":3,"validation_loss":3.25,"sample":"one\ntwo"})");
  }
  {
    EventFile second(folder.path(), 2);
    second.take(R"({"step":3,"loss":5.5})");
  }
  const auto text = read_with("tensorboard", folder.path().string());
  if (!text) return;
  CHECK(*text ==
        "loss/train 1 9\n"
        "loss/train 2 8\n"
        "loss/train 3 5.5\n"
        "sample 3 '    one\\n    two'\n");
  // Without the later ones.
  const TemporaryFolder alone;
  EventFile file(alone.path(), 0);
  file.configuration({{"seed", "1"}});
  file.take(R"({"step":3,"loss":2,"sample":"one\ntwo"})");
  CHECK(read_with("tensorboard", alone.path().string()) ==
        "loss/train 3 2\n"
        "configuration 0 '|flag|value|\\n|---|---|\\n|seed|1|\\n'\n"
        "sample 3 '    one\\n    two'\n");
}

TEST_CASE("a folder for event files that cannot be created is refused") {
  const TemporaryFolder folder;
  folder.write("file", "x");
  const Error error = error_of([&] { EventFile file(folder.path() / "file" / "logs", 0); });
  CHECK(error.code() == ErrorCode::io);
  CHECK(says(error, "--tensorboard"));
}
