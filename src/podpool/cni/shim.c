/* The plugin: sends the environment and stdin to the agent, and prints the agent's response.
 *
 * It implements no CNI logic except the errors when the agent is unreachable. Frames are described in protocol.py. It
 * needs nothing on the host: static, no allocation, every buffer bounded, every failure a CNI error on stdout and exit
 * code 1. A call is repeated when the agent restarts during it, which is safe: the same sandbox gets the same address.
 *
 * A runtime that cancels a call kills the plugin that it started, not the IPAM plugin that this one started. So every
 * call but a DEL ends when its result is no longer read: a late ADD would assign an address after the DEL of its
 * sandbox, and a late GC would release what was assigned since. A DEL is completed, which is always right. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { MAX_BODY = 1 << 20, CONNECT_MS = 5000, RESPONSE_MS = 30000, RETRY_MS = 20 };
enum { INVALID_ENVIRONMENT = 4, IO_FAILURE = 5, DECODE_FAILURE = 6, TRY_AGAIN_LATER = 11, UNAVAILABLE = 50 };
enum outcome { DONE, UNREACHABLE, TIMED_OUT, PROTOCOL_ERROR, ABANDONED };

static const char *const VARIABLES[] = {"CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS",
                                        "CNI_IFNAME",  "CNI_ARGS",        "CNI_PATH"};
static char request[4 + MAX_BODY], response[MAX_BODY];
static size_t request_size, response_size;
static int result_pipe; /* stdout, if the call ends with its reader; else -1 */

static const char *env(const char *name, const char *fallback) {
    const char *value = getenv(name);
    return value && *value ? value : fallback;
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int write_all(int fd, const char *bytes, size_t size) {
    while (size > 0) {
        ssize_t wrote = write(fd, bytes, size);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return -1;
        bytes += wrote, size -= (size_t)wrote;
    }
    return 0;
}

static int fail(int code, const char *message) {
    char error[512];
    int size = snprintf(error, sizeof error, "{\"cniVersion\":\"1.1.0\",\"code\":%d,\"msg\":\"%s\"}\n", code, message);
    write_all(STDOUT_FILENO, error, (size_t)size);
    return 1;
}

static int append(const char *bytes, size_t size) {
    if (size > sizeof request - request_size) return -1;
    memcpy(request + request_size, bytes, size);
    request_size += size;
    return 0;
}

/* Read the environment and all of stdin into one frame. */
static int read_input(void) {
    request_size = 4;
    if (append("podpool/1", 10)) return -1;
    for (size_t i = 0; i < sizeof VARIABLES / sizeof *VARIABLES; i++) {
        const char *value = env(VARIABLES[i], "");
        if (append(value, strlen(value) + 1)) return -1;
    }
    for (;;) {
        char extra;
        size_t space = sizeof request - request_size;
        ssize_t got = space ? read(STDIN_FILENO, request + request_size, space) : read(STDIN_FILENO, &extra, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 || (got > 0 && !space)) return -1;
        if (got == 0) break;
        request_size += (size_t)got;
    }
    uint32_t length = htonl((uint32_t)(request_size - 4));
    memcpy(request, &length, 4);
    return 0;
}

/* Wait until the socket is ready (-1: none), the deadline passes, or the reader of the result is gone. */
static enum outcome wait_ready(int fd, short events, int64_t deadline) {
    for (;;) {
        int64_t left = deadline - now_ms();
        struct pollfd polled[] = {{.fd = fd, .events = events}, {.fd = result_pipe}};
        int count = left > 0 ? poll(polled, 2, (int)left) : 0;
        if (count < 0 && errno == EINTR) continue;
        if (count > 0 && polled[1].revents) return ABANDONED; /* without events, only an error or hang-up is reported */
        return count > 0 ? DONE : count == 0 ? TIMED_OUT : PROTOCOL_ERROR;
    }
}

static enum outcome receive(int fd, char *into, size_t size, int64_t deadline) {
    while (size > 0) {
        enum outcome waited = wait_ready(fd, POLLIN, deadline);
        if (waited != DONE) return waited;
        ssize_t got = recv(fd, into, size, MSG_DONTWAIT);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got <= 0) return UNREACHABLE;
        into += got, size -= (size_t)got;
    }
    return DONE;
}

