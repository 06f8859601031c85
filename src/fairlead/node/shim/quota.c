/* How much device memory the job may hold. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "shim.h"

/* "GPU-8e1f5a3c-..." -> 16 bytes. */
static bool parse_uuid(const char *text, size_t length, uint8_t uuid[16]) {
    if (length > 4 && strncmp(text, "GPU-", 4) == 0) {
        text += 4;
        length -= 4;
    }
    unsigned digits = 0;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        int value = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (c == '-') {
            continue;
        }
        if (value < 0 || digits >= 32) {
            return false;
        }
        uuid[digits / 2] = (uint8_t)(digits % 2 ? uuid[digits / 2] | value : value << 4);
        digits++;
    }
    return digits == 32;
}

bool quota_uuid(const char *text, uint8_t uuid[16]) {
    return parse_uuid(text, strlen(text), uuid);
}

/* A number of bytes up to the next comma. "10GiB" read as 10 would be worse than no limit, so it is refused aloud. */
static uint64_t parse_bytes(const char *text) {
    char *end = NULL;
    uint64_t bytes = strtoull(text, &end, 10);
    if (end == text || *text == '-' || (*end && *end != ',')) {
        log_line("FAIRLEAD_SHIM_QUOTA: '%s' is no number of bytes; it is ignored", text);
        return 0;
    }
    return bytes;
}

uint64_t quota_configured(int ordinal, const uint8_t uuid[16]) {
    const char *text = setting("FAIRLEAD_SHIM_QUOTA");
    if (!text || !*text) {
        return 0;
    }
    bool only = strchr(text, ',') == NULL;
    for (int position = 0; text && *text; position++) {
        const char *comma = strchr(text, ','), *equals = strchr(text, '=');
        uint8_t named[16] = {0};
        if (equals && (!comma || equals < comma)) {
            if (parse_uuid(text, (size_t)(equals - text), named) && memcmp(named, uuid, 16) == 0) {
                return parse_bytes(equals + 1);
            }
        } else if (only || position == ordinal) {
            return parse_bytes(text);
        }
        text = comma ? comma + 1 : NULL;
    }
    return 0;
}

uint64_t quota_now(const struct gpu *gpu) {
    uint64_t agents = control_quota(gpu->uuid);
    return agents ? agents : gpu->quota_bytes;
}

bool quota_reserve(struct gpu *gpu, uint64_t bytes) {
    while (UNLIKELY(atomic_load_explicit(&closing, memory_order_relaxed))) {
        nap_ns(10 * MS_NS); /* as at the gate: the process is about to end, and its context before it */
    }
    uint64_t limit = quota_now(gpu);
    if (LIKELY(usage_reserve(gpu->usage_index, bytes, limit))) {
        return true;
    }
    pools_shrink(gpu); /* what was freed into a pool is still held by the driver */
    if (usage_reserve(gpu->usage_index, bytes, limit)) {
        return true;
    }
    uint64_t refused = COUNT(out_of_memory, 1);
    if ((refused & (refused + 1)) == 0) { /* the 1st, 2nd, 4th, ...: an allocator may ask again and again */
        log_line("GPU %d: %llu bytes refused, %llu of %llu in use", gpu->ordinal, (unsigned long long)bytes,
                 (unsigned long long)quota_used(gpu), (unsigned long long)limit);
    }
    return false;
}

void quota_take(struct gpu *gpu, uint64_t bytes) {
    usage_add(gpu->usage_index, ACCOUNT_USED, bytes);
}

void quota_give_back(struct gpu *gpu, uint64_t bytes) {
    usage_subtract(gpu->usage_index, ACCOUNT_USED, bytes);
}

uint64_t quota_used(const struct gpu *gpu) {
    return usage_sum(gpu->usage_index);
}

bool quota_has_room(const struct gpu *gpu) {
    uint64_t limit = quota_now(gpu);
    return !limit || quota_used(gpu) <= limit;
}
