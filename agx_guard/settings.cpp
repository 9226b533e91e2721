#include "settings.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace agx_guard {

namespace {

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = getenv(name);
  if (!text || !*text) return otherwise;
  char* end = nullptr;
  const unsigned long long value = strtoull(text, &end, 10);
  if (*end || *text == '-') {
    say("%s=%s is not a number of 0 or more; %llu is used", name, text, (unsigned long long)otherwise);
    return otherwise;
  }
  return value;
}

bool is(const char* name, const char* word) {
  const char* text = getenv(name);
  return text && !strcmp(text, word);
}

void leave_out(Settings& settings, const std::string& word) {
  if (word == "originals") {
    settings.by_class = false;
  } else if (word == "keep") {
    settings.keep = false;
  } else if (word == "order") {
    settings.order = false;
  } else if (!word.empty()) {
    say("AGX_GUARD_WITHOUT=%s: only originals, keep and order can be left out", word.c_str());
  }
}

Settings read() {
  Settings settings;
  settings.off = is("AGX_GUARD", "off") || is("AGX_GUARD", "0");
  settings.verbose = number("AGX_GUARD_VERBOSE", 0) != 0;
  settings.warn_ms = number("AGX_GUARD_WARN_MS", settings.warn_ms);
  settings.limit_ms = number("AGX_GUARD_LIMIT_MS", settings.limit_ms);
  settings.recent = number("AGX_GUARD_RECENT", settings.recent);
  if (const char* file = getenv("AGX_GUARD_REPORT")) settings.report = file;
  std::string words = getenv("AGX_GUARD_WITHOUT") ? getenv("AGX_GUARD_WITHOUT") : "";
  for (size_t at = 0; at <= words.size();) {
    const size_t comma = std::min(words.find(',', at), words.size());
    leave_out(settings, words.substr(at, comma - at));
    at = comma + 1;
  }
  return settings;
}

}  // namespace

const Settings& settings() {
  static const Settings read_once = read();
  return read_once;
}

void say(const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  fprintf(stderr, "agx_guard: %s\n", line);
}

}  // namespace agx_guard
