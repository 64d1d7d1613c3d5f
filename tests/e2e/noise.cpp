// e2e_noise RUNTIME_DIR SEED: as a second user, sends small requests to a test's daemon until it is
// killed. Only resident models are asked for tokens; none is loaded.

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "ipc/client/client.h"
#include "tests/other_user.h"

namespace {

using namespace hearth;

/// A model with a worker that serves; "": none.
std::string resident_model(ipc::Client& client) {
  const Result<ipc::ModelsReply> reply = client.models();
  if (!reply.ok()) return "";
  for (const ipc::ModelEntry& entry : reply->models) {
    if (entry.state == "resident") return entry.name;
  }
  return "";
}

void generate(ipc::Client& client, std::mt19937& random) {
  ipc::GenerateRequest request;
  request.model = resident_model(client);
  if (request.model.empty()) return;
  request.prompt = "the " + std::string(1 + random() % 40, static_cast<char>('a' + random() % 26));
  request.prompt_as = "text";
  request.max_tokens = static_cast<int32_t>(1 + random() % 8);
  request.temperature = 1.0f;
  request.seed = random();
  request.cache = "memory";
  (void)client.generate(request, {});
}

/// Asks, and leaves without reading the answer.
void http(const std::filesystem::path& socket, const char* request) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket.c_str(), sizeof address.sun_path - 1);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    (void)::send(fd, request, std::strlen(request), MSG_NOSIGNAL);
  }
  ::close(fd);
}

[[noreturn]] void make_noise(const std::filesystem::path& runtime, uint32_t seed) {
  std::mt19937 random(seed);
  std::optional<ipc::Client> client;
  while (true) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1 + random() % 20));
    if (!client || random() % 50 == 0) {
      Result<ipc::Client> made = ipc::Client::connect({.runtime_dir = runtime});
      client.reset();
      if (!made.ok()) continue;
      client.emplace(std::move(made).value());
    }
    switch (random() % 8) {
      case 0: (void)client->ps(); break;
      case 1: (void)client->cancel("unknown"); break;
      case 2: (void)client->load({.model = "tiny"}); break;  // for administrators: refused
      case 3:
        http(runtime / "http.sock", "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
        break;
      case 4: http(runtime / "http.sock", "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"); break;
      default: generate(*client, random);
    }
    if (!client->ping().ok()) client.reset();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || !tests::become_other_user(::getppid())) return 2;
  make_noise(argv[1], static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10)));
}
