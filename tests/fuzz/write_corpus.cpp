// Writes the fuzzer's initial corpus: a few complete inputs for each target.
//
//   fuzz_corpus FOLDER      creates FOLDER/TARGET/ for each target
#include "models/families/adapter_files.hpp"
#include "models/families/model.hpp"
#include "models/ops/kernel_choice_file.hpp"
#include "offload/checkpoint/manifest.hpp"
#include "tests/models/safetensors_writer.hpp"
#include "tests/models/sentencepiece_writer.hpp"
#include "tests/models/small_choices.hpp"
#include "tests/models/small_tokenizer.hpp"
#include "tests/models/token_files.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

using namespace ranvier;

namespace {

std::string megatron_index(std::uint8_t code, std::int64_t width) {
  return tests::MegatronIndex{code, {2, 0, 3, 1}, {0, 2 * width, 4 * width, 2 * width}, {0, 2, 4}}.bytes();
}

/// Returns the manifest without the checksum at its end.
std::string manifest() {
  offload::Manifest manifest;
  manifest.step = 500;
  manifest.arrays = {{"h.0", "weights", runtime::DType::f32, 3000},
                     {"h.0", "m", runtime::DType::bf16, 7},
                     {"h.0", "v", runtime::DType::u8, 300}};
  manifest.files = {{"rank-0000.data", 12288}, {"rank-0001.data", 8192}};
  manifest.pieces = {
      {0, 0, 0, 2000, 0, 1}, {0, 1, 2000, 1000, 0, 2}, {1, 0, 0, 7, 8192, 3}, {2, 1, 0, 300, 4096, 4}};
  manifest.training = {{"applied_steps", 499}, {"loss_scale", "0x1p+16"}};
  manifest.about = {{"options", {{"layers", "12"}}}, {"loss", 2.5}};
  const std::string text = offload::to_json(manifest);
  return text.substr(0, text.rfind("\"xxh3\""));
}

std::map<std::string, std::vector<std::string>> corpora() {
  const tests::SmallTokenizer small;
  std::map<std::string, std::vector<std::string>> all;
  all["text"] = {"Hello world, it's 2024!\n\n  we'll've 'S\t", "中文。１２ \u3000x \u00a0\u00a0y é",
                 "\xf0\x9f\x98\x80 ok\xff\xfe \xe4\xb8", "<|endoftext|>aaaaaaaaa the<|endoftext|"};
  const std::vector<std::uint16_t> narrow{1, 2, 3, 50256, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::vector<std::uint32_t> wide{1, 2, 3, 128'000, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::string lines = "{\"text\": \"abc abc\"}\n{\"text\": \"the world\"}\n";
  constexpr char compressed[] =  // the same lines, compressed by gzip
      "\037\213\010\000\000\000\000\000\002\003\253\126\052\111\255\050\121\262\122\120\112\114\112\126\000"
      "\142\245\132\256\152\270\130\111\106\252\102\171\176\121\116\012\120\024\000\022\051\104\321\052\000"
      "\000\000";
  all["token_file"] = {"\1\xff" + tests::llmc_file(narrow),
                       "\x40\xff" + tests::llmc_file(wide),
                       "\x61\xff" + tests::bytes_of(narrow),
                       std::string("\x08\1") + std::string(40, '\7'),
                       "\2\1" + lines,
                       std::string("\0\1", 2) + std::string(compressed, sizeof compressed - 1),
                       "\x80\1" + std::string(compressed, sizeof compressed - 1)};
  for (const auto& [code, width] :
       std::map<std::uint8_t, std::int64_t>{{1, 1}, {2, 1}, {3, 2}, {4, 4}, {5, 8}, {6, 8}, {8, 2}})
    all["megatron_index"].push_back(megatron_index(code, width));
  all["questions"] = {
      "\xff" + tests::question_file({{{1, 2, 3}, {{4, 5}, {6}, {7, 8, 9}}, 2}, {{10}, {{11}, {12, 13}}, 0}})};
  const std::string empty =
      "{\"format\":\"ranvier checkpoint\",\"version\":1,\"step\":0,\"training\":{},\"about\":{},"
      "\"arrays\":[],\"files\":[],\"pieces\":[],";
  all["manifest"] = {"\1" + manifest(), "\1" + empty, "\2" + offload::to_json({})};
  all["safetensors"] = {
      tests::safetensors_file(R"({"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}})", 24),
      tests::safetensors_file(R"({"__metadata__": {"format": "pt"}, "wte.weight": )"
                              R"({"dtype": "BF16", "shape": [4, 2], "data_offsets": [0, 16]},)"
                              R"( "wpe.weight": {"dtype": "F16", "shape": [3, 2], "data_offsets": [16, 28]},)"
                              R"( "h.0.ln_1.weight": {"dtype": "BOOL", "shape": [2], "data_offsets": [28, 30]}})",
                              30)};
  all["weights_json"] = {
      std::string(1, '\0') + models::model_config_json(models::GptOptions()),
      "\1"
      R"({"metadata": {"total_size": 0}, "weight_map": {"a": "a.safetensors"}})",
      "\2"
      R"({"intra_node": {"latency_seconds": 2e-6, "bytes_per_second": 6e9, "node_bytes_per_second": 12e9}})",
      "\3" + models::to_json({{{{"a GPU", 130200}, {models::ProductChoice{}}}},
                              {{{"a GPU", 91900}, {models::AttentionChoice{.by_library = true}}}}}),
      "\4" + models::model_config_json(models::LlamaOptions{
                 .rope_scaling = models::RopeScaling{.factor = 2}, .window = 8, .qkv_bias = true}),
      "\5" + models::model_config_json(models::BertOptions{.types = 1, .roberta = true, .padding_token = 1}),
      "\6"
      R"({"name": "a", "source": "b", "gpu": true, "threads": 2, "cores": 8, "device_memory": 8e9, )"
      R"("host_memory": 1e11, "disk": 5, "peak_flops_per_second": {"bf16": 2.5e14}, )"
      R"("rates": {"fp32": {"product": {"launch_seconds": 4e-6, )"
      R"("flops_per_second": 1e13}, "elementwise": {"bytes_per_second": 1e12}}}, "products": {"fp16": [{"m": 5, )"
      R"("n": 6, "k": 7, "flops_per_second": 9e13}]}, "host_rates": {"optimizer": {"bytes_per_second": 1e10}}, )"
      R"("read_bytes_per_second": 1e9, "handler_seconds": 2e-6, "links": {"inter_node": {"latency_seconds": 0, )"
      R"("bytes_per_second": 1e9, "node_bytes_per_second": 1e9}}, "price_per_hour": 2.5})",
      "\7" + models::adapter_config_json({.dropout = 0.1f, .targets = {"q_proj", "v_proj"}}, "base",
                                         models::GptOptions())};
  all["tokenizer_json"] = {
      small.tokenizer_json(), small.tokenizer_json(true),
      R"({"added_tokens": [{"id": 5, "content": "<s>", "special": true, "lstrip": true, "rstrip": true}, )"
      R"({"id": 0, "content": "<u>", "single_word": true}], "normalizer": {"type": "Sequence", "normalizers": [)"
      R"({"type": "NFKC"}, {"type": "Lowercase"}, {"type": "StripAccents"}, {"type": "Strip"}, {"type": "Prepend", )"
      R"("prepend": "\u2581"}, {"type": "Replace", "pattern": {"Regex": " |a+"}, "content": "\u2581"}]}, )"
      R"("pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": false}, )"
      R"("decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": )"
      R"(" "}, {"type": "ByteFallback"}, {"type": "Fuse"}, )"
      R"({"type": "Strip", "content": " ", "start": 1, "stop": 0}]}, )"
      R"("model": {"type": "BPE", "unk_token": "<u>", "fuse_unk": true, "byte_fallback": true, "vocab": {"<u>": 0, )"
      R"("\u2581": 1, "e": 2, "\u2581e": 3, "<0xFF>": 4}, "merges": ["\u2581 e"]}})",
      R"({"normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [)"
      R"({"type": "BertPreTokenizer"}, {"type": "Digits", "individual_digits": true}, {"type": "Split", "pattern": )"
      R"({"Regex": "(?i:'s)|\\s+(?!\\S)|[^\\w]"}, "behavior": "MergedWithNext"}, )"
      R"({"type": "Punctuation"}]}, "decoder": )"
      R"({"type": "WordPiece", "prefix": "##", "cleanup": true}, "model": {"type": "WordPiece", "unk_token": "[UNK]", )"
      R"("max_input_chars_per_word": 9, "vocab": {"[UNK]": 0, "wor": 1, "##ld": 2, "a": 3, "##aa": 4}}})"};
  all["sentencepiece"] = {tests::SentencePieceWriter()
                              .add("<unk>", 0, 2)
                              .add("<s>", 0, 3)
                              .add("\u2581", -3)
                              .add("a", -4)
                              .add("aa", -1)
                              .add("<0xFF>", 0, 6)
                              .add("ld", 0, 4)
                              .model()};
  all["tokenizer_merges"] = {small.encoder_json() + '\0' + small.vocab_bpe()};
  all["tokenizer_ranks"] = {"dGhl 256\nIHQ= 257\n", "aGU= 256\n\nIHRoZQ== 257\r\nIHQ= 258\n"};
  all["options"] = {"count = 7\nshare=0.25\ncolour = blue  # as ever\nname = a name\n",
                    "memory = 1.5GiB\nshuffle = off\ndry = on\n", "colr = red\n", "a.bin:0.7,b:c.bin:0.3",
                    "[some]\ncount = 1\n"};
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_corpus FOLDER\n");
    return EXIT_FAILURE;
  }
  for (const auto& [target, inputs] : corpora()) {
    const auto folder = std::filesystem::path(argv[1]) / target;
    std::filesystem::create_directories(folder);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      std::ofstream file(folder / std::to_string(i), std::ios::binary);
      file << inputs[i];
      if (file.flush()) continue;
      std::fprintf(stderr, "%s: cannot be written\n", folder.c_str());
      return EXIT_FAILURE;
    }
  }
}
