// CMake wants a source for every shared library; all of libheddle.so comes from heddle_api and what it links.
