#include "models/ops/kernel_choice_file.hpp"

#include "runtime/base/error.hpp"
#include "runtime/files/atomic_file.hpp"
#include "runtime/files/json_text.hpp"
#include "runtime/files/memory_map.hpp"

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

namespace ranvier::models {
namespace {

namespace json = boost::json;

using runtime::DType;
using Kind = Epilogue::Kind;

constexpr std::uint64_t form = 2, form_without_attention = 1;  // versions of the file format
constexpr std::uint64_t most = std::uint64_t{1} << 40;  // limit of sizes and strides; their products fit 64 bits
constexpr std::uint64_t max_of_attention = std::numeric_limits<int>::max();

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
constexpr std::pair<Kind, const char*> epilogues[] = {{Kind::none, "none"},
                                                      {Kind::gelu, "gelu"},
                                                      {Kind::gelu_backward, "gelu_backward"},
                                                      {Kind::column_sums, "column_sums"},
                                                      {Kind::sum, "sum"}};

constexpr std::pair<AttentionPass, const char*> passes[] = {{AttentionPass::forward, "forward"},
                                                            {AttentionPass::backward, "backward"},
                                                            {AttentionPass::fast_backward, "fast_backward"}};
constexpr std::pair<bool, const char*> owners[] = {{true, "cudnn"}, {false, "ranvier"}};

template <typename Names, typename Value>
const char* name_of(const Names& names, Value value) {
  return std::find_if(std::begin(names), std::end(names), [&](const auto& one) { return one.first == value; })
      ->second;
}

/// Line of a choice in the file.
std::string line_of(const ProductChoice& choice) {
  const LibraryProduct& p = choice.product;
  std::string algorithm = "null";
  if (choice.algorithm) {
    algorithm = "\"";
    for (const std::uint64_t word : *choice.algorithm) algorithm += fmt::format("{:016x}", word);
    algorithm += '"';
  }
  return fmt::format(R"({{"m": {}, "n": {}, "k": {}, "strides": [{}, {}, {}], "transposed": [{}, {}], )"
                     R"("dtype": "{}", "c_dtype": "{}", )"
                     R"("bias": {}, "accumulate": {}, "epilogue": "{}", "alignments": [{}], "algorithm": {}}})",
                     p.m, p.n, p.k, p.a_stride, p.b_stride, p.c_stride, p.transpose_a, p.transpose_b,
                     runtime::to_string(p.dtype), runtime::to_string(p.c_dtype), p.has_bias, p.accumulate,
                     name_of(epilogues, p.epilogue), fmt::join(p.alignments, ", "), algorithm);
}

std::string line_of(const AttentionChoice& choice) {
  const AttentionTask& t = choice.task;
  std::string more;
  if (t.key_heads != t.heads) more += fmt::format(R"("key_heads": {}, )", t.key_heads);
  if (!t.causal) more += R"("causal": false, )";
  if (t.window != 0) more += fmt::format(R"("window": {}, )", t.window);
  return fmt::format(
      R"({{"pass": "{}", "samples": {}, "positions": {}, "heads": {}, "channels": {}, "dtype": "{}", {}"by": "{}"}})",
      name_of(passes, t.pass), t.samples, t.positions, t.heads, t.channels, runtime::to_string(t.dtype), more,
      name_of(owners, choice.by_library));
}

template <typename Choice>
std::string lines_of(const std::vector<Choice>& choices) {
  std::string lines;
  for (const Choice& choice : choices) lines += (lines.empty() ? "" : ",\n") + line_of(choice);
  return lines;
}

/// FNV-1a checksum: a changed digit would be another valid algorithm.
template <typename Choices>
std::string checksum_of(const Choices& choices) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : fmt::format("{} {}\n{}", choices.of.gpu, choices.of.version, lines_of(choices.choices)))
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return fmt::format("{:016x}", hash);
}

