#include "models/weights/safetensors.hpp"

#include "models/core/name_pattern.hpp"
#include "tests/models/safetensors_writer.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using namespace ranvier::tests;
using runtime::DType;

namespace {

Error refusal(const TemporaryFolder& folder, const std::string& content) {
  const auto path = folder.write("bad.safetensors", content);
  return error_of([&] { Safetensors file(path); });
}

std::vector<float> values_of(const Safetensors& file, const StoredTensor& tensor) {
  std::vector<float> values(tensor.elements());
  file.read(tensor, 0, values.size(), values.data());
  return values;
}

}  // namespace

TEST_CASE_FIXTURE(InFolder, "written tensors read back, rounded to their dtype") {
  const auto path = folder.path() / "model.safetensors";
  const std::vector<TensorToStore> tensors = {{"a", DType::f32, {2, 3}},
                                              {"empty", DType::f32, {0, 4}},
                                              {"b \"quoted\" \xc3\xa9", DType::bf16, {3}},
                                              {"scalar", DType::f32, {}},
                                              {"c", DType::f16, {5, 1}}};
  std::vector<float> values = counted_values(6 + 3 + 1 + 5);
  values[7] = 1.00001f;  // not representable in bf16
  write_tensors(path, tensors, values);
  const Safetensors file(path);
  REQUIRE(file.tensors().size() == tensors.size());
  values[7] = 1.0f;
  std::size_t at = 0;
  for (const auto& wanted : tensors) {
    const StoredTensor* const tensor = file.find(wanted.name);
    REQUIRE(tensor != nullptr);
    CHECK(tensor->shape == wanted.shape);
    CHECK(tensor->dtype == wanted.dtype);
    for (const float value : values_of(file, *tensor)) CHECK(value == values[at++]);
  }
  CHECK(at == values.size());
  std::uint64_t header = 0;
  std::memcpy(&header, folder.read("model.safetensors").data(), sizeof(header));
  CHECK(header % 8 == 0);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE_FIXTURE(InFolder, "a part of a tensor is read without the rest") {
  const Safetensors file(write_tensors(folder.path() / "model.safetensors",
                                       {{"transformer.wte.weight", DType::f32, {4, 4}}}, counted_values(16, 0)));
  const StoredTensor* const tensor = file.find("wte.weight");
  REQUIRE(tensor != nullptr);
  std::vector<float> part(3);
  file.read(*tensor, 5, 8, part.data());
  CHECK(part == std::vector<float>{5, 6, 7});
  file.read(*tensor, 16, 16, nullptr);
  CHECK(error_of([&] { file.read(*tensor, 15, 17, part.data()); }).code() == ErrorCode::internal);
  CHECK(file.find("wpe.weight") == nullptr);
}

TEST_CASE_FIXTURE(InFolder, "ignored tensors are treated as missing") {
  const auto path = write_tensors(
      folder.path() / "model.safetensors",
      {{"h.0.q_norm", DType::f32, {1}}, {"h.0.k_norm", DType::f32, {1}}, {"wte", DType::f32, {1}}}, {1, 2, 3});
  const Safetensors file(path, "[qk]_norm$");
  CHECK(file.ignored() == std::vector<std::string>{"h.0.q_norm", "h.0.k_norm"});
  CHECK(file.find("h.0.q_norm") == nullptr);
  CHECK(values_of(file, *file.find("wte")) == std::vector<float>{3});
  const auto refusal = [&](const std::string& expression) {
    return error_of([&] { Safetensors one(path, expression); });
  };
  CHECK(says(refusal("lm_head"), "`ignore_tensors` lm_head matches no tensor of " + path.string()));
  CHECK(says(refusal("h.(0"),
             "`ignore_tensors` h.(0 is not a regular expression: missing closing parenthesis at character 5"));
  CHECK(refusal("[").code() == ErrorCode::usage);
}

TEST_CASE("a regular expression with endless backtracking is refused") {
  const std::string name(200, 'a');
  const auto error =
      error_of([&] { static_cast<void>(NamePattern("(a+)+$", "--ignore-tensors").matches_in(name + "b")); });
  CHECK(says(error, ErrorCode::usage, "use a simpler expression"));
  CHECK(NamePattern("(a+)+$", "--ignore-tensors").matches_in(name));
}

TEST_CASE_FIXTURE(InFolder, "tensors are equal if dtype, shape and every bit are") {
  const Safetensors file(write_tensors(folder.path() / "model.safetensors",
                                       {{"a", DType::f32, {2}},
                                        {"same", DType::f32, {2}},
                                        {"other", DType::f32, {2}},
                                        {"column", DType::f32, {2, 1}},
                                        {"half", DType::bf16, {2}}},
                                       {1, 2, 1, 2, 1, 3, 1, 2, 1, 2}));
  const auto equals_a = [&](const char* name) { return file.equal(*file.find("a"), *file.find(name)); };
  CHECK(equals_a("same"));
  CHECK_FALSE(equals_a("other"));
  CHECK_FALSE(equals_a("column"));
  CHECK_FALSE(equals_a("half"));
}

TEST_CASE_FIXTURE(InFolder, "unaligned tensors are read") {
  const std::string header = R"({"m":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]},)"
                             R"("h":{"dtype":"F16","shape":[1],"data_offsets":[3,5]},)"
                             R"("id":{"dtype":"I32","shape":[1],"data_offsets":[5,9]}})";
  std::string content = safetensors_file(header, 3);
  content += std::string("\x00\x3c\0\0\0\0", 6);
  const Safetensors file(folder.write("model.safetensors", content));
  CHECK(values_of(file, *file.find("h")) == std::vector<float>{1});
  for (const auto& [name, problem] :
       {std::pair{"m", "'m' has unsupported dtype BOOL"}, {"id", "'id' has unsupported dtype I32"}}) {
    const auto error = error_of([&] { static_cast<void>(values_of(file, *file.find(name))); });
    CHECK(says(error, ErrorCode::data, problem));
  }
}

TEST_CASE_FIXTURE(InFolder, "damaged headers are refused with file, tensor and offset") {
  struct Case {
    std::string header;
    std::size_t data_bytes;
    std::string_view words;
  };
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const Case cases[] = {
      {"", 0, "incomplete"},
      {"[]", 0, "unexpected list"},
      {"{", 0, "incomplete"},
      {"{} x", 0, "extra data"},
      {"{" + a + "}", 7, "'a' is stored at offsets 0 to 8 of 7"},
      {"{" + a + "}", 9, "1 bytes after the last tensor"},
      {"{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "'b' starts at offset 4"},
      {"{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[9,13]}})", 13, "'b' starts at offset 9"},
      {"{" + a + R"(,"a":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})", 12, "two tensors have the name 'a'"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "do not match F32 of shape [3]"},
      {R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,8]}})", 8, "do not match F16"},
      {R"({"a":{"dtype":"Q4","shape":[2],"data_offsets":[0,8]}})", 8, "unknown dtype, 'Q4'"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "is stored at offsets 8 to 0"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8, "not two numbers"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", 8, "lacks"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "negative"},
      {R"({"a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}})", 8, "not an integer"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8, "twice"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0, "do not match"},
      {R"({"a":{"dtype":"F32","shape":[2305843009213693952,4],"data_offsets":[0,0]}})", 0, "do not match"},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4, "array"},
      {R"({"a":5})", 0, "unexpected number"},
      {R"({"a":{"b":{}}})", 0, "object"},
  };
  for (const auto& [header, data_bytes, words] : cases) {
    CAPTURE(header);
    CHECK(says(refusal(folder, safetensors_file(header, data_bytes)), ErrorCode::data, words, "bad.safetensors"));
  }
}

