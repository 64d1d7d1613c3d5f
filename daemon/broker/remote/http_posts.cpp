#include "daemon/broker/remote/http_posts.h"

#include <curl/curl.h>
#include <fmt/core.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"

namespace hearth::broker {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kMaxReceivedBytes = 64 << 10;
constexpr long kPieceBytes = 16 << 10;
constexpr long kIdleConnections = 8;
// Servers close idle connections after a minute or so.
constexpr long kIdleSeconds = 30;

struct FreeEasy {
  void operator()(CURL* easy) const { ::curl_easy_cleanup(easy); }
};
struct FreeMulti {
  void operator()(CURLM* multi) const { ::curl_multi_cleanup(multi); }
};
struct FreeList {
  void operator()(curl_slist* list) const { ::curl_slist_free_all(list); }
};
struct FreeStore {
  void operator()(X509_STORE* store) const { ::X509_STORE_free(store); }
};

/// What a callback was given to remember.
template <class T>
T& of(void* data) {
  return *static_cast<T*>(data);
}

class Posts;

struct Post {
  Posts& posts;
  uint64_t number = 0;
  HttpPost what;
  HttpPosts::Handlers handlers;
  std::unique_ptr<curl_slist, FreeList> fields{};
  std::unique_ptr<CURL, FreeEasy> easy{};
  std::string received{};   // not passed on yet
  size_t header_bytes = 0;  // of all headers
  bool paused = false;      // `received` is full
  bool ended = false;
  Error error{};  // "": none, or it has not ended
  std::array<char, CURL_ERROR_SIZE> reason{};
};

// libcurl names the sockets and the time that it waits for, and is run when they are ready. Its
// callbacks only take notes: it must not be called from within them, as handlers would.
class Posts final : public HttpPosts {
 public:
  explicit Posts(asio::io_context& io)
      : io_(io), timer_(io), system_(::X509_STORE_new()), multi_(::curl_multi_init()) {
    HEARTH_CHECK(multi_ != nullptr && system_ != nullptr);
    // Without files of that name the store is empty, and trusts nothing.
    ::X509_STORE_set_default_paths(system_.get());
    ::ERR_clear_error();
    ::curl_multi_setopt(multi_.get(), CURLMOPT_SOCKETFUNCTION, on_socket);
    ::curl_multi_setopt(multi_.get(), CURLMOPT_SOCKETDATA, this);
    ::curl_multi_setopt(multi_.get(), CURLMOPT_TIMERFUNCTION, on_timer);
    ::curl_multi_setopt(multi_.get(), CURLMOPT_TIMERDATA, this);
    ::curl_multi_setopt(multi_.get(), CURLMOPT_MAXCONNECTS, kIdleConnections);
  }
  ~Posts() override {
    while (!posts_.empty()) cancel(posts_.begin()->first);
    multi_.reset();  // calls on_socket for the idle connections that it closes
  }

  uint64_t start(HttpPost what, Handlers handlers) override;
  void cancel(uint64_t number) override;

 private:
  struct Watched {
    Watched(asio::io_context& io, int fd, uint64_t number) : socket(io, fd), generation(number) {}
    asio::posix::stream_descriptor socket;  // libcurl's: released, never closed
    uint64_t generation;                    // descriptors are used again for other sockets
    int wants = 0;
    bool reading = false;
    bool writing = false;
  };

  static int on_socket(CURL*, curl_socket_t fd, int what, void* self, void*);
  static int on_timer(CURLM*, long ms, void* self);
  static CURLcode on_tls(CURL*, void* context, void* self);
  static size_t on_body(char* bytes, size_t, size_t count, void* post);
  static size_t on_header(char* bytes, size_t, size_t count, void* post);

  void set_options(Post& post);
  void wait(int fd, Watched& watched);
  void on_ready(int fd, uint64_t generation, bool reads);
  void act(int fd, int action);
  void note_ends();
  void pass_on(const std::shared_ptr<Post>& post);
  bool has(const Post& post) const { return posts_.contains(post.number); }