template <typename Choices>
std::string lists_of(const std::vector<Choices>& all, const char* library, const char* choices) {
  std::string text;
  for (const Choices& one : all) {
    text += fmt::format("{}{{\"gpu\": {}, \"{}\": {}, \"checksum\": \"{}\", \"{}\": [\n{}\n]}}",
                        text.empty() ? "" : ",\n", json::serialize(json::value(one.of.gpu)), library,
                        one.of.version, checksum_of(one), choices, lines_of(one.choices));
  }
  return text;
}

/// Key of a choice.
const LibraryProduct& key_of(const ProductChoice& choice) { return choice.product; }
const AttentionTask& key_of(const AttentionChoice& choice) { return choice.task; }

/// Choices made by a GPU and library; empty if there are none.
template <typename Choices, typename ChosenBy>
Choices of(const std::vector<Choices>& all, const ChosenBy& library) {
  const auto known = std::find_if(all.begin(), all.end(), [&](const Choices& one) { return one.of == library; });
  return known != all.end() ? *known : Choices{library, {}};
}

/// Adds new choices and replaces different ones, by key.
template <typename Choices>
void merge(std::vector<Choices>& all, const Choices& more) {
  if (more.choices.empty()) return;
  auto to = std::find_if(all.begin(), all.end(), [&](const Choices& one) { return one.of == more.of; });
  if (to == all.end()) to = all.insert(all.end(), {more.of, {}});
  for (const auto& choice : more.choices) {
    const auto place = std::lower_bound(to->choices.begin(), to->choices.end(), choice,
                                        [](const auto& a, const auto& b) { return key_of(a) < key_of(b); });
    if (place != to->choices.end() && key_of(*place) == key_of(choice)) {
      *place = choice;
    } else {
      to->choices.insert(place, choice);
    }
  }
}

/// Reads values of the file's format; throws on anything else.
class Reader {
 public:
  explicit Reader(const std::string& source) : source_(source) {}

  [[nodiscard]] KernelChoices all(std::string_view text) const {
    const json::value document = runtime::parse_json(text, source_);
    const json::object& object = object_of(document);
    const std::uint64_t given = number(object, "ranvier_products", most);
    if (given != form && given != form_without_attention)
      refuse(fmt::format("has form {}, and this build reads forms {} and {}", given, form_without_attention, form));
    const bool has_attention = given == form;
    expect_members(object, has_attention ? 3 : 2);
    KernelChoices result;
    lists<ProductChoices>(object, "measured", "cublas_lt", "products", result.products);
    if (has_attention) lists<AttentionChoices>(object, "attention", "cudnn", "passes", result.attention);
    return result;
  }

 private:
  /// Reads a list with an entry per GPU and library version.
  template <typename Choices>
  void lists(const json::object& object, const char* name, const char* library, const char* choices,
             std::vector<Choices>& all) const {
    for (const json::value& value : array(object, name)) {
      const json::object& one = expect_members(object_of(value), 4);
      Choices list{{text(one, "gpu"), number(one, library, most)}, {}};
      for (const json::value& line : array(one, choices)) add(object_of(line), list.choices);
      if (text(one, "checksum") != checksum_of(list))
        refuse(fmt::format("is damaged: the checksum of the entries of {} does not match", list.of.gpu));
      const auto not_before = [](const auto& a, const auto& b) { return key_of(a) >= key_of(b); };
      if (std::adjacent_find(list.choices.begin(), list.choices.end(), not_before) != list.choices.end())
        refuse(fmt::format("has {} of {} out of order", choices, list.of.gpu));
      for (const Choices& other : all)
        if (other.of == list.of) refuse(fmt::format("has two lists of {}", list.of.gpu));
      all.push_back(std::move(list));
    }
  }

