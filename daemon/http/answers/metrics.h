#pragma once
// The daemon's counters in Prometheus format (text format 0.0.4). Pure.

#include <string>

#include "daemon/http/batch.h"
#include "daemon/http/kept_response.h"
#include "daemon/http/model_traffic.h"
#include "ipc/schema/replies.h"

namespace hearth::http {

std::string metrics_text(const ipc::StatsReply& stats, const KeptStats& kept = {},
                         const BatchStats& batches = {}, const ModelTraffics& traffic = {});

}  // namespace hearth::http
