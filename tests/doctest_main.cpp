#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  // Nothing depends on this machine's times, and nothing is written to the user's folders.
  setenv("HEDDLE_TUNE", "off", 0);
  return doctest::Context(argc, argv).run();
}