TEST_CASE_FIXTURE(InFolder, "a header longer than the file, and a file without one, are refused") {
  CHECK(says(refusal(folder, ""), "too short"));
  CHECK(says(refusal(folder, std::string(8, '\xff')), "but the file has 8"));
  CHECK(says(refusal(folder, std::string("\x03\0\0\0\0\0\0\0{}", 10)),
             "the header has 3 bytes, but the file has 10"));
  CHECK(error_of([&] { Safetensors file(folder.path()); }).code() == ErrorCode::io);
  CHECK(error_of([&] { Safetensors file(folder.path() / "none"); }).code() == ErrorCode::io);
}

TEST_CASE("every truncation of a weights file is refused, and a flipped bit of its header causes no wrong result") {
  const TemporaryFolder folder;
  write_tensors(folder.path() / "model.safetensors",
                {{"wte.weight", DType::f32, {4, 2}}, {"h.0.ln_1.bias", DType::bf16, {3}}},
                std::vector<float>(11, 0.5f));
  const std::string whole = folder.read("model.safetensors");
  const std::size_t header = whole.size() - 4 * 2 * 4 - 3 * 2;

  const auto damaged = folder.write("damaged.safetensors", whole);
  for (std::size_t length = whole.size(); length-- > 0;) {
    CAPTURE(length);
    std::filesystem::resize_file(damaged, length);
    CHECK(error_of([&] { Safetensors file(damaged); }).code() == ErrorCode::data);
  }
  folder.write("damaged.safetensors", whole);
  int survivors = 0;
  for (std::size_t byte = 0; byte < header; ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      overwrite(damaged, byte, static_cast<char>(whole[byte] ^ (1 << bit)));
      try {
        const Safetensors file(damaged);
        for (const auto& tensor : file.tensors())
          if (tensor.dtype) CHECK(values_of(file, tensor).size() == tensor.elements());
        ++survivors;
      } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::data);
      }
    }
    overwrite(damaged, byte, whole[byte]);
  }
  CHECK(survivors > 0);  // a letter of a name, for example
  CHECK(survivors < static_cast<int>(header * 8 / 2));
}

