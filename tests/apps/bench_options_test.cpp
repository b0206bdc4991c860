#include "apps/bench/bench_options.hpp"

#include "runtime/base/error.hpp"
#include "runtime/device/cuda_build.hpp"
#include "tests/apps/flags.hpp"
#include "tests/apps/printed_errors.hpp"

using namespace ranvier;
using namespace ranvier::apps;
using namespace ranvier::tests;
using collectives::Collective;

namespace {

BenchOptions parse(const Flags& flags) { return parse_flags("ranvier-bench", flags, parse_bench_options); }

void refused(const Flags& flags, std::string_view words) {
  check_usage_error({words}, [&] { static_cast<void>(parse(flags)); });
}

}  // namespace

TEST_CASE("without flags ranvier-bench measures links, and with --collectives only if they will be written") {
  CHECK(parse({}).measures_links());
  CHECK(!parse("--collectives all-gather").measures_links());
  CHECK(parse("--collectives all-gather --write-links links.json").measures_links());
}

TEST_CASE("on a GPU MPI's own collectives are skipped, and refused by name") {
  refused("--device inline", "--device inline");
  if constexpr (runtime::with_cuda) {
    const BenchOptions options = parse("--device cuda:1 --collectives all-reduce");
    CHECK(options.gpu == 1);
    const auto names = options.algorithms_of(Collective::all_reduce);
    CHECK_FALSE(names.empty());
    CHECK(std::find(names.begin(), names.end(), "mpi") == names.end());
    refused("--device cuda --collectives all-reduce --algorithms ring,mpi", "--algorithms mpi");
  }
}

TEST_CASE("lists of collectives, algorithms and sizes are read, and each collective uses only its own algorithms") {
  const BenchOptions options =
      parse("--collectives all-reduce,all-gather --algorithms torus,ring,h-ring,mpi --sizes 64KiB,1.5MiB,10");
  CHECK(options.collectives == std::vector{Collective::all_reduce, Collective::all_gather});
  CHECK(options.sizes == std::vector<std::size_t>{64 << 10, 3 << 19, 10});
  CHECK(options.algorithms_of(Collective::all_reduce) == std::vector<std::string>{"torus", "ring", "mpi"});
  CHECK(options.algorithms_of(Collective::all_gather) == std::vector<std::string>{"ring", "h-ring", "mpi"});
  CHECK(BenchOptions{}.algorithms_of(Collective::reduce_scatter) ==
        std::vector<std::string>{"ring", "recursive", "hierarchical", "h-ring", "ho-ring", "mpi"});
}

TEST_CASE("invalid flags of ranvier-bench are refused with the reason") {
  refused("--collectives all-scatter", "some of all-gather, reduce-scatter, all-reduce");
  refused("--collectives all-gather,", "separated by commas");
  refused("--collectives all-gather --algorithms rings", "some of ring, recursive");
  refused("--collectives all-gather --algorithms torus",
          "--algorithms torus is not an algorithm of all-gather; use one of ring, recursive");
  refused("--collectives all-gather --sizes 1MiB,much", "sizes such as 64KiB");
  refused("--collectives all-gather --sizes 0", "sizes such as 64KiB");
  refused("--collectives all-gather --repeat 0", "--repeat");
  refused("--collectives all-gather --chunk-size 0", "a size such as 512MiB");
  refused("--algorithms ring", "--algorithms has no effect without collectives; add --collectives");
  refused("--collectives all-gather --links a.json --write-links b.json",
          "--links a.json cannot be combined with --write-links b.json");
  refused("--collectives all-gather --links /nowhere/links.json", "--links /nowhere/links.json: cannot read");
}

TEST_CASE("profiles have separate flags, and none of the flags of links and collectives") {
  const BenchOptions options =
      parse({"profile", "--write-profile", "here.json", "--threads", "2", "--nvme", "/a,/b"});
  CHECK(options.profiles());
  CHECK_FALSE(options.measures_links());
  CHECK(options.write_profile == "here.json");
  CHECK(options.threads == 2);
  CHECK(options.nvme == std::vector<std::filesystem::path>{"/a", "/b"});
  CHECK_FALSE(parse({}).profiles());
  CHECK(options_hash(parse({"profile"})) != options_hash(parse({})));
  refused({"profil"}, "unknown command: 'profil';");
  refused({"profile", "profile"}, "unknown command: 'profile profile'");
  for (const std::string& flag : Flags("--write-profile --name --threads --nvme"))
    refused({flag, "3"}, "use ranvier-bench profile --");
  refused({"profile", "--collectives", "all-gather"}, "--collectives does not apply to ranvier-bench profile");
  refused({"profile", "--write-links", "a.json"}, "--write-links does not apply to ranvier-bench profile");
}

TEST_CASE("the hash of ranvier-bench's options covers the rates of links") {
  const TemporaryFolder folder;
  const auto hash_of = [&](const std::string& rate) {
    const std::string link =
        R"({"latency_seconds": 0, "bytes_per_second": 1, "node_bytes_per_second": )" + rate + "}";
    const auto path = folder.write("links.json", R"({"intra_node": )" + link + "}").string();
    return options_hash(parse(fmt::format("--collectives all-gather --links {}", path)));
  };
  CHECK(hash_of("1") == hash_of("1.0"));
  CHECK(hash_of("1") != hash_of("2"));
}