  asio::io_context& io_;
  asio::steady_timer timer_;
  // Of this process: libcurl would read all of the system's certificates for each connection.
  const std::unique_ptr<X509_STORE, FreeStore> system_;
  std::unique_ptr<CURLM, FreeMulti> multi_;
  std::unordered_map<int, Watched> sockets_;
  std::unordered_map<uint64_t, std::shared_ptr<Post>> posts_;
  std::vector<uint64_t> touched_;  // posts with something to pass on
  uint64_t posts_made_ = 0;
  uint64_t sockets_made_ = 0;
  // Gone with this object: waits that end later find that out.
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
};

uint64_t Posts::start(HttpPost what, Handlers handlers) {
  const uint64_t number = ++posts_made_;
  auto post = std::make_shared<Post>(Post{
      .posts = *this, .number = number, .what = std::move(what), .handlers = std::move(handlers)});
  post->easy.reset(::curl_easy_init());
  HEARTH_CHECK(post->easy != nullptr);
  set_options(*post);
  posts_.emplace(number, post);
  HEARTH_CHECK(::curl_multi_add_handle(multi_.get(), post->easy.get()) == CURLM_OK);
  return number;
}

void Posts::set_options(Post& post) {
  CURL* const easy = post.easy.get();
  const auto add_field = [&post](const std::string& field) {
    curl_slist* const longer = ::curl_slist_append(post.fields.get(), field.c_str());
    HEARTH_CHECK(longer != nullptr);
    (void)post.fields.release();
    post.fields.reset(longer);
  };
  add_field("Content-Type: application/json");
  add_field("Accept: text/event-stream");
  add_field("Expect:");  // none: a long body is not announced first
  if (!post.what.key.empty()) add_field("Authorization: Bearer " + post.what.key);
  ::curl_easy_setopt(easy, CURLOPT_URL, post.what.url.c_str());
  ::curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "https,http");
  ::curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
  ::curl_easy_setopt(easy, CURLOPT_HTTPHEADER, post.fields.get());
  ::curl_easy_setopt(easy, CURLOPT_POST, 1L);
  ::curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, narrow<curl_off_t>(post.what.body.size()));
  ::curl_easy_setopt(easy, CURLOPT_POSTFIELDS, post.what.body.data());  // not copied
  ::curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  // A thread that resolves a name is left to its end: otherwise cancelling waits for it.
  ::curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
  ::curl_easy_setopt(easy, CURLOPT_PROXY, "");  // not even one of the environment
  ::curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  ::curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, narrow<long>(post.what.connect_timeout_ms));
  ::curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, kIdleSeconds);
  ::curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, kPieceBytes);
  ::curl_easy_setopt(easy, CURLOPT_SSLVERSION, long{CURL_SSLVERSION_TLSv1_2});
  ::curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
  ::curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
  ::curl_easy_setopt(easy, CURLOPT_CAINFO, nullptr);
  ::curl_easy_setopt(easy, CURLOPT_CAPATH, nullptr);
  if (post.what.certificates.empty()) {
    ::curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, on_tls);
    ::curl_easy_setopt(easy, CURLOPT_SSL_CTX_DATA, this);
  } else {
    curl_blob blob{.data = post.what.certificates.data(),
                   .len = post.what.certificates.size(),
                   .flags = CURL_BLOB_NOCOPY};
    ::curl_easy_setopt(easy, CURLOPT_CAINFO_BLOB, &blob);
  }
  ::curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, post.reason.data());
  ::curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
  ::curl_easy_setopt(easy, CURLOPT_WRITEDATA, &post);
  ::curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
  ::curl_easy_setopt(easy, CURLOPT_HEADERDATA, &post);
  ::curl_easy_setopt(easy, CURLOPT_PRIVATE, &post);
}

void Posts::cancel(uint64_t number) {
  const auto found = posts_.find(number);
  if (found == posts_.end()) return;
  const std::shared_ptr<Post> post = std::move(found->second);
  posts_.erase(found);
  ::curl_multi_remove_handle(multi_.get(), post->easy.get());
}

// ---- libcurl's callbacks -----------------------------------------------------------------------

int Posts::on_socket(CURL*, curl_socket_t fd, int what, void* self, void*) {
  Posts& posts = of<Posts>(self);
  auto found = posts.sockets_.find(fd);
  if (what == CURL_POLL_REMOVE) {
    if (found == posts.sockets_.end()) return 0;
    (void)found->second.socket.release();
    posts.sockets_.erase(found);
    return 0;
  }
  if (found == posts.sockets_.end()) {
    found = posts.sockets_.try_emplace(fd, posts.io_, fd, ++posts.sockets_made_).first;
  }
  found->second.wants = what;
  posts.wait(fd, found->second);
  return 0;
}

int Posts::on_timer(CURLM*, long ms, void* self) {
  Posts& posts = of<Posts>(self);
  posts.timer_.cancel();
  if (ms < 0) return 0;
  posts.timer_.expires_after(std::chrono::milliseconds(ms));
  posts.timer_.async_wait(
      [&posts, alive = std::weak_ptr<int>(posts.alive_)](const error_code& error) {
        if (!error && !alive.expired()) posts.act(CURL_SOCKET_TIMEOUT, 0);
      });
  return 0;
}

CURLcode Posts::on_tls(CURL*, void* context, void* self) {
  ::SSL_CTX_set1_cert_store(&of<SSL_CTX>(context), of<Posts>(self).system_.get());
  return CURLE_OK;
}