namespace {

/// Two shards of one model, "a" and "b" in the first and "c" in the second, with distinct values.
struct Shards {
  Shards() {
    write("model-00001-of-00002.safetensors", {{"a", DType::f32, {2}}, {"b", DType::bf16, {3}}}, 1);
    write("model-00002-of-00002.safetensors", {{"c", DType::f16, {4}}}, 10);
  }

  void write(const std::string& name, const std::vector<TensorToStore>& tensors, float first) const {
    write_tensors(folder.path() / name, tensors, counted_values(elements_of(tensors), first));
  }

  [[nodiscard]] std::filesystem::path index(const std::string& map) const {
    return folder.write("model.safetensors.index.json",
                        R"({"metadata":{"total_size":22},"weight_map":)" + map + "}");
  }
  [[nodiscard]] Error refusal_of(const std::string& map) const {
    const auto path = index(map);
    return error_of([&] { Safetensors file(path); });
  }

  TemporaryFolder folder;
};

}  // namespace

TEST_CASE_FIXTURE(Shards, "weights in several files are read as one through their index") {
  CHECK(says(error_of([&] { static_cast<void>(find_weights(folder.path(), "--init-from")); }), "--init-from",
             "model.safetensors.index.json"));
  const auto path = index(R"({"a":"model-00001-of-00002.safetensors","b":"model-00001-of-00002.safetensors",)"
                          R"("c":"model-00002-of-00002.safetensors"})");
  CHECK(find_weights(folder.path(), "--init-from") == path);
  const Safetensors file(path);
  CHECK(file.tensors().size() == 3);
  CHECK(values_of(file, *file.find("a")) == std::vector<float>{1, 2});
  CHECK(values_of(file, *file.find("b")) == std::vector<float>{3, 4, 5});
  CHECK(values_of(file, *file.find("c")) == std::vector<float>{10, 11, 12, 13});
}

TEST_CASE_FIXTURE(Shards, "a tensor of a file that the index does not list is treated as missing") {
  write("model-00002-of-00002.safetensors", {{"a", DType::f32, {2}}, {"c", DType::f32, {1}}}, 20);
  const Safetensors file(
      index(R"({"a":"model-00001-of-00002.safetensors","c":"model-00002-of-00002.safetensors"})"));
  CHECK(values_of(file, *file.find("a")) == std::vector<float>{1, 2});
  CHECK(file.find("b") == nullptr);
}

TEST_CASE_FIXTURE(Shards, "an index that contradicts its files is refused") {
  CHECK(says(refusal_of("7"), "index.json", "weight_map"));
  CHECK(says(refusal_of("{}"), "index.json", "weight_map"));
  CHECK(says(refusal_of(R"({"d":"model-00001-of-00002.safetensors"})"), "'d'", "model-00001-of-00002.safetensors"));
  CHECK(says(refusal_of(R"({"a":"model-00003-of-00003.safetensors"})"), "model-00003-of-00003.safetensors"));
  for (const char* name : {"\"../model.safetensors\"", "\"/etc/passwd\"", "\"\"", "3", "\"..\""}) {
    CAPTURE(name);
    CHECK(says(refusal_of(std::string(R"({"a":)") + name + "}"), "'a'", "index's folder"));
  }
  const auto path = folder.write("broken.index.json", "{");
  CHECK(says(error_of([&] { Safetensors file(path); }), "broken.index.json: not JSON", " at offset "));
}
