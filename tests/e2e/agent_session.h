#pragma once
// An agent's session of 20 turns over HTTP: a long system prompt with tools, and turns that send
// all of it again. Counts what the daemon computes of the prompt tokens that it gets.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/e2e/daemon.h"

namespace hearth::e2e {

struct AgentSession {
  std::string model;    ///< in the sandbox
  int scale = 1;        ///< divides 20,000 tokens of system prompt and tools, and 1000 of each turn
  bool hermes = false;  ///< for a template that makes nothing of tools
  bool restart = false;  ///< the daemon ends and another one begins in the middle
  bool head = false;     ///< the system prompt begins with a line that differs in each turn, which
                         ///< the configuration leaves out
  std::vector<std::string> settings = {};  ///< of the daemon, in addition
  int patience_ms = kPatienceMs;           ///< for one answer
};

struct SessionCounts {
  int64_t sent = 0;      ///< prompt tokens
  int64_t computed = 0;  ///< those of them that were not cached
  double share() const { return 100.0 * static_cast<double>(computed) / static_cast<double>(sent); }
};

/// Fails the test if a request fails, or if the first prompt is not about as long as wanted.
SessionCounts run_agent_session(const Sandbox& sandbox, const AgentSession& session);

}  // namespace hearth::e2e
