#include "faulty_vfs.h"

#include <sqlite3.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace hearth::tests {
namespace {

int64_t g_operations = 0;
int64_t g_first = -1;
int64_t g_count = 0;
Fault g_fault = Fault::kIoError;

/// What has happened to a file since its last sync.
struct Recorded {
  struct Change {
    sqlite3_int64 at = 0;  ///< of `bytes`; without them the size it was truncated to
    std::string bytes;
  };
  std::string synced;  ///< its content at the last sync
  std::vector<Change> changes;
};
struct PowerCut {
  int64_t before = -1;  ///< operation
  uint64_t seed = 0;
  std::filesystem::path from, to;
  std::map<std::string, Recorded> files;
};
PowerCut g_cut;

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void apply(std::string* image, const Recorded::Change& change, size_t size) {
  const auto at = static_cast<size_t>(change.at);
  if (change.bytes.empty()) return image->resize(at);
  if (image->size() < at + size) image->resize(at + size);
  image->replace(at, size, change.bytes, 0, size);
}

void cut_power() {
  std::mt19937_64 random(g_cut.seed);
  std::filesystem::copy(g_cut.from, g_cut.to, std::filesystem::copy_options::recursive);
  for (const auto& [path, file] : g_cut.files) {
    std::string image = file.synced;
    for (const Recorded::Change& change : file.changes) {
      constexpr size_t kSector = 512;
      const size_t sectors = change.bytes.size() / kSector;
      switch (random() % 4) {
        case 0: break;
        case 1: apply(&image, change, random() % (sectors + 1) * kSector); break;
        default: apply(&image, change, change.bytes.size());
      }
    }
    const auto place = g_cut.to / std::filesystem::path(path).lexically_relative(g_cut.from);
    std::ofstream(place, std::ios::binary | std::ios::trunc) << image;
  }
}

bool fails() {
  const int64_t operation = g_operations++;
  if (operation == g_cut.before) cut_power();
  return g_first >= 0 && operation >= g_first && operation < g_first + g_count;
}

sqlite3_vfs* platform() { return ::sqlite3_vfs_find(nullptr); }

struct File {
  sqlite3_file base;
  Recorded* recorded;  ///< null: not recorded
  // The platform's file follows in the same allocation.
  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};
sqlite3_file* real(sqlite3_file* file) { return reinterpret_cast<File*>(file)->real(); }
Recorded* recorded(sqlite3_file* file) { return reinterpret_cast<File*>(file)->recorded; }

int close(sqlite3_file* file) { return real(file)->pMethods->xClose(real(file)); }
int read(sqlite3_file* file, void* out, int bytes, sqlite3_int64 at) {
  if (fails()) return SQLITE_IOERR_READ;
  return real(file)->pMethods->xRead(real(file), out, bytes, at);
}
int write(sqlite3_file* file, const void* data, int bytes, sqlite3_int64 at) {
  if (fails()) {
    if (g_fault == Fault::kIoError) return SQLITE_IOERR_WRITE;
    if (g_fault == Fault::kShortWrite) {
      (void)real(file)->pMethods->xWrite(real(file), data, bytes / 2, at);
    }
    return SQLITE_FULL;
  }
  if (Recorded* all = recorded(file)) {
    all->changes.push_back(
        {at, std::string(static_cast<const char*>(data), static_cast<size_t>(bytes))});
  }
  return real(file)->pMethods->xWrite(real(file), data, bytes, at);
}
int truncate(sqlite3_file* file, sqlite3_int64 size) {
  if (fails()) return SQLITE_IOERR_TRUNCATE;
  if (Recorded* all = recorded(file)) all->changes.push_back({size, {}});
  return real(file)->pMethods->xTruncate(real(file), size);
}
int sync(sqlite3_file* file, int flags) {
  if (fails()) return SQLITE_IOERR_FSYNC;
  if (Recorded* all = recorded(file)) {
    for (const Recorded::Change& change : all->changes) {
      apply(&all->synced, change, change.bytes.size());
    }
    all->changes.clear();
  }
  return real(file)->pMethods->xSync(real(file), flags);
}
int file_size(sqlite3_file* file, sqlite3_int64* size) {
  if (fails()) return SQLITE_IOERR_FSTAT;
  return real(file)->pMethods->xFileSize(real(file), size);
}
int lock(sqlite3_file* file, int level) { return real(file)->pMethods->xLock(real(file), level); }
int unlock(sqlite3_file* file, int level) {
  return real(file)->pMethods->xUnlock(real(file), level);
}
int check_lock(sqlite3_file* file, int* out) {
  return real(file)->pMethods->xCheckReservedLock(real(file), out);
}
int control(sqlite3_file* file, int op, void* arg) {
  return real(file)->pMethods->xFileControl(real(file), op, arg);
}
int sector_size(sqlite3_file* file) { return real(file)->pMethods->xSectorSize(real(file)); }
int characteristics(sqlite3_file* file) {
  return real(file)->pMethods->xDeviceCharacteristics(real(file));
}
int shm_map(sqlite3_file* file, int page, int size, int extend, void volatile** out) {
  if (fails()) return SQLITE_IOERR_SHMMAP;
  return real(file)->pMethods->xShmMap(real(file), page, size, extend, out);
}
int shm_lock(sqlite3_file* file, int offset, int n, int flags) {
  return real(file)->pMethods->xShmLock(real(file), offset, n, flags);
}
void shm_barrier(sqlite3_file* file) { real(file)->pMethods->xShmBarrier(real(file)); }
int shm_unmap(sqlite3_file* file, int remove) {
  return real(file)->pMethods->xShmUnmap(real(file), remove);
}

const sqlite3_io_methods kMethods = [] {
  sqlite3_io_methods methods{};
  methods.iVersion = 2;
  methods.xClose = close;
  methods.xRead = read;
  methods.xWrite = write;
  methods.xTruncate = truncate;
  methods.xSync = sync;
  methods.xFileSize = file_size;
  methods.xLock = lock;
  methods.xUnlock = unlock;
  methods.xCheckReservedLock = check_lock;
  methods.xFileControl = control;
  methods.xSectorSize = sector_size;
  methods.xDeviceCharacteristics = characteristics;
  methods.xShmMap = shm_map;
  methods.xShmLock = shm_lock;
  methods.xShmBarrier = shm_barrier;
  methods.xShmUnmap = shm_unmap;
  return methods;
}();

int open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  file->pMethods = nullptr;
  if (fails()) return SQLITE_CANTOPEN;
  Recorded* all = nullptr;
  if (g_cut.before >= 0 && name != nullptr) {
    const auto [found, first] = g_cut.files.try_emplace(name);
    if (first) found->second.synced = content(name);
    all = &found->second;
  }
  reinterpret_cast<File*>(file)->recorded = all;
  const int code = platform()->xOpen(platform(), name, real(file), flags, out_flags);
  if (real(file)->pMethods != nullptr) file->pMethods = &kMethods;
  return code;
}

