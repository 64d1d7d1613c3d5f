"""KV events read by vLLM's structs: kv_events.py STRUCTS ADDRESS MODEL RUNTIME_DIR LOG

STRUCTS is vllm/distributed/kv_events.py, unchanged; the modules of vLLM that it imports are replaced, because its structs do not use
them. Each payload must decode as a KVEventBatch, which encodes to the same members in the same order.
"""
import pathlib
import re
import sys
import time
import types

import httpx
import msgspec
import zmq

STRUCTS, ADDRESS, MODEL, RUNTIME, LOG = sys.argv[1:6]
PATIENCE_S = 120


def module(name, **members):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(members)


def vllm_structs():
    for name in ("vllm", "vllm.config", "vllm.utils", "vllm.v1", "vllm.v1.core"):
        module(name)
    module("vllm.config.kv_events", KVEventsConfig=object)
    module("vllm.logger", init_logger=lambda name: None)
    module("vllm.utils.network_utils", get_ip=None, get_tcp_uri=None, is_valid_ipv6_address=None, split_zmq_path=None)
    module("vllm.v1.core.kv_cache_utils", ExternalBlockHash=bytes | int)
    module("structs")
    exec(compile(pathlib.Path(STRUCTS).read_text(), STRUCTS, "exec"), sys.modules["structs"].__dict__)
    return sys.modules["structs"]


def ports():
    found = re.search(r"kv_events .*? port=(\d+) .*replay_port=(\d+)", pathlib.Path(LOG).read_text())
    return found[1], found[2]


def main():
    vllm = vllm_structs()
    decoder = msgspec.msgpack.Decoder(vllm.KVEventBatch)
    context = zmq.Context()
    events_port, replay_port = ports()
    subscriber = context.socket(zmq.SUB)
    subscriber.setsockopt_string(zmq.SUBSCRIBE, "kv@")
    subscriber.connect(f"tcp://127.0.0.1:{events_port}")
    unix = context.socket(zmq.SUB)
    unix.setsockopt_string(zmq.SUBSCRIBE, f"kv@box@{MODEL}")
    unix.connect(f"ipc://{RUNTIME}/kv-events.sock")

    end = time.monotonic() + PATIENCE_S
    payloads, seen, turn = {}, [], 0
    kinds, media = set(), set()
    while time.monotonic() < end and not (
            {"BlockStored", "AllBlocksCleared"} <= kinds and {"CPU", "STORAGE"} <= media and seen and len(payloads) > 5):
        turn += 1
        answer = httpx.post(f"{ADDRESS}/v1/completions", timeout=PATIENCE_S, json={
            "model": MODEL, "prompt": f"Story {turn}: " + "once upon a time " * 20, "max_tokens": 20, "temperature": 0})
        answer.raise_for_status()
        # A request for everything from the first message on, as vLLM's example of a subscriber sends it.
        replay = context.socket(zmq.DEALER)
        replay.connect(f"tcp://127.0.0.1:{replay_port}")
        replay.send_multipart([b"", (0).to_bytes(8, "big")])
        while True:
            delimiter, topic, number, payload = replay.recv_multipart()
            if number == vllm.ZmqEventPublisher.END_SEQ:
                break
            assert (delimiter, topic) == (b"", f"kv@box@{MODEL}".encode()), topic
            payloads[int.from_bytes(number, "big")] = payload
            batch = decoder.decode(payload)
            again, ours = msgspec.msgpack.decode(msgspec.msgpack.encode(batch)), msgspec.msgpack.decode(payload)
            assert again == ours and [list(event) for event in again[1]] == [list(event) for event in ours[1]], (again, ours)
            assert batch.data_parallel_rank == 0 and abs(batch.ts - time.time()) < PATIENCE_S
            for event in batch.events:
                kinds.add(type(event).__name__)
                if isinstance(event, vllm.BlockStored):
                    media.add(event.medium)
                    assert len(event.token_ids) == event.block_size * len(event.block_hashes)
                    assert event.block_size == 16 and event.group_idx == 0 and event.lora_name is None
                    assert [keys is None for keys in event.extra_keys] == [
                        i > 0 or event.parent_block_hash is not None for i in range(len(event.block_hashes))]
                    assert all(keys is None or keys[0].startswith("uid:") for keys in event.extra_keys)
        replay.close()
        for socket in (subscriber, unix):
            while socket.poll(50):
                topic, number, payload = socket.recv_multipart()
                seen.append((int.from_bytes(number, "big"), payload))
    assert sorted(payloads) == list(range(len(payloads))), sorted(payloads)
    for number, payload in seen:
        assert payloads.get(number, payload) == payload, number
    print(f"ok      {len(payloads)} batches: {sorted(kinds)} in {sorted(media)}; {len(seen)} received as they came")
    assert seen and {"BlockStored", "AllBlocksCleared"} <= kinds and media == {"CPU", "STORAGE"}, (kinds, media)
    context.destroy(0)


main()
