#include "models/ops/kernel_choice_file.hpp"

#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using namespace ranvier::tests;
using runtime::DType;

namespace {

const ProductLibrary h200{"NVIDIA H200", 130200}, other_gpu{"NVIDIA \"A100\"", 130200},
    other_version{"NVIDIA H200", 1};

ProductChoice choice(std::size_t m, Epilogue::Kind epilogue, std::optional<std::uint64_t> word) {
  ProductChoice result{{.m = m,
                        .n = 128,
                        .k = 64,
                        .a_stride = 64,
                        .b_stride = 1000000,
                        .c_stride = 128,
                        .transpose_b = true,
                        .dtype = DType::bf16,
                        .c_dtype = DType::f32,
                        .has_bias = true,
                        .epilogue = epilogue,
                        .alignments = {64, 32, 2, 64, 4}},
                       {}};
  if (word) result.algorithm = ProductChoice::Algorithm{*word, 0, 1, 0, 0, 0, 0, ~std::uint64_t{0}};
  return result;
}

ProductChoices choices_of(const ProductLibrary& library) {
  return {library,
          {choice(16, Epilogue::Kind::none, 0xfedcba9876543210), choice(16, Epilogue::Kind::gelu, 7),
           choice(48, Epilogue::Kind::column_sums, {})}};
}

const AttentionLibrary cudnn{"NVIDIA H200", 91900}, other_cudnn{"NVIDIA H200", 92500};

AttentionChoices attention_of(const AttentionLibrary& library) {
  const auto choice = [](AttentionPass pass, int samples, bool by_library) {
    return AttentionChoice{
        {.samples = samples, .positions = 1024, .heads = 12, .channels = 64, .pass = pass, .key_heads = 12},
        by_library};
  };
  AttentionChoices all{library,
                       {choice(AttentionPass::forward, 8, false), choice(AttentionPass::backward, 8, true),
                        choice(AttentionPass::fast_backward, 8, true), choice(AttentionPass::forward, 16, true)}};
  AttentionChoice masked = choice(AttentionPass::forward, 32, true);
  masked.task.key_heads = 4, masked.task.window = 256;
  all.choices.push_back(masked);
  masked.task.key_heads = 12, masked.task.causal = false, masked.task.window = 0;
  all.choices.push_back(masked);
  return all;
}

/// The older format, without attention.
std::string form_1() {
  std::string text = to_json({{choices_of(h200)}, {}});
  text.replace(text.find("_products\": 2"), 13, "_products\": 1");
  return text.replace(text.find(", \"attention\""), std::string::npos, "}\n");
}

struct Fixture {
  TemporaryFolder folder;
  std::filesystem::path path = folder.path() / "products.json";

  [[nodiscard]] KernelChoiceFile open() const { return {path, "--products-file"}; }
  /// Checks that the content is refused with these words, and that the file does not change.
  void refused(const std::string& content, const char* words) const {
    folder.write("products.json", content);
    const Error error = error_of([&] { static_cast<void>(open()); });
    CHECK(says(error, ErrorCode::data, "--products-file " + path.string(), words));
    CHECK(folder.read("products.json") == content);
  }
};

}  // namespace

TEST_CASE("choices read back as written, for several GPUs and versions") {
  const KernelChoices all{{choices_of(h200), choices_of(other_gpu), {other_version, {}}},
                          {attention_of(cudnn), attention_of(other_cudnn)}};
  CHECK(parse_kernel_choices(to_json(all), "a test") == all);
  CHECK(parse_kernel_choices(to_json({}), "a test") == KernelChoices{});
}

TEST_CASE_FIXTURE(Fixture,
                  "a file of form 1, without attention, is read, and not rewritten until there is a new choice") {
  folder.write("products.json", form_1());
  CHECK(open().choices_of(h200) == choices_of(h200));
  CHECK(open().choices_of(cudnn).choices.empty());
  open().remember({{choices_of(h200)}, {}});
  CHECK(folder.read("products.json") == form_1());
  open().remember({{}, {attention_of(cudnn)}});
  CHECK(open().all() == KernelChoices{{choices_of(h200)}, {attention_of(cudnn)}});
}

TEST_CASE_FIXTURE(
    Fixture, "passes in a file without key heads and mask have as many key heads, are causal and have no window") {
  const std::string text = R"({"ranvier_products": 2, "measured": [

], "attention": [
{"gpu": "NVIDIA H200", "cudnn": 91900, "checksum": "c2eb036059576fe6", "passes": [
{"pass": "forward", "samples": 16, "positions": 1024, "heads": 12, "channels": 64, "dtype": "bf16", "by": "cudnn"}
]}
]}
)";
  const AttentionTask task{.samples = 16, .positions = 1024, .heads = 12, .channels = 64, .key_heads = 12};
  const KernelChoices choices = parse_kernel_choices(text, "a test");
  CHECK(choices == KernelChoices{{}, {{cudnn, {{task, true}}}}});
  CHECK(to_json(choices) == text);
}