int remove(sqlite3_vfs*, const char* name, int sync_folder) {
  if (fails()) return SQLITE_IOERR_DELETE;
  g_cut.files.erase(name);
  return platform()->xDelete(platform(), name, sync_folder);
}

}  // namespace

const char* FaultyVfs::name() {
  static sqlite3_vfs vfs = [] {
    sqlite3_vfs made = *platform();
    made.zName = "hearth-faulty";
    made.pNext = nullptr;
    made.szOsFile += static_cast<int>(sizeof(File));
    made.xOpen = open;
    made.xDelete = remove;
    return made;
  }();
  static const int registered = ::sqlite3_vfs_register(&vfs, 0);
  return registered == SQLITE_OK ? vfs.zName : nullptr;
}

void FaultyVfs::fail_at(int64_t nth, Fault fault, int64_t count) {
  g_operations = 0;
  g_first = nth;
  g_count = count;
  g_fault = fault;
  g_cut = {};
}

void FaultyVfs::cut_at(int64_t nth, uint64_t seed, const std::filesystem::path& from,
                       const std::filesystem::path& to) {
  heal();
  g_cut = {.before = nth, .seed = seed, .from = from, .to = to, .files = {}};
}

void FaultyVfs::heal() { fail_at(-1, Fault::kIoError, 0); }

int64_t FaultyVfs::operations() { return g_operations; }

}  // namespace hearth::tests