static enum outcome send_request(int fd, int64_t deadline) {
    for (size_t sent = 0; sent < request_size;) {
        enum outcome waited = wait_ready(fd, POLLOUT, deadline);
        if (waited != DONE) return waited;
        ssize_t wrote = send(fd, request + sent, request_size - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (wrote < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (wrote < 0) return UNREACHABLE;
        sent += (size_t)wrote;
    }
    return DONE;
}

/* Send the request and read the response. */
static enum outcome exchange(int fd, int64_t deadline) {
    uint32_t length;
    enum outcome result = send_request(fd, deadline);
    if (result == DONE) result = receive(fd, (char *)&length, sizeof length, deadline);
    if (result != DONE) return result;
    response_size = ntohl(length);
    if (response_size < 1 || response_size > sizeof response) return PROTOCOL_ERROR;
    return receive(fd, response, response_size, deadline);
}

/* Wait for an agent that is starting, and repeat the call if it restarts. */
static enum outcome call_agent(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = env("PODPOOL_SOCKET", "/run/podpool/agent.sock");
    int64_t wait = strtoll(env("PODPOOL_WAIT_MS", "0"), NULL, 10), start = now_ms();
    int64_t unreachable_since = start, deadline = start + RESPONSE_MS;
    if (strlen(path) >= sizeof address.sun_path) return PROTOCOL_ERROR;
    strcpy(address.sun_path, path);
    for (;;) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0) return PROTOCOL_ERROR;
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) {
            enum outcome result = exchange(fd, deadline);
            close(fd);
            if (result != UNREACHABLE) return result;
            if (unreachable_since == start) unreachable_since = now_ms();
        } else {
            int error = errno;
            close(fd);
            if (error != ENOENT && error != ECONNREFUSED && error != EAGAIN && error != EINTR) return PROTOCOL_ERROR;
        }
        int64_t now = now_ms();
        if (now >= deadline || now - unreachable_since >= (wait > 0 ? wait : CONNECT_MS)) return UNREACHABLE;
        enum outcome slept = wait_ready(-1, 0, now + RETRY_MS);
        if (slept != TIMED_OUT) return slept;
    }
}

/* Give a deferred DEL to the owner of its directory, which is the agent. A directory created by root, because the agent
 * had not created it yet, is given to the owner of its parent. Without permission the DEL keeps its owner. */
static int set_owner(int directory, int file) {
    struct stat own, parent;
    if (fstat(directory, &own)) return -1;
    uid_t owner = own.st_uid;
    if (owner == 0 && fstatat(directory, "..", &parent, 0) == 0 && fchown(directory, parent.st_uid, (gid_t)-1) == 0)
        owner = parent.st_uid;
    return fchown(file, owner, (gid_t)-1);
}

/* Write the body of the frame into a directory. Its owner must gain nothing else: the file that changes its owner is
 * always new, and is in the very directory that was opened. */
static int write_file(int directory, const char *name) {
    char temporary[32];
    snprintf(temporary, sizeof temporary, ".%d.new", (int)getpid());
    unlinkat(directory, temporary, 0); /* left by a process that was killed */
    int file = openat(directory, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return -1;
    int failed = write_all(file, request + 4, request_size - 4);
    set_owner(directory, file);
    if (close(file) == 0 && failed == 0 && renameat(directory, temporary, directory, name) == 0) return 0;
    unlinkat(directory, temporary, 0);
    return -1;
}

/* FNV-1a of the request: two DELs of one sandbox, for different networks or interfaces, are two files. */
static unsigned long long request_hash(void) {
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 4; i < request_size; i++) hash = (hash ^ (unsigned char)request[i]) * 0x100000001b3;
    return hash;
}

/* Save a DEL, in a file named after the sandbox, for the agent to process when it is back. */
static int defer(void) {
    char name[256];
    const char *path = env("PODPOOL_DEFERRED_DELETES", NULL);
    if (!path) {
        mkdir("/run/podpool", 0700);
        path = "/run/podpool/deletes";
    }
    snprintf(name, sizeof name, "%.200s-%.30s-%016llx", env("CNI_CONTAINERID", "none"), env("CNI_IFNAME", "none"),
             request_hash());
    for (char *each = name; *each; each++)
        if (*each == '/' || (each == name && *each == '.')) *each = '_';
    mkdir(path, 0700);
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (directory < 0) return -1;
    int failed = write_file(directory, name);
    close(directory);
    return failed;
}

static int without_agent(const char *command, enum outcome why) {
    if (why == ABANDONED) return 1;
    if (strcmp(command, "DEL") == 0) {
        if (defer() == 0) return 0;
        return fail(TRY_AGAIN_LATER, "the podpool agent does not respond, and the DEL cannot be saved for it");
    }
    if (why == PROTOCOL_ERROR)
        return fail(IO_FAILURE, "cannot communicate with the podpool agent: check its socket and its log");
    if (why == TIMED_OUT) return fail(TRY_AGAIN_LATER, "the podpool agent did not respond in time: check its log");
    int code = strcmp(command, "STATUS") == 0 ? UNAVAILABLE : TRY_AGAIN_LATER;
    return fail(code, "the podpool agent is not running on this node: check its Pod");
}

int main(void) {
    static const char versions[] = "{\"cniVersion\":\"1.1.0\",\"supportedVersions\":"
                                   "[\"0.1.0\",\"0.2.0\",\"0.3.0\",\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\"]}\n";
    const char *command = env("CNI_COMMAND", "");
    if (!*command)
        return fail(INVALID_ENVIRONMENT, "CNI_COMMAND is not set: this is a CNI plugin, started by a container runtime");
    if (strcmp(command, "VERSION") == 0) return write_all(STDOUT_FILENO, versions, sizeof versions - 1) ? 1 : 0;
    result_pipe = strcmp(command, "DEL") ? STDOUT_FILENO : -1;
    if (read_input()) return fail(DECODE_FAILURE, "the network configuration cannot be read, or is longer than 1 MiB");
    enum outcome result = call_agent();
    if (result != DONE) return without_agent(command, result);
    if (write_all(STDOUT_FILENO, response + 1, response_size - 1)) return 1;
    return (unsigned char)response[0];
}
