#include "models/ops/product_choice_file.hpp"

#include "runtime/atomic_file.hpp"
#include "runtime/error.hpp"
#include "runtime/json_text.hpp"
#include "runtime/memory_map.hpp"

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

namespace ranvier::models {
namespace {

namespace json = boost::json;

using runtime::DType;
using Kind = Epilogue::Kind;

constexpr int form = 1;                                 // of the file
constexpr std::uint64_t most = std::uint64_t{1} << 40;  // of an extent or a stride; their products stay in 64 bits

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
constexpr std::pair<Kind, const char*> epilogues[] = {{Kind::none, "none"},
                                                      {Kind::gelu, "gelu"},
                                                      {Kind::gelu_backward, "gelu_backward"},
                                                      {Kind::column_sums, "column_sums"},
                                                      {Kind::sum, "sum"}};

const char* to_string(Kind epilogue) {
  return std::find_if(std::begin(epilogues), std::end(epilogues),
                      [&](const auto& one) { return one.first == epilogue; })
      ->second;
}

/// A line of the file.
std::string line_of(const ProductChoice& choice) {
  const LibraryProduct& p = choice.product;
  std::string algorithm = "null";
  if (choice.algorithm) {
    algorithm = "\"";
    for (const std::uint64_t word : *choice.algorithm) algorithm += fmt::format("{:016x}", word);
    algorithm += '"';
  }
  return fmt::format(
      R"({{"m": {}, "n": {}, "k": {}, "strides": [{}, {}, {}], "transposed": [{}, {}], "dtype": "{}", "c_dtype": "{}", )"
      R"("bias": {}, "accumulate": {}, "epilogue": "{}", "alignments": [{}], "algorithm": {}}})",
      p.m, p.n, p.k, p.a_stride, p.b_stride, p.c_stride, p.transpose_a, p.transpose_b, runtime::to_string(p.dtype),
      runtime::to_string(p.c_dtype), p.has_bias, p.accumulate, to_string(p.epilogue), fmt::join(p.alignments, ", "),
      algorithm);
}

std::string lines_of(const std::vector<ProductChoice>& choices) {
  std::string lines;
  for (const ProductChoice& choice : choices) lines += (lines.empty() ? "" : ",\n") + line_of(choice);
  return lines;
}

/// FNV-1a: a digit that changed would be another algorithm, and nothing else would tell.
std::string checksum_of(const ProductChoices& choices) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : fmt::format("{} {}\n{}", choices.of.gpu, choices.of.version, lines_of(choices.choices)))
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return fmt::format("{:016x}", hash);
}

/// Values of the form that the file has; anything else is refused.
class Reader {
 public:
  explicit Reader(const std::string& source) : source_(source) {}

  [[nodiscard]] std::vector<ProductChoices> all(std::string_view text) const {
    const json::value document = runtime::parse_json(text, source_);
    const json::object& object = object_of(document, 2);
    if (number(object, "ranvier_products", most) != form)
      refuse(
          fmt::format("has form {}, and this build reads form {}", number(object, "ranvier_products", most), form));
    std::vector<ProductChoices> result;
    for (const json::value& one : array(object, "measured")) {
      ProductChoices choices = choices_of(object_of(one, 4));
      for (const ProductChoices& other : result)
        if (other.of == choices.of) refuse(fmt::format("has two lists of {}", choices.of.gpu));
      result.push_back(std::move(choices));
    }
    return result;
  }

 private:
  [[nodiscard]] ProductChoices choices_of(const json::object& object) const {
    ProductChoices result{{text(object, "gpu"), number(object, "cublas_lt", most)}, {}};
    for (const json::value& one : array(object, "products")) result.choices.push_back(choice(object_of(one, 12)));
    if (text(object, "checksum") != checksum_of(result))
      refuse(fmt::format("is damaged: the checksum of what it has of {} does not fit", result.of.gpu));
    const auto not_before = [](const ProductChoice& a, const ProductChoice& b) { return a.product >= b.product; };
    if (std::adjacent_find(result.choices.begin(), result.choices.end(), not_before) != result.choices.end())
      refuse(fmt::format("has products of {} out of order", result.of.gpu));
    return result;
  }

