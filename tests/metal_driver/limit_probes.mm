// limit_probes.mm: what this machine's MPSGraph does at the limits that others met, a line of JSON each.
//
// Each probe runs in a process of its own, since a limit may abort it:
//   right | wrong | refused | aborted | hung | too large
#include "limit_probes.h"

#import <Foundation/Foundation.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "limit_trial.h"

namespace heddle::limits {
namespace {

constexpr unsigned kPatienceS = 300;
constexpr const char* kUsage =
    "usage: limit_probes [--small] [--only LIMIT] [--json FILE] [--list]\n"
    "  --small  sizes that any machine holds: shows that the probes run, not what the limits are\n";

std::vector<Probe> all_probes() {
  std::vector<Probe> all;
  for (const auto part : {product_probes(), operator_probes(), size_probes()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

// In the child: its last line is the answer.
int answer(const Probe& probe, bool small) {
  signal(SIGALRM, SIG_DFL);
  alarm(kPatienceS);
  std::string said;
  try {
    @try {
      const std::string wrong = ask(probe, small);
      said = wrong.empty() ? "right" : "wrong: " + wrong;
    } @catch (NSException* exception) {
      said = std::string("refused: ") + [[exception reason] UTF8String];
    }
  } catch (const Refused& refused) {
    said = std::string("refused: ") + refused.what();
  } catch (const TooLarge& large) {
    said = std::string("too large: ") + large.what();
  }
  std::printf("\nANSWER %s\n", said.c_str());
  return 0;
}

struct Answer {
  std::string outcome, detail;
};

Answer ask_child(const std::string& program, size_t index, bool small) {
  const std::string command =
      "exec '" + program + "' --probe " + std::to_string(index) + (small ? " --small" : "") + " 2>&1";
  FILE* const child = popen(command.c_str(), "r");
  if (child == nullptr) return {"not run", "no process could be started"};
  std::string line, last, told;
  for (int c = 0; (c = std::fgetc(child)) != EOF;) {
    if (c != '\n') {
      line += static_cast<char>(c);
      continue;
    }
    if (line.starts_with("ANSWER ")) told = line.substr(7);
    if (!line.empty()) last = line;
    line.clear();
  }
  int status = pclose(child);  // not const: Apple's macros take its address
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) return {"hung", "no answer in 300 s"};
  if (WIFSIGNALED(status)) return {"aborted", std::string(strsignal(WTERMSIG(status))) + ": " + last};
  if (told.empty()) return {"aborted", "exit code " + std::to_string(WEXITSTATUS(status)) + ": " + last};
  const size_t colon = told.find(": ");
  return {told.substr(0, colon), colon == std::string::npos ? "" : told.substr(colon + 2)};
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, 400)) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

std::string machine() {
  const id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  NSProcessInfo* const process = [NSProcessInfo processInfo];
  const std::string text = "\"gpu\": " + quoted(device ? [[device name] UTF8String] : "none") +
                           ", \"macos\": " + quoted([[process operatingSystemVersionString] UTF8String]);
  [device release];
  return text;
}

int ask_all(const std::string& program, bool small, std::string_view only, const char* json) {
  const std::vector<Probe> probes = all_probes();
  FILE* const out = json == nullptr ? stdout : std::fopen(json, "w");
  if (out == nullptr) return std::fprintf(stderr, "limit_probes: %s cannot be written\n", json), 2;
  size_t asked = 0;
  std::string text;
  for (size_t i = 0; i < probes.size(); ++i) {
    if (!only.empty() && only != probes[i].limit) continue;
    const Answer got = ask_child(program, i, small);
    if (json != nullptr)
      std::printf("%-24s %-40s %s\n", probes[i].limit, probes[i].question, got.outcome.c_str());
    text += std::string(asked++ > 0 ? ",\n" : "") + "  {\"limit\": " + quoted(probes[i].limit) +
            ", \"question\": " + quoted(probes[i].question) + ", \"outcome\": " + quoted(got.outcome) +
            ", \"detail\": " + quoted(got.detail) + "}";
  }
  if (asked == 0) return std::fprintf(stderr, "limit_probes: no limit is called so; --list names them\n"), 2;
  @autoreleasepool {
    std::fprintf(out, "{%s, \"small\": %s, \"probes\": [\n%s\n]}\n", machine().c_str(),
                 small ? "true" : "false", text.c_str());
  }
  if (out != stdout) std::fclose(out);
  return 0;
}

int run(const std::vector<std::string_view>& words) {
  bool small = false;
  std::string_view only;
  const char* json = nullptr;
  int probe = -1;
  for (size_t i = 1; i < words.size(); ++i) {
    const bool more = i + 1 < words.size();
    if (words[i] == "--small") {
      small = true;
    } else if (words[i] == "--list") {
      for (const Probe& each : all_probes()) std::printf("%s: %s\n", each.limit, each.question);
      return 0;
    } else if (words[i] == "--only" && more) {
      only = words[++i];
    } else if (words[i] == "--json" && more) {
      json = words[++i].data();
    } else if (words[i] == "--probe" && more) {
      probe = std::atoi(words[++i].data());
    } else {
      return std::fputs(kUsage, stderr), 2;
    }
  }
  if (probe >= 0) return answer(all_probes().at(static_cast<size_t>(probe)), small);
  return ask_all(std::string(words[0]), small, only, json);
}

}  // namespace
}  // namespace heddle::limits

int main(int count, char** words) {
  return heddle::limits::run(std::vector<std::string_view>(words, words + count));
}