  void add(const json::object& object, std::vector<ProductChoice>& to) const {
    expect_members(object, 12);
    ProductChoice& result = to.emplace_back();
    LibraryProduct& p = result.product;
    p.m = number(object, "m", most);
    p.n = number(object, "n", most);
    p.k = number(object, "k", most);
    const json::array& strides = array(object, "strides", 3);
    p.a_stride = number(strides[0], "strides", most);
    p.b_stride = number(strides[1], "strides", most);
    p.c_stride = number(strides[2], "strides", most);
    const json::array& transposed = array(object, "transposed", 2);
    p.transpose_a = truth(transposed[0], "transposed");
    p.transpose_b = truth(transposed[1], "transposed");
    p.dtype = dtype(object, "dtype");
    p.c_dtype = dtype(object, "c_dtype");
    p.has_bias = truth(member(object, "bias"), "bias");
    p.accumulate = truth(member(object, "accumulate"), "accumulate");
    p.epilogue = named(object, "epilogue", epilogues);
    const json::array& alignments = array(object, "alignments", p.alignments.size());
    for (std::size_t i = 0; i < p.alignments.size(); ++i)
      p.alignments[i] = static_cast<std::uint32_t>(number(alignments[i], "alignments", 64));
    if (!member(object, "algorithm").is_null()) result.algorithm = algorithm(text(object, "algorithm"));
  }
  void add(const json::object& object, std::vector<AttentionChoice>& to) const {
    AttentionChoice& result = to.emplace_back();
    AttentionTask& t = result.task;
    std::size_t members = 7;
    const auto may_have = [&](const char* name) {
      const bool has = object.contains(name);
      if (has) ++members;
      return has;
    };
    t.pass = named(object, "pass", passes);
    t.samples = extent(object, "samples");
    t.positions = extent(object, "positions");
    t.heads = extent(object, "heads");
    t.channels = extent(object, "channels");
    t.dtype = dtype(object, "dtype");
    t.key_heads = may_have("key_heads") ? extent(object, "key_heads") : t.heads;
    if (may_have("causal")) t.causal = truth(member(object, "causal"), "causal");
    if (may_have("window")) t.window = extent(object, "window");
    result.by_library = named(object, "by", owners);
    expect_members(object, members);
    if (t.heads % t.key_heads != 0) refuse(fmt::format("has a 'key_heads' that does not divide {}", t.heads));
  }

  [[nodiscard]] ProductChoice::Algorithm algorithm(std::string_view digits) const {
    ProductChoice::Algorithm result{};
    if (digits.size() != 16 * result.size()) refuse(fmt::format("has an 'algorithm' of {} digits", digits.size()));
    for (std::size_t i = 0; i < result.size(); ++i) {
      const char *const begin = digits.data() + 16 * i, *const end = begin + 16;
      if (const auto [stop, error] = std::from_chars(begin, end, result[i], 16);
          error != std::errc{} || stop != end)
        refuse("has an 'algorithm' that is not in hexadecimal");
    }
    return result;
  }

  [[nodiscard]] DType dtype(const json::object& object, const char* name) const {
    const std::string given = text(object, name);
    for (const DType known : dtypes)
      if (given == runtime::to_string(known)) return known;
    refuse(fmt::format("has a '{}' of '{}'", name, given));
  }

  template <typename Value, std::size_t N>
  [[nodiscard]] Value named(const json::object& object, const char* name,
                            const std::pair<Value, const char*> (&names)[N]) const {
    const std::string given = text(object, name);
    for (const auto& [value, known] : names)
      if (given == known) return value;
    refuse(fmt::format("has a '{}' of '{}'", name, given));
  }

