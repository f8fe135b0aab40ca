/* What load clients share: a clock, connections, frames from a file, and the times of answers.
 *
 * A client includes it once; all of it is static. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_FRAMES 4096
#define HISTOGRAM_US 1000000 /* one bucket a microsecond; slower answers share the last */
#define SLOW_US 100000
#define SYN_LOST_NS 200000000 /* a server that accepts slower than we connect: Kafka queues 50 */

static char *frames;
static size_t frame_at[MAX_FRAMES], frame_bytes[MAX_FRAMES];
static unsigned frame_count;
static uint32_t *histogram;
static uint64_t answers, received_bytes, max_ns, slow;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void read_frames(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file), at = 0;
    rewind(file);
    frames = malloc(size + 1);
    if (!frames || fread(frames, 1, size, file) != size) fail(path);
    fclose(file);
    while (at + 4 <= size && frame_count < MAX_FRAMES) {
        uint32_t length;
        memcpy(&length, frames + at, 4);
        frame_at[frame_count] = at;
        frame_bytes[frame_count] = 4 + ntohl(length);
        at += frame_bytes[frame_count++];
    }
    if (at != size) {
        fprintf(stderr, "%s does not end with a whole frame\n", path);
        exit(1);
    }
}

static int connect_to(const char *host, int port, unsigned *pause_us) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct linger no_time_wait = {.l_onoff = 1, .l_linger = 0}; /* or ten thousand ports rest for a minute */
    int yes = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) fail("socket");
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) fail(host);
    uint64_t start = now_ns();
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    if (now_ns() - start > SYN_LOST_NS && *pause_us < 2000) *pause_us = *pause_us ? 2 * *pause_us : 50;
    if (*pause_us) usleep(*pause_us);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &no_time_wait, sizeof no_time_wait);
    return fd;
}

static void send_all(int fd, const char *data, size_t total) {
    for (size_t done = 0; done < total;) {
        ssize_t n = send(fd, data + done, total - done, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail("send");
        done += (size_t)n;
    }
}

static void start_counting(void) {
    histogram = calloc(HISTOGRAM_US + 1, sizeof *histogram);
    if (!histogram) fail("memory");
}

static void count_time(uint64_t took_ns) {
    uint64_t us = took_ns / 1000;
    answers++;
    histogram[us < HISTOGRAM_US ? us : HISTOGRAM_US]++;
    if (took_ns > max_ns) max_ns = took_ns;
    if (us > SLOW_US) slow++;
}

static double percentile_us(double share) {
    uint64_t wanted = (uint64_t)(share * (double)answers), seen = 0;
    for (unsigned us = 0; us <= HISTOGRAM_US; us++) {
        seen += histogram[us];
        if (seen > wanted) return us;
    }
    return 0;
}

static void ready(void) {
    puts("ready");
    fflush(stdout);
}

static double argument(int count, char **values, const char *name, double otherwise) {
    for (int i = 4; i + 1 < count; i++)
        if (!strcmp(values[i], name)) return atof(values[i + 1]);
    return otherwise;
}

/* One line of JSON: what was counted since `start` of the clock. */
static void print_result(uint64_t start) {
    double took = (double)(now_ns() - start) / 1e9;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                 (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"requests\": %llu, \"seconds\": %.6f, \"bytes\": %llu, \"p50_us\": %.0f, \"p99_us\": %.0f, "
           "\"max_us\": %.0f, \"over_100_ms\": %llu, \"client_cpu_seconds\": %.3f}\n",
           (unsigned long long)answers, took, (unsigned long long)received_bytes, percentile_us(0.5),
           percentile_us(0.99), (double)max_ns / 1e3, (unsigned long long)slow, cpu);
}
