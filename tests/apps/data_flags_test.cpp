#include "tests/apps/train_flags.hpp"

#include <fmt/format.h>

using namespace ranvier;
using namespace ranvier::apps;
using namespace ranvier::tests;

TEST_CASE("token files need no tokenizer and imply GPT-2's vocabulary") {
  check_resolved("--data train.bin", "--tokenizer none --vocab-size 50257");
  check_resolved("--data train --token-format uint16 --vocab-size 512", "--tokenizer none --vocab-size 512");
  check_resolved("--data a.bin --token-format text", "--vocab-size 256");
  refused_train("--token-format text --tokenizer none", "--tokenizer bytes");
}

TEST_CASE("an image model has blocks, a width and classes, and data without a tokenizer") {
  const auto images = parse_train("--model wide-resnet --data synthetic --blocks 1,2,3,4 --width 5");
  CHECK(models::layers_of(images.model.sizes) == 12);
  check_values(images, "--tokenizer none --blocks 1,2,3,4 --width 5 --image-size 32 --layers none");
  check_resolved({}, "--blocks none");
  for (const char* blocks : {"1,2,3", "1,2,3,4,5", "1,2,3,0", "1,2,,4", "1,2,3,4,", "a"})
    refused_train(fmt::format("--model wide-resnet --blocks {}", blocks), "four numbers above 0, as in 3,4,6,3");
  refused_train("--model wide-resnet --layers 3", "--model");
  refused_train("--model wide-resnet --sequence-length 32", "--sequence-length");
  refused_train("--model wide-resnet --tokenizer bytes", "--tokenizer is for text, but --model wide-resnet");
  refused_train("--augment on", "--augment is for images, but --model gpt");
  refused_train("--blocks 1,1,1,1", "--model gpt has no block groups");
  refused_train("--model wide-resnet --mask-token 3", "--mask-token is for text");
  refused_train("--model wide-resnet --g-inter 11 --world 11 --dry-run", "--g-inter 11");
}

TEST_CASE("a BERT's MLP is four times as wide, and bytes have a mask token") {
  check_resolved("--model bert",
                 "--vocab-size 257 --hidden 384 --ffn-size 1536 --mask-token auto --mlm-probability 0.15");
  check_resolved("--model roberta --hidden 64", "--ffn-size 256");
  check_resolved("--model bert --ffn-size 99", "--ffn-size 99");
  check_resolved("--model bert --mask-token 299 --mlm-probability 0.4", "--vocab-size 300 --mlm-probability 0.4");
  check_resolved("--model bert-large --data a.bin", "--vocab-size 30522");
  CHECK(parse_train("--model bert --data a --dropout 0.1").notes.empty());
  const auto unused = parse_train("--data a --mask-token 3");
  REQUIRE(unused.notes.size() == 1);
  check_has(unused.notes[0], {"--mask-token 3 has no effect"});
  refused_train("--model bert --mlm-probability 0", "--mlm-probability is invalid: 0; use a number above 0");
  refused_train("--model bert --mask-token mask", "a token id, or auto");
  refused_train("--model bert --mask-token 900 --vocab-size 500",
                "--mask-token 900 is not below the vocabulary size, 500");
  refused_train("--model bert --sample-every 3",
                "--sample-every 3 needs a causal language model, but --model bert");
  refused_train("--model bert --hellaswag q", "--hellaswag q needs a causal language model, but --model bert");
  check_resolved("--model bert --documents mask", "--documents mask");
  refused_train("--model bert --prompt-field ask",
                "--prompt-field ask needs a causal language model, but --model bert");
  refused_train("--model bert --ffn-size 100 --tile 8",
                "--tile 8 does not divide --ffn-size 100; use a divisor such as 4");
  refused_train("--model bert --kv-heads 2", "--kv-heads 2: --model bert has no such size; remove --kv-heads");
  refused_train("--model bert --heads 7", "--heads 7 does not divide --hidden 384");
}

TEST_CASE("validation has both a fraction of the data and an interval") {
  check_resolved("--eval-every 10", "--validation-split 0.1 --eval-samples 0");
  check_resolved("--validation-split 0.2 --steps 30", "--eval-every 30");
  check_resolved("--eval-every 10 --eval-samples 7", "--eval-samples 7");
  refused_train("--eval-every 10 --validation-split 0", "--eval-every 10 has no data");
  refused_train("--eval-samples 7", "--eval-samples 7 needs validation data");
}

