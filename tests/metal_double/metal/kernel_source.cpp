#include "kernel_source.h"

#include <cctype>
#include <cstdlib>

namespace heddle::metal_double {
namespace {

bool is_word(char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::string without_comments(std::string_view source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source.substr(i, 2) == "//") {
      i = source.find('\n', i);
      if (i == std::string_view::npos) break;
      text += '\n';
    } else if (source.substr(i, 2) == "/*") {
      i = source.find("*/", i + 2);
      if (i == std::string_view::npos) break;
      ++i;
      text += ' ';
    } else {
      text += source[i];
    }
  }
  return text;
}

// The next word at or behind `at`, and where it ends.
std::string_view next_word(std::string_view text, size_t* at) {
  while (*at < text.size() && !is_word(text[*at])) ++*at;
  const size_t begin = *at;
  while (*at < text.size() && is_word(text[*at])) ++*at;
  return text.substr(begin, *at - begin);
}

bool has_word(std::string_view text, std::string_view word) {
  for (size_t at = 0; at < text.size();) {
    if (next_word(text, &at) == word) return true;
  }
  return false;
}

// The text between the bracket at `at` and its partner; empty, with `*at` at the end, if there is none.
std::string_view in_parentheses(std::string_view text, size_t* at) {
  const size_t begin = *at + 1;
  int depth = 0;
  for (; *at < text.size(); ++*at) {
    depth += text[*at] == '(' ? 1 : text[*at] == ')' ? -1 : 0;
    if (depth == 0) return text.substr(begin, *at - begin);
  }
  return {};
}

std::vector<std::string_view> parameters(std::string_view list) {
  std::vector<std::string_view> found;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    const char c = list[i];
    depth += c == '(' || c == '<' || c == '[' ? 1 : c == ')' || c == '>' || c == ']' ? -1 : 0;
    if (c == ',' && depth == 0) {
      found.push_back(list.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  found.push_back(list.substr(begin));
  return found;
}

bool read_argument(std::string_view parameter, KernelArgument* argument) {
  const size_t attribute = parameter.find("[[");
  if (attribute == std::string_view::npos) return false;
  size_t at = parameter.find("buffer", attribute);
  if (at == std::string_view::npos) return false;
  at += 6;
  const std::string_view index = next_word(parameter, &at);
  const std::string_view declared = parameter.substr(0, attribute);
  argument->index = static_cast<size_t>(atoi(std::string(index).c_str()));
  argument->writes = has_word(declared, "device") && !has_word(declared, "const");
  size_t end = declared.size();
  while (end > 0 && !is_word(declared[end - 1])) --end;
  size_t begin = end;
  while (begin > 0 && is_word(declared[begin - 1])) --begin;
  argument->name = declared.substr(begin, end - begin);
  return true;
}

}  // namespace

std::vector<KernelSource> read_kernels(std::string_view source, std::string* mistake) {
  const std::string text = without_comments(source);
  std::vector<KernelSource> kernels;
  for (size_t at = 0; at < text.size();) {
    if (next_word(text, &at) != "kernel" || next_word(text, &at) != "void") continue;
    KernelSource kernel;
    kernel.name = next_word(text, &at);
    while (at < text.size() && isspace(static_cast<unsigned char>(text[at]))) ++at;
    const bool opened = at < text.size() && text[at] == '(';
    const std::string_view list = opened ? in_parentheses(text, &at) : std::string_view();
    if (!opened || at == text.size()) {
      *mistake = "expected a parameter list after 'kernel void " + kernel.name + "'";
      return {};
    }
    for (const std::string_view parameter : parameters(list)) {
      KernelArgument argument;
      if (read_argument(parameter, &argument)) kernel.arguments.push_back(std::move(argument));
    }
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

}  // namespace heddle::metal_double