TEST_CASE_FIXTURE(Fixture, "invalid attention passes are refused") {
  const auto changed = [](std::string_view from, std::string_view to) {
    std::string text = to_json({{}, {attention_of(cudnn)}});
    return text.replace(text.find(from), from.size(), to);
  };
  refused(changed("\"key_heads\": 4", "\"key_heads\": 5"), "'key_heads' that does not divide 12");
  refused(changed("\"window\": 256", "\"window\": 0"), "has a 'window' of 0");
  refused(changed("\"heads\": 12", "\"heads\": 0"), "has a 'heads' of 0");
  refused(changed("\"causal\": false", "\"causal\": 0"), "neither true nor false");
}

TEST_CASE_FIXTURE(Fixture, "a file has the measurements of each GPU and version, and keeps all others") {
  open().remember({{choices_of(h200)}, {attention_of(cudnn)}});
  open().remember({{choices_of(other_gpu)}, {attention_of(other_cudnn)}});
  ProductChoices more = choices_of(h200);
  more.choices.pop_back();                                     // not measured this time
  more.choices.front().algorithm->front() = 1;                 // another choice
  more.choices.push_back(choice(64, Epilogue::Kind::sum, 2));  // new
  AttentionChoices other_attention = attention_of(cudnn);
  other_attention.choices.erase(other_attention.choices.begin() + 1);
  other_attention.choices.front().by_library = true;
  open().remember({{more}, {other_attention}});
  const KernelChoiceFile file = open();
  CHECK(file.choices_of(other_gpu) == choices_of(other_gpu));
  CHECK(file.choices_of(other_version).choices.empty());
  ProductChoices expected = choices_of(h200);
  expected.choices.front() = more.choices.front();
  expected.choices.push_back(more.choices.back());
  CHECK(file.choices_of(h200) == expected);
  AttentionChoices expected_attention = attention_of(cudnn);
  expected_attention.choices.front().by_library = true;
  CHECK(file.choices_of(cudnn) == expected_attention);
  CHECK(file.choices_of(other_cudnn) == attention_of(other_cudnn));
}

TEST_CASE_FIXTURE(Fixture, "entries that another job wrote meanwhile stay") {
  KernelChoiceFile first = open(), second = open();
  first.remember({{choices_of(h200)}, {}});
  second.remember({{choices_of(other_gpu)}, {attention_of(cudnn)}});
  CHECK(open().choices_of(h200) == choices_of(h200));
  CHECK(open().choices_of(other_gpu) == choices_of(other_gpu));
}

TEST_CASE_FIXTURE(Fixture, "a complete file is not written again") {
  open().remember({{choices_of(h200)}, {attention_of(cudnn)}});
  const auto written = std::filesystem::last_write_time(path) - std::chrono::hours(1);
  std::filesystem::last_write_time(path, written);
  ProductChoices fewer = choices_of(h200);
  fewer.choices.erase(fewer.choices.begin());
  open().remember({{fewer}, {attention_of(cudnn)}});
  CHECK(std::filesystem::last_write_time(path) == written);
}

TEST_CASE_FIXTURE(Fixture, "a file in another format is refused, and not changed") {
  refused("", "not JSON");
  refused("weights, perhaps", "delete this file to measure again");
  refused("[]", "no object where one belongs");
  refused("{}", "lacks 'ranvier_products'");
  refused(R"({"ranvier_products": 3, "measured": []})", "has form 3, and this build reads forms 1 and 2");
  refused(R"({"ranvier_products": 2, "measured": []})", "no object of 3 members");
  refused(R"({"ranvier_products": 1, "measured": {}})", "'measured' that is no list");
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  CHECK(says(error_of([&] { static_cast<void>(open()); }), ErrorCode::io, "--products-file"));
}

TEST_CASE_FIXTURE(Fixture, "a file with any damaged byte is refused") {
  const std::string text = to_json({{choices_of(h200)}, {attention_of(cudnn)}});
  for (std::size_t at = 0; at < text.size(); ++at) {
    CAPTURE(at);
    for (const char byte : {'\0', '7', 'x', '"', '}'}) {
      std::string damaged = text;
      if (std::exchange(damaged[at], byte) == byte) continue;
      CHECK_THROWS_AS(static_cast<void>(parse_kernel_choices(damaged, "a test")), Error);
    }
    if (at + 1 == text.size()) break;  // the last newline
    CHECK_THROWS_AS(static_cast<void>(parse_kernel_choices(text.substr(0, at), "a test")), Error);
  }
  std::string damaged = text;
  damaged.replace(text.find("fedcba"), 6, "fedcbb");
  refused(damaged, "is damaged: the checksum of the entries of NVIDIA H200 does not match");
  damaged = text;
  damaged.replace(text.find("\"by\": \"ranvier\""), 15, "\"by\": \"cudnn\"");
  refused(damaged, "is damaged: the checksum of the entries of NVIDIA H200 does not match");
}

TEST_CASE("a file that cannot be created is refused before the measurement") {
  const Error error =
      error_of([] { static_cast<void>(KernelChoiceFile("/nowhere/products.json", "--products-file")); });
  CHECK(says(error, ErrorCode::io, "--products-file /nowhere/products.json"));
}
