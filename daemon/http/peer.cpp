#include "daemon/http/peer.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "daemon/http/guard.h"
#include "kernels/base/numbers.h"
#include "kernels/base/random.h"

namespace hearth::http {
namespace {

struct Question {
  nlmsghdr header;
  inet_diag_req_v2 body;
};

// Converts `address` to the form of sock_diag: four words, of which IPv4 uses the first.
bool put_address(const sockaddr_storage& address, __be32* words, __be16* port) {
  if (address.ss_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    std::memcpy(words, &in.sin_addr, sizeof in.sin_addr);
    *port = in.sin_port;
    return true;
  }
  if (address.ss_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &address, sizeof in);
    std::memcpy(words, &in.sin6_addr, sizeof in.sin6_addr);
    *port = in.sin6_port;
    return true;
  }
  return false;
}

std::optional<uint32_t> ask(int netlink, const Question& question) {
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  if (::sendto(netlink, &question, sizeof question, 0, reinterpret_cast<const sockaddr*>(&kernel),
               sizeof kernel) != ssize_t{sizeof question}) {
    return std::nullopt;
  }
  alignas(nlmsghdr) char answer[8192];
  const ssize_t n = ::recv(netlink, answer, sizeof answer, 0);
  if (n < ssize_t{NLMSG_LENGTH(sizeof(inet_diag_msg))}) return std::nullopt;
  nlmsghdr header{};
  std::memcpy(&header, answer, sizeof header);
  if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || std::cmp_greater(header.nlmsg_len, n)) {
    return std::nullopt;  // NLMSG_ERROR: no such socket
  }
  inet_diag_msg found{};
  std::memcpy(&found, answer + NLMSG_HDRLEN, sizeof found);
  // The kernel may return a listener if no connection matched.
  if (found.id.idiag_sport != question.body.id.idiag_sport ||
      found.id.idiag_dport != question.body.id.idiag_dport || found.idiag_state != 1) {
    return std::nullopt;
  }
  return found.idiag_uid;
}

}  // namespace

std::optional<uint32_t> unix_peer_uid(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer.uid;
}

std::optional<uint32_t> tcp_peer_uid(int fd) {
  sockaddr_storage ours{};
  sockaddr_storage theirs{};
  socklen_t size = sizeof ours;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&ours), &size) != 0) return std::nullopt;
  size = sizeof theirs;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&theirs), &size) != 0) return std::nullopt;

  Question question{};
  question.header.nlmsg_len = sizeof question;
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.body.sdiag_family = static_cast<__u8>(theirs.ss_family);
  question.body.sdiag_protocol = IPPROTO_TCP;
  question.body.idiag_states = ~0u;
  question.body.id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
  question.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  // Query the other end's socket, whose source address is our peer's.
  if (!put_address(theirs, question.body.id.idiag_src, &question.body.id.idiag_sport) ||
      !put_address(ours, question.body.id.idiag_dst, &question.body.id.idiag_dport)) {
    return std::nullopt;
  }
  const int netlink = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (netlink < 0) return std::nullopt;
  const timeval patience{.tv_sec = 0, .tv_usec = 100'000};
  ::setsockopt(netlink, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const std::optional<uint32_t> uid = ask(netlink, question);
  ::close(netlink);
  return uid;
}

namespace {

// Four or eight bytes that stand for the machine; empty: not an address of IP.
std::string_view machine_of(const sockaddr_storage& address, sockaddr_in6* v6, sockaddr_in* v4) {
  if (address.ss_family == AF_INET) {
    std::memcpy(v4, &address, sizeof *v4);
    return {reinterpret_cast<const char*>(&v4->sin_addr), sizeof v4->sin_addr};
  }
  if (address.ss_family != AF_INET6) return {};
  std::memcpy(v6, &address, sizeof *v6);
  const char* const bytes = reinterpret_cast<const char*>(&v6->sin6_addr);
  if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) return {bytes + 12, 4};
  return {bytes, 8};
}

sockaddr_storage address_of_peer(int fd) {
  sockaddr_storage out{};
  socklen_t size = sizeof out;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&out), &size) != 0) out.ss_family = AF_UNSPEC;
  return out;
}

}  // namespace

uint32_t network_peer_number(const sockaddr_storage& address) {
  static const uint64_t kSalt = random_bits();
  sockaddr_in6 v6{};
  sockaddr_in v4{};
  const std::string_view machine = machine_of(address, &v6, &v4);
  const uint64_t hash = XXH3_64bits_withSeed(machine.data(), machine.size(), kSalt);
  return 0x8000'0000U | narrow<uint32_t>(hash & 0xFFFF);
}

std::string peer_address(int fd) {
  const sockaddr_storage address = address_of_peer(fd);
  char text[INET6_ADDRSTRLEN] = {};
  const auto* const at = reinterpret_cast<const sockaddr*>(&address);
  if (::getnameinfo(at, sizeof address, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  return canonical_address(text);
}

std::optional<uint32_t> network_peer_uid(int fd) {
  const std::string address = peer_address(fd);
  if (address.empty()) return std::nullopt;
  if (address == "::1" || address.starts_with("127.")) return tcp_peer_uid(fd);
  return network_peer_number(address_of_peer(fd));
}

}  // namespace hearth::http
