#include "apps/program/data_sheet.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace ranvier::apps {

namespace {

using runtime::DType;

struct DataSheet {
  std::string_view gpu;  ///< as reduced() leaves its name
  double half, fp32;     ///< TFLOP per second
  bool bf16 = true;      ///< as fast as fp16; false: not on its tensor cores
};

// Source: NVIDIA's data sheet of each GPU; for GeForce and RTX cards the white paper of their architecture.
constexpr std::array data_sheets{
    DataSheet{"a10", 125, 31.2},
    DataSheet{"a10g", 70, 31.5},
    DataSheet{"a30", 165, 10.3},
    DataSheet{"a40", 149.7, 37.4},
    DataSheet{"a100 pcie", 312, 19.5},
    DataSheet{"a100 sxm", 312, 19.5},
    DataSheet{"a100 sxm4", 312, 19.5},
    DataSheet{"a800 sxm4", 312, 19.5},
    DataSheet{"b200", 2250, 75},
    DataSheet{"gb200", 2500, 80},
    DataSheet{"gh200", 989.4, 66.9},
    DataSheet{"h20", 148, 44},
    DataSheet{"h100", 989.4, 66.9},
    DataSheet{"h100 nvl", 835.5, 60},
    DataSheet{"h100 pcie", 756.5, 51.2},
    DataSheet{"h200", 989.4, 66.9},
    DataSheet{"h200 nvl", 835.5, 60},
    DataSheet{"h800", 989.4, 66.9},
    DataSheet{"l4", 121, 30.3},
    DataSheet{"l40", 181.05, 90.5},
    DataSheet{"l40s", 362.05, 91.6},
    DataSheet{"rtx 3090", 71, 35.6},
    DataSheet{"rtx 4090", 165.2, 82.6},
    DataSheet{"rtx 5090", 209.5, 104.8},
    DataSheet{"rtx 6000 ada generation", 364.2, 91.1},
    DataSheet{"rtx a6000", 154.8, 38.7},
    DataSheet{"t4", 65, 8.1, false},
    DataSheet{"v100 pcie", 112, 14, false},
    DataSheet{"v100 sxm2", 125, 15.7, false},
    DataSheet{"v100 sxm3", 125, 15.7, false},
    DataSheet{"v100s pcie", 130, 16.4, false},
};

bool is_left_out(std::string_view word) {
  if (word == "nvidia" || word == "tesla" || word == "geforce" || word.starts_with("hbm")) return true;
  const std::size_t digits = std::min(word.find_first_not_of("0123456789"), word.size());
  return digits > 0 && (word.substr(digits) == "gb" || word.substr(digits) == "g");  // its memory
}

/// "a100 sxm4" of "NVIDIA A100-SXM4-40GB".
std::string reduced(std::string_view name) {
  std::string text, word;
  const auto end_word = [&] {
    if (!word.empty() && !is_left_out(word)) text += (text.empty() ? "" : " ") + word;
    word.clear();
  };
  for (const char c : name) {
    if (c == ' ' || c == '-') {
      end_word();
    } else {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  end_word();
  return text;
}

}  // namespace

std::map<DType, double> data_sheet_rates(std::string_view gpu) {
  const std::string name = reduced(gpu);
  const auto* const found =
      std::find_if(data_sheets.begin(), data_sheets.end(), [&](const DataSheet& each) { return each.gpu == name; });
  if (found == data_sheets.end()) return {};
  constexpr double tera = 1e12;
  std::map<DType, double> rates{{DType::f32, tera * found->fp32}, {DType::f16, tera * found->half}};
  if (found->bf16) rates[DType::bf16] = tera * found->half;
  return rates;
}

}  // namespace ranvier::apps