  [[nodiscard]] ProductChoice choice(const json::object& object) const {
    ProductChoice result;
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
    p.epilogue = epilogue(object);
    const json::array& alignments = array(object, "alignments", p.alignments.size());
    for (std::size_t i = 0; i < p.alignments.size(); ++i)
      p.alignments[i] = static_cast<std::uint32_t>(number(alignments[i], "alignments", 64));
    if (!member(object, "algorithm").is_null()) result.algorithm = algorithm(text(object, "algorithm"));
    return result;
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

  [[nodiscard]] Kind epilogue(const json::object& object) const {
    const std::string given = text(object, "epilogue");
    for (const auto& [kind, name] : epilogues)
      if (given == name) return kind;
    refuse(fmt::format("has an 'epilogue' of '{}'", given));
  }

  const json::object& object_of(const json::value& value, std::size_t members) const {
    if (!value.is_object() || value.get_object().size() != members)
      refuse(fmt::format("has no object of {} members where one belongs", members));
    return value.get_object();
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

std::string to_json(std::span<const ProductChoices> choices) {
  std::string text = fmt::format("{{\"ranvier_products\": {}, \"measured\": [\n", form);
  for (const ProductChoices& one : choices) {
    text += fmt::format("{}{{\"gpu\": {}, \"cublas_lt\": {}, \"checksum\": \"{}\", \"products\": [\n{}\n]}}",
                        &one == choices.data() ? "" : ",\n", json::serialize(json::value(one.of.gpu)),
                        one.of.version, checksum_of(one), lines_of(one.choices));
  }
  return text + "\n]}\n";
}

std::vector<ProductChoices> parse_product_choices(std::string_view text, const std::string& source) {
  return Reader(source).all(text);
}

ProductChoiceFile::ProductChoiceFile(std::filesystem::path path, std::string flag)
    : path_(std::move(path)), flag_(std::move(flag)) {
  is_there() ? read() : runtime::check_writable(path_, flag_.c_str());
}

bool ProductChoiceFile::is_there() const {
  std::error_code unknown;
  return std::filesystem::exists(path_, unknown);
}

void ProductChoiceFile::read() {
  const std::string source = fmt::format("{} {}", flag_, path_.string());
  try {
    const runtime::MemoryMap file(path_);
    all_ = parse_product_choices({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, source);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::data)
      fail(ErrorCode::data, "{}; it was left as it is: name another file, or delete this one to measure again",
           error.what());
    fail(error.code(), "{} cannot be read: {}", source, error.what());
  }
}

ProductChoices ProductChoiceFile::choices_of(const ProductLibrary& library) const {
  for (const ProductChoices& one : all_)
    if (one.of == library) return one;
  return {library, {}};
}

std::vector<ProductLibrary> ProductChoiceFile::libraries() const {
  std::vector<ProductLibrary> result;
  for (const ProductChoices& one : all_) result.push_back(one.of);
  return result;
}

void ProductChoiceFile::remember(const ProductChoices& choices) {
  if (is_there()) read();  // another job may have written it meanwhile
  auto old = std::find_if(all_.begin(), all_.end(), [&](const auto& one) { return one.of == choices.of; });
  if (old == all_.end()) old = all_.insert(all_.end(), {choices.of, {}});
  std::map<LibraryProduct, std::optional<ProductChoice::Algorithm>> merged;
  for (const auto& [product, algorithm] : old->choices) merged[product] = algorithm;
  for (const auto& [product, algorithm] : choices.choices) merged[product] = algorithm;
  std::vector<ProductChoice> all;
  for (const auto& [product, algorithm] : merged) all.push_back({product, algorithm});
  if (all == old->choices) return;
  old->choices = std::move(all);
  runtime::check_writable(path_, flag_.c_str());
  runtime::AtomicFile file(path_);
  const std::string text = to_json(all_);
  file.append(text.data(), text.size());
  file.commit();
}

}  // namespace ranvier::models