  const json::object& object_of(const json::value& value) const {
    if (!value.is_object()) refuse("has no object where one belongs");
    return value.get_object();
  }
  const json::object& expect_members(const json::object& object, std::size_t members) const {
    if (object.size() != members) refuse(fmt::format("has no object of {} members where one belongs", members));
    return object;
  }
  const json::value& member(const json::object& object, const char* name) const {
    const json::value* const value = object.if_contains(name);
    if (value == nullptr) refuse(fmt::format("lacks '{}'", name));
    return *value;
  }
  [[nodiscard]] std::uint64_t number(const json::value& value, const char* name, std::uint64_t limit) const {
    json::error_code error;
    const auto number = value.to_number<std::uint64_t>(error);
    if (error || number > limit) refuse(fmt::format("has a '{}' that is no number from 0 to {}", name, limit));
    return number;
  }
  [[nodiscard]] std::uint64_t number(const json::object& object, const char* name, std::uint64_t limit) const {
    return number(member(object, name), name, limit);
  }
  [[nodiscard]] int extent(const json::object& object, const char* name) const {
    const std::uint64_t value = number(object, name, max_of_attention);
    if (value == 0) refuse(fmt::format("has a '{}' of 0", name));
    return static_cast<int>(value);
  }
  [[nodiscard]] bool truth(const json::value& value, const char* name) const {
    if (!value.is_bool()) refuse(fmt::format("has a '{}' that is neither true nor false", name));
    return value.get_bool();
  }
  [[nodiscard]] std::string text(const json::object& object, const char* name) const {
    const json::value& value = member(object, name);
    if (!value.is_string()) refuse(fmt::format("has a '{}' that is no text", name));
    return std::string(value.get_string());
  }
  const json::array& array(const json::object& object, const char* name,
                           std::optional<std::size_t> size = {}) const {
    const json::value& value = member(object, name);
    if (!value.is_array() || (size && value.get_array().size() != *size))
      refuse(fmt::format("has a '{}' that is no list{}", name, size ? fmt::format(" of {}", *size) : ""));
    return value.get_array();
  }

  [[noreturn]] void refuse(const std::string& what) const { fail(ErrorCode::data, "{}: {}", source_, what); }

  const std::string& source_;
};

}  // namespace

std::string to_json(const KernelChoices& choices) {
  return fmt::format("{{\"ranvier_products\": {}, \"measured\": [\n{}\n], \"attention\": [\n{}\n]}}\n", form,
                     lists_of(choices.products, "cublas_lt", "products"),
                     lists_of(choices.attention, "cudnn", "passes"));
}

KernelChoices parse_kernel_choices(std::string_view text, const std::string& source) {
  return Reader(source).all(text);
}

KernelChoiceFile::KernelChoiceFile(std::filesystem::path path, std::string flag)
    : path_(std::move(path)), flag_(std::move(flag)) {
  is_there() ? read() : runtime::check_writable(path_, flag_.c_str());
}

bool KernelChoiceFile::is_there() const {
  std::error_code unknown;
  return std::filesystem::exists(path_, unknown);
}

void KernelChoiceFile::read() {
  const std::string source = fmt::format("{} {}", flag_, path_.string());
  try {
    all_ = parse_kernel_choices(runtime::MemoryMap(path_).text(), source);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::data)
      fail(ErrorCode::data, "{}; the file was not changed; use another file, or delete this file to measure again",
           error.what());
    fail(error.code(), "{} cannot be read: {}", source, error.what());
  }
}

ProductChoices KernelChoiceFile::choices_of(const ProductLibrary& library) const {
  return of(all_.products, library);
}

AttentionChoices KernelChoiceFile::choices_of(const AttentionLibrary& library) const {
  return of(all_.attention, library);
}

void KernelChoiceFile::remember(const KernelChoices& choices) {
  if (is_there()) read();  // another job may have written it
  const KernelChoices old = all_;
  for (const ProductChoices& more : choices.products) merge(all_.products, more);
  for (const AttentionChoices& more : choices.attention) merge(all_.attention, more);
  if (all_ == old) return;
  runtime::check_writable(path_, flag_.c_str());
  runtime::AtomicFile file(path_);
  const std::string text = to_json(all_);
  file.append(text.data(), text.size());
  file.commit();
}

}  // namespace ranvier::models
