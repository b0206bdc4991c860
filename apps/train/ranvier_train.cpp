// ranvier-train: trains a transformer on a file of text or tokens, or a residual network on images.
#include "apps/files/train_job.hpp"
#include "apps/train/launch.hpp"

int main(int argc, char** argv) {
  return ranvier::apps::launch("ranvier-train", argc, argv, ranvier::apps::make_job);
}