TEST_CASE("an evaluation without training needs weights, and flags that only affect training are refused") {
  refused_train("--eval-only", "--eval-only needs weights; add --init-from");
  refused_train("--eval-only --init-from w --save s", "--save s has no effect with --eval-only");
  refused_train("--eval-only --init-from w --sample-every 5", "--sample-every 5 has no effect with --eval-only");
}

TEST_CASE("questions are answered during validation, or at the end without validation data") {
  check_resolved("--hellaswag q.bin --steps 30", "--eval-every 30 --validation-split 0");
  check_resolved("--hellaswag q.bin --eval-every 10", "--eval-every 10 --validation-split 0.1");
  check_resolved("--hellaswag q.bin --eval-every 9 --validation-split 0", "--eval-every 9");
  refused_train("--hellaswag q.bin --eval-every 0", "--hellaswag q.bin has no effect with --eval-every 0");
}

TEST_CASE("a tokenizer of GPT-2's kind, Megatron's files and weights of several files are accepted") {
  const auto gpt2 = parse_train("--data corpus.txt --tokenizer gpt2:some/dir");
  CHECK(gpt2.data.tokenizer == Tokenizer::gpt2);
  CHECK(gpt2.data.gpt2 == "some/dir");
  CHECK(gpt2.model.gpt().vocab_size == 50257);
  CHECK(parse_train("--data a.idx").data.tokenizer == Tokenizer::none);
  CHECK(parse_train("--data a.bin:0.7,b.bin:0.3").data.tokenizer == Tokenizer::none);
  CHECK(parse_train("--data a.bin:0.7,b.txt:0.3").data.tokenizer == Tokenizer::bytes);
  check_resolved("--token-format megatron", "--token-format megatron");
  check_resolved("--token-format jsonl --json-field body",
                 "--token-format jsonl --tokenizer bytes --json-field body");
  refused_train("--token-format jsonl --tokenizer none", "--tokenizer none cannot read --token-format jsonl");
}

TEST_CASE("documents are joined or masked, and always masked if they are prompts with completions") {
  check_resolved("--data a.txt", "--documents join");
  const Flags masked = "--data a.bin --documents mask --document-end 50256";
  check_resolved(masked, masked);
  check_resolved("--data a.jsonl --prompt-field q --json-field a", "--documents mask --prompt-field q");
  check_resolved("--data a.txt --documents pad --model bert", "--documents pad");
  refused_train("--documents pad", "--documents pad is for BERT and RoBERTa, but --model is gpt");
  refused_train("--documents pad --prompt-field q", "--documents pad has no effect with --prompt-field q");
  refused_train("--documents join --prompt-field q", "--documents join with --prompt-field q");
  refused_train("--tokenizer none --prompt-field q", "--tokenizer none cannot read the text of --prompt-field q");
  refused_train("--prompt-field text", "--prompt-field text and --json-field text");
  refused_train("--document-end 7", "--document-end 7 has no effect with --documents join; use --documents mask");
  refused_train("--documents mask --document-end 7",
                {"--document-end 7 is for token files", "remove --document-end"});
  refused_train("--documents apart", {"--documents is invalid: apart;", "join"});
  refused_train("--document-end -1 --documents mask", "--document-end");
}

TEST_CASE("flags that do not apply to text classification are refused by name") {
  refused_train("--label-field kind", "--label-field kind needs BERT or RoBERTa");
  const TemporaryFolder folder;
  std::string lines;
  for (const char* kind : {"low", "mid", "top"})
    lines += fmt::format(R"({{"text": "a", "kind": "{}"}})", kind) + "\n";
  const std::string data = folder.write("texts.jsonl", lines).string();
  const auto refused = [&](const char* flag, const char* value, std::string_view words) {
    check_usage_error({words}, [&] {
      static_cast<void>(
          parse_train(fmt::format("--model bert --label-field kind --data {} {} {}", data, flag, value)));
    });
  };
  refused("--documents", "mask", "--documents has no effect with --label-field kind");
  refused("--classes", "2", "--classes 2 is too small: field 'kind'");
  refused("--sample-every", "1", "--sample-every 1 needs a causal language model");
  refused("--json-field", "kind", "--label-field kind and --json-field kind");
}