size_t Posts::on_body(char* bytes, size_t, size_t count, void* data) {
  Post& post = of<Post>(data);
  if (post.received.size() >= kMaxReceivedBytes) {
    post.paused = true;
    return CURL_WRITEFUNC_PAUSE;
  }
  post.received.append(bytes, count);
  post.posts.touched_.push_back(post.number);
  return count;
}

size_t Posts::on_header(char*, size_t, size_t count, void* data) {
  Post& post = of<Post>(data);
  post.header_bytes += count;
  if (post.header_bytes <= kMaxHeaderBytes) return count;
  post.error = Error::too_large(fmt::format("a header of more than {} bytes", kMaxHeaderBytes));
  return 0;  // ends the post
}

// ---- The io context ----------------------------------------------------------------------------

void Posts::wait(int fd, Watched& watched) {
  const auto begin = [&](bool reads) {
    watched.socket.async_wait(
        reads ? asio::posix::descriptor_base::wait_read : asio::posix::descriptor_base::wait_write,
        [this, alive = std::weak_ptr<int>(alive_), fd, generation = watched.generation,
         reads](const error_code& error) {
          if (!error && !alive.expired()) on_ready(fd, generation, reads);
        });
  };
  if ((watched.wants & CURL_POLL_IN) != 0 && !std::exchange(watched.reading, true)) begin(true);
  if ((watched.wants & CURL_POLL_OUT) != 0 && !std::exchange(watched.writing, true)) begin(false);
}

void Posts::on_ready(int fd, uint64_t generation, bool reads) {
  const auto find = [&]() -> Watched* {
    const auto found = sockets_.find(fd);
    return found == sockets_.end() || found->second.generation != generation ? nullptr
                                                                             : &found->second;
  };
  Watched* const watched = find();
  if (watched == nullptr) return;
  (reads ? watched->reading : watched->writing) = false;
  // It may want something else by now.
  if ((watched->wants & (reads ? CURL_POLL_IN : CURL_POLL_OUT)) == 0) return;
  const std::weak_ptr<int> alive = alive_;
  act(fd, reads ? CURL_CSELECT_IN : CURL_CSELECT_OUT);
  if (alive.expired()) return;
  if (Watched* const still = find()) wait(fd, *still);
}

void Posts::act(int fd, int action) {
  const std::weak_ptr<int> alive = alive_;
  int running = 0;
  ::curl_multi_socket_action(multi_.get(), fd, action, &running);
  note_ends();
  while (!alive.expired() && !touched_.empty()) {
    const std::vector<uint64_t> touched = std::exchange(touched_, {});
    for (const uint64_t number : touched) {
      if (alive.expired()) return;
      const auto found = posts_.find(number);
      if (found != posts_.end()) pass_on(std::shared_ptr<Post>(found->second));
    }
    if (!alive.expired()) note_ends();
  }
}

void Posts::note_ends() {
  int left = 0;
  while (const CURLMsg* message = ::curl_multi_info_read(multi_.get(), &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    Post* post = nullptr;
    ::curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &post);
    post->ended = true;
    const CURLcode code = message->data.result;
    if (code != CURLE_OK && post->error.message.empty()) {
      const bool reasoned = post->reason[0] != '\0';
      post->error = Error::unavailable(reasoned ? post->reason.data() : ::curl_easy_strerror(code));
    }
    touched_.push_back(post->number);
  }
}

// The handlers may end this post or begin others.
void Posts::pass_on(const std::shared_ptr<Post>& post) {
  const std::weak_ptr<int> alive = alive_;
  long status = 0;
  ::curl_easy_getinfo(post->easy.get(), CURLINFO_RESPONSE_CODE, &status);
  if (!post->received.empty()) {
    const std::string bytes = std::exchange(post->received, {});
    post->handlers.on_bytes(narrow<int>(status), bytes);
    if (alive.expired() || !has(*post)) return;
  }
  if (std::exchange(post->paused, false)) {
    ::curl_easy_pause(post->easy.get(), CURLPAUSE_CONT);  // may call on_body
    return;
  }
  if (!post->ended || !post->received.empty()) return;
  cancel(post->number);
  const bool failed = !post->error.message.empty();
  post->handlers.on_end(narrow<int>(status),
                        failed ? Result<void>(std::move(post->error)) : Result<void>());
}

}  // namespace

std::unique_ptr<HttpPosts> HttpPosts::create(asio::io_context& io) {
  // Never undone: other parts of the process may use the library, too.
  static const CURLcode ready = ::curl_global_init(CURL_GLOBAL_DEFAULT);
  HEARTH_CHECK(ready == CURLE_OK);
  return std::make_unique<Posts>(io);
}

}  // namespace hearth::broker
