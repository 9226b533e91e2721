// A program of someone else's: finds Heddle by find_package, builds a graph, runs it from two threads.
#include <heddle/heddle.h>

#include <cstdio>
#include <thread>

int main() {
  heddle::GraphBuilder graph("double");
  auto x = graph.input("x", heddle::DType::f32, {"batch", 4});
  graph.output(graph.add("Add", {x, x}), "y");
  heddle::Model model = graph.build();

  heddle::Tensor rows = heddle::Tensor::of<float>({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  float other = 0;
  std::thread thread([&] { other = model({rows})[0].values<float>()[0]; });
  float mine = model({rows})[0].values<float>()[7];
  thread.join();
  std::printf("consumer: %g and %g\n", mine, other);
  return mine == 16.0F && other == 2.0F ? 0 : 1;
}
