// Event files, read by a reader of our own, and by TensorBoard where it is installed.
#include "apps/view/event_file.hpp"

#include "tests/apps/read_with_others.hpp"
#include "tests/errors.hpp"
#include "tests/temporary_folder.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <map>
#include <string>
#include <vector>

using namespace ranvier;
using namespace ranvier::apps;

namespace {

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// Records of a file, whose checksums must be right.
std::vector<std::string> records_of(std::string_view file) {
  const auto checks = [](std::string_view bytes, std::string_view crc) {
    const auto value = static_cast<std::uint32_t>(crc32c(bytes));
    CHECK(static_cast<std::uint32_t>((value >> 15 | value << 17) + 0xa282ead8u) == little_endian(crc));
  };
  std::vector<std::string> records;
  while (!file.empty()) {
    REQUIRE(file.size() >= 16);
    const std::uint64_t bytes = little_endian(file.substr(0, 8));
    REQUIRE(file.size() >= 16 + bytes);
    checks(file.substr(0, 8), file.substr(8, 4));
    checks(file.substr(12, bytes), file.substr(12 + bytes, 4));
    records.emplace_back(file.substr(12, bytes));
    file.remove_prefix(16 + bytes);
  }
  return records;
}

/// Fields of a message: numbers as text, whatever else as bytes.
std::multimap<int, std::string> fields_of(std::string_view message) {
  const auto varint = [&message] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      REQUIRE(!message.empty());
      const auto byte = static_cast<unsigned char>(message[0]);
      message.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  std::multimap<int, std::string> fields;
  while (!message.empty()) {
    const std::uint64_t tag = varint();
    const int type = static_cast<int>(tag & 7), field = static_cast<int>(tag >> 3);
    if (type == 0) {
      fields.emplace(field, std::to_string(varint()));
      continue;
    }
    const std::size_t bytes = type == 1 ? 8 : type == 5 ? 4 : static_cast<std::size_t>(varint());
    REQUIRE((type == 1 || type == 5 || type == 2));
    REQUIRE(message.size() >= bytes);
    fields.emplace(field, std::string(message.substr(0, bytes)));
    message.remove_prefix(bytes);
  }
  return fields;
}

std::string field(const std::string& message, int number) {
  const auto fields = fields_of(message);
  REQUIRE(fields.count(number) == 1);
  return fields.find(number)->second;
}

/// Tag and value of all scalars.
std::map<std::string, float> scalars_of(const std::string& event) {
  std::map<std::string, float> scalars;
  const auto summary = fields_of(field(event, 5));
  for (const auto& [number, value] : summary) {
    CHECK(number == 1);
    scalars[field(value, 1)] = std::bit_cast<float>(static_cast<std::uint32_t>(little_endian(field(value, 2))));
  }
  return scalars;
}

}  // namespace

TEST_CASE("CRC-32C is that of RFC 3720") {
  CHECK(crc32c("123456789") == 0xe3069283u);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
  CHECK(crc32c("") == 0);
}

TEST_CASE("an event file has a run's scalars and texts, and what voids steps that are done again") {
  const tests::TemporaryFolder folder;
  std::string name;
  {
    EventFile file(folder.path() / "logs", 7);
    file.configuration({{"seed", "1"}, {"train", "a|b"}});
    file.take(R"({"step":300,"loss":2.5,"grad_norm":0.5,"lr":1e-3,"skipped":false,"mfu":null})"
              "\n");
    file.take(R"({"step":300,"validation_loss":3.25,"sample":"one\ntwo"})");
    file.take(R"({"checkpoint":300,"bytes":1})");
    file.take("no record");
    name = file.path().string();
  }
  CHECK(name.find("/logs/events.out.tfevents.") != std::string::npos);
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
                                                               {"optimizer/learning rate", 1e-3F}});
  CHECK(scalars_of(records[4]) == std::map<std::string, float>{{"loss/validation", 3.25F}});
  CHECK(text(records[5]) == "sample:     one\n    two");
  // Another run in the same second has a file of its own.
  EventFile next(folder.path() / "logs", 0), another(folder.path() / "logs", 0);
  CHECK(next.path() != another.path());
}

TEST_CASE("TensorBoard reads event files, and forgets steps that are done again") {
  const tests::TemporaryFolder folder;
  {
    EventFile first(folder.path(), 0);
    for (int step = 1; step <= 3; ++step) first.take(fmt::format(R"({{"step":{},"loss":{}}})", step, 10 - step));
    first.take(R"({"step":3,"validation_loss":3.25,"sample":"one\ntwo"})");
  }
  {
    EventFile second(folder.path(), 2);
    second.take(R"({"step":3,"loss":5.5})");
  }
  const auto text = tests::read_with("tensorboard", folder.path().string());
  if (!text) return;
  CHECK(*text ==
        "loss/train 1 9\n"
        "loss/train 2 8\n"
        "loss/train 3 5.5\n"
        "sample 3 '    one\\n    two'\n");
  // Without what follows them.
  const tests::TemporaryFolder alone;
  EventFile file(alone.path(), 0);
  file.configuration({{"seed", "1"}});
  file.take(R"({"step":3,"loss":2,"sample":"one\ntwo"})");
  CHECK(tests::read_with("tensorboard", alone.path().string()) ==
        "loss/train 3 2\n"
        "configuration 0 '|flag|value|\\n|---|---|\\n|seed|1|\\n'\n"
        "sample 3 '    one\\n    two'\n");
}

TEST_CASE("a folder for event files that cannot be made is refused") {
  const tests::TemporaryFolder folder;
  folder.write("file", "x");
  const Error error = tests::error_of([&] { EventFile file(folder.path() / "file" / "logs", 0); });
  CHECK(error.code() == ErrorCode::io);
  CHECK(tests::says(error, "--tensorboard"));
}
