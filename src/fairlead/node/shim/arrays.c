/* Hooks of arrays and mipmapped arrays. */
#define _GNU_SOURCE
#include "accounted.h"

static uint64_t element_bytes(int format, unsigned channels) {
    switch (format) {
    case 0x01: /* 8 bit */
    case 0x08:
        return channels;
    case 0x02: /* 16 bit, half */
    case 0x09:
    case 0x10:
        return 2ull * channels;
    default: /* 32 bit, and formats that pack less into as much: too much counted is the safe side */
        return 4ull * channels;
    }
}

static uint64_t at_least_one(uint64_t n) {
    return n ? n : 1;
}

static uint64_t array_bytes(const CUarray3DDesc *desc, unsigned levels) {
    if (desc->flags & (CU_ARRAY3D_SPARSE | CU_ARRAY3D_DEFERRED)) {
        return 0; /* memory comes later, by cuMemCreate */
    }
    uint64_t total = 0, width = at_least_one(desc->width), height = at_least_one(desc->height);
    uint64_t depth = at_least_one(desc->depth);
    for (unsigned level = 0; level < at_least_one(levels); level++) {
        total += width * height * depth * element_bytes(desc->format, desc->channels);
        width = at_least_one(width / 2);
        height = at_least_one(height / 2);
        if (!(desc->flags & (CU_ARRAY3D_LAYERED | CU_ARRAY3D_CUBEMAP))) {
            depth = at_least_one(depth / 2);
        }
    }
    return total;
}

EXPORT CUresult cuArrayCreate(CUarray *out, const CUarrayDesc_v1 *desc) {
    NEEDS(cuArrayCreate);
    CUarray3DDesc wide = {0};
    if (desc) {
        wide = (CUarray3DDesc){desc->width, desc->height, 0, desc->format, desc->channels, 0};
    }
    ACCOUNTED(KIND_ARRAY, out, desc ? array_bytes(&wide, 1) : 0, real.cuArrayCreate(out, desc));
}

EXPORT CUresult cuArrayCreate_v2(CUarray *out, const CUarrayDesc *desc) {
    NEEDS(cuArrayCreate_v2);
    CUarray3DDesc wide = {0};
    if (desc) {
        wide = (CUarray3DDesc){desc->width, desc->height, 0, desc->format, desc->channels, 0};
    }
    ACCOUNTED(KIND_ARRAY, out, desc ? array_bytes(&wide, 1) : 0, real.cuArrayCreate_v2(out, desc));
}

EXPORT CUresult cuArray3DCreate(CUarray *out, const CUarray3DDesc_v1 *desc) {
    NEEDS(cuArray3DCreate);
    CUarray3DDesc wide = {0};
    if (desc) {
        wide = (CUarray3DDesc){desc->width, desc->height, desc->depth, desc->format, desc->channels, desc->flags};
    }
    ACCOUNTED(KIND_ARRAY, out, desc ? array_bytes(&wide, 1) : 0, real.cuArray3DCreate(out, desc));
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *out, const CUarray3DDesc *desc) {
    NEEDS(cuArray3DCreate_v2);
    ACCOUNTED(KIND_ARRAY, out, desc ? array_bytes(desc, 1) : 0, real.cuArray3DCreate_v2(out, desc));
}

EXPORT CUresult cuArrayDestroy(CUarray array) {
    NEEDS(cuArrayDestroy);
    RELEASED(KIND_ARRAY, (uintptr_t)array, real.cuArrayDestroy(array));
}

EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUarray3DDesc *desc, unsigned levels) {
    NEEDS(cuMipmappedArrayCreate);
    ACCOUNTED(KIND_MIPMAP, out, desc ? array_bytes(desc, levels) : 0, real.cuMipmappedArrayCreate(out, desc, levels));
}

EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
    NEEDS(cuMipmappedArrayDestroy);
    RELEASED(KIND_MIPMAP, (uintptr_t)array, real.cuMipmappedArrayDestroy(array));
}
