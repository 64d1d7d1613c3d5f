// hearth keygen: a pair of keys for connections over TCP.

#include <fmt/core.h>

#include "ipc/cli/connect/connection.h"
#include "ipc/cli/verbs/verbs.h"
#include "ipc/wire/curve.h"

namespace hearth::cli {

int keygen(const std::string& file) {
  const Result<ipc::CurveKeys> keys = ipc::make_curve_keys();
  if (!keys.ok()) return fail(keys.error());
  const Result<void> written = ipc::write_secret_key(file, *keys);
  if (!written.ok()) return fail(written.error());
  complain(fmt::format("the secret key is in {}, for its owner alone; the public key:", file));
  write_stdout(keys->public_key + "\n");
  return kOk;
}

}  // namespace hearth::cli
