// What a launch costs the host: bursts of empty kernels, shorter than the queue, each burst waited for.
// Prints nanoseconds a launch (median over bursts) by cudaLaunchKernel. nvcc -O2 -arch=native -o launches launches.cu
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

__global__ void nothing() {}

int main() {
    const int burst = 400, bursts = 500;
    std::vector<double> ns;
    for (int i = 0; i < bursts + 50; i++) {
        auto began = std::chrono::steady_clock::now();
        for (int k = 0; k < burst; k++) nothing<<<1, 32>>>();
        auto ended = std::chrono::steady_clock::now();
        if (cudaDeviceSynchronize() != cudaSuccess) return 1;
        if (i >= 50) ns.push_back(std::chrono::duration<double, std::nano>(ended - began).count() / burst);
    }
    std::sort(ns.begin(), ns.end());
    printf("%.1f\n", ns[ns.size() / 2]);
    return 0;
}
