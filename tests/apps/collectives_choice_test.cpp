#include "apps/options/collectives_choice.hpp"

#include "runtime/base/error.hpp"
#include "runtime/device/cuda_build.hpp"
#include "tests/apps/train_flags.hpp"

using namespace ranvier;
using namespace ranvier::apps;
using namespace ranvier::tests;

namespace {

TrainOptions on_gpus(int stages, int rows) {
  TrainOptions options;
  options.ranks = stages * rows;
  options.trainer.grid = {stages, rows};
  options.device.device = DeviceFlag::cuda;
  return options;
}

NcclSituation every_rank_its_own(int ranks, int version = 22809) {
  NcclSituation situation{.version = version};
  for (int rank = 0; rank < ranks; ++rank) situation.gpus.push_back(100 + rank);
  return situation;
}

}  // namespace

TEST_CASE("NCCL is chosen if every rank of a column has a separate GPU") {
  const auto choice = choose_collectives(on_gpus(1, 4), every_rank_its_own(4));
  CHECK(choice.nccl);
  CHECK(choice.line == "collectives: NCCL 2.28.9");
  CHECK(!nccl_needs_staging(on_gpus(1, 4), choice.nccl));
  CHECK(nccl_needs_staging(on_gpus(2, 2), choose_collectives(on_gpus(2, 2), every_rank_its_own(4)).nccl));
  auto muon = on_gpus(1, 4);
  muon.trainer.tiers.rule = actors::UpdateRule::muon;
  CHECK(nccl_needs_staging(muon, true));
  muon.device.point_to_point = PointToPoint::direct;
  CHECK(
      choose_collectives(muon, every_rank_its_own(4)).line ==
      "collectives: plans over messages, since --p2p direct with --optimizer muon lets MPI access GPUs during NCCL "
      "collectives, which can deadlock");
}

TEST_CASE("without columns or without GPUs no choice is made") {
  CHECK(choose_collectives(on_gpus(4, 1), every_rank_its_own(4)).line.empty());
  auto options = on_gpus(1, 4);
  options.device.device = DeviceFlag::cpu;
  CHECK(!choose_collectives(options, {}).nccl);
  CHECK(choose_collectives(options, {}).line.empty());
}

TEST_CASE("ranks of a column that share a GPU use plans for collectives, or need a newer NCCL") {
  auto options = on_gpus(2, 2);
  NcclSituation situation = every_rank_its_own(4);
  situation.gpus = {1, 2, 3, 3};  // rows of the second stage
  CHECK(choose_collectives(options, situation).line ==
        "collectives: plans over messages, since ranks 2 and 3 share a GPU, which NCCL 2.28.9 does not support");
  CHECK(!choose_collectives(options, situation).nccl);
  situation.gpus = {1, 2, 1, 2};  // stages of a row: no communicator has both
  CHECK(choose_collectives(options, situation).nccl);
  situation.gpus = {1, 1, 1, 1};
  options.device.collectives = CollectiveBackend::nccl;
  const Error error = error_of([&] { (void)choose_collectives(options, situation); });
  for (const char* words : {"--collectives nccl", "ranks 0 and 1 share a GPU", "NCCL 2.28.9", "install NCCL 2.30",
                            "--collectives plans"})
    CHECK(says(error, words));
  situation.version = 23004;
  CHECK(choose_collectives(options, situation).nccl);
}

TEST_CASE("without NCCL plans are used with the reason, and --collectives nccl is refused") {
  auto options = on_gpus(1, 2);
  NcclSituation situation = every_rank_its_own(2);
  situation.version.reset();
  situation.obstacle = "this build has no NCCL";
  CHECK(choose_collectives(options, situation).line ==
        "collectives: plans over messages, since this build has no NCCL");
  situation.obstacle.clear();
  CHECK(choose_collectives(options, situation).line ==
        "collectives: plans over messages, since some ranks have no NCCL, or another version");
  options.device.collectives = CollectiveBackend::nccl;
  CHECK_THROWS_WITH_AS((void)choose_collectives(options, situation), doctest::Contains("install the same NCCL"),
                       Error);
  options.device.collectives = CollectiveBackend::plans;
  CHECK(choose_collectives(options, every_rank_its_own(2)).line == "collectives: plans over messages");
}

TEST_CASE("MPI with direct GPU access and NCCL never run at the same time") {
  auto options = on_gpus(2, 2);
  options.device.point_to_point = PointToPoint::direct;
  const auto choice = choose_collectives(options, every_rank_its_own(4));
  CHECK(!choice.nccl);
  check_has(choice.line, {"since --p2p direct with --g-inter 2 lets MPI access GPUs during NCCL collectives"});
  options.trainer.grid = {1, 4};  // no messages between stages
  CHECK(choose_collectives(options, every_rank_its_own(4)).nccl);
}

TEST_CASE("the GPU memory of NCCL is printed, with a warning if it exceeds the reserve") {
  CHECK(nccl_memory_line(std::size_t{300} << 20) == "NCCL: 300.0 MiB of device memory outside the budget");
  const std::string line = nccl_memory_line(std::size_t{3} << 29);
  check_has(line, {"1.5 GiB", "warning: only 1.0 GiB", "lower --device-memory"});
}

TEST_CASE("invalid flags for collectives are refused before anything starts") {
  refused_train("--collectives mpi", "--collectives");
  const auto accepted = [](const Flags& flags, int ranks) { static_cast<void>(parse_train(flags, ranks)); };
  accepted("--collectives plans", 1);
  if constexpr (runtime::with_nccl) {
    refused_train("--collectives nccl", "--collectives nccl needs GPUs; add --device cuda");
    accepted("--collectives nccl --device cuda", 2);
    refused_train("--collectives nccl --device cuda --p2p direct --g-inter 2",
                  "during NCCL collectives, which can deadlock");
    accepted("--collectives nccl --device cuda --p2p direct --g-inter 2", 2);
  } else {
    refused_train("--collectives nccl", "--collectives nccl needs NCCL, which this build lacks");
  }
}
