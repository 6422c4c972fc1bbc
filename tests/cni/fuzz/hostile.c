/* A hostile agent, runtime and machine around the plugin's own code, played from the bytes that libFuzzer hands in.
 *
 * Each byte says what the next call of the plugin meets: less than it asked for, an interruption, an error, a clock
 * that has moved on; a script that is over is a machine without an agent. Beside what the sanitizers see, each run is
 * judged: what was sent is the frame of what the runtime said, what is printed is the agent's whole answer or a CNI
 * error, a DEL is left inside its directory, to its owner, or refused, nothing stays open, and it ends in time. */
#include "hostile.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/un.h>

enum { LARGEST = 1 << 20, BEYOND = LARGEST + 4096, MS = 1000000, LONGEST_MS = 32000 };
enum { NAMES = 9, SENT = 6, ARGS = 4, SOCKET = 100, FILE_ = 200, DIRECTORY = 300, PID = 4711, ROOT = 0, AGENT = 1 };

static const char *const NAME[NAMES] = {"CNI_COMMAND",    "CNI_CONTAINERID", "CNI_NETNS",
                                        "CNI_IFNAME",     "CNI_ARGS",        "CNI_PATH",
                                        "PODPOOL_SOCKET", "PODPOOL_DELETES", "PODPOOL_WAIT_MS"};
static const char *const COMMAND[] = {"ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"};
static const size_t LENGTH[] = {50, 108, 200, 256, 3840, 4096, 4200};

struct bytes {
    uint8_t at[BEYOND];
    size_t size;
};

static const uint8_t *script, *script_end;
static char *value[NAMES];
static struct bytes said, sent, answered, printed, written;
static int64_t now;
static int open_sockets, open_files, open_directories, next_socket;
static uid_t above_owner, directory_owner, file_owner;
static bool parent_made, beside_there, not_given, stdin_broken, stdout_broken, left_there, asked;

/* What must hold. */
#define MUST(rule) ((rule) ? (void)0 : broken(#rule))

static _Noreturn void broken(const char *rule) {
    fprintf(stderr, "must hold: %s\n", rule);
    abort();
}

static uint8_t take(void) { return script < script_end ? *script++ : 0; }

static void keep(struct bytes *kept, const void *bytes, size_t size) {
    size_t room = sizeof kept->at - kept->size, fits = size < room ? size : room;
    memcpy(kept->at + kept->size, bytes, fits);
    kept->size += fits;
}

/* As memcmp, which the sanitizers make slow: a megabyte is compared in most runs that matter. */
__attribute__((no_sanitize("address", "undefined", "coverage")))
static bool equal(const uint8_t *one, const uint8_t *other, size_t size) {
    bool differs = false;
    for (size_t i = 0; i < size; i++) differs |= one[i] != other[i];
    return !differs;
}

static bool same(const struct bytes *one, const uint8_t *other, size_t size) {
    return one->size == size && equal(one->at, other, size);
}

static int refuse(int why) {
    errno = why;
    return -1;
}

/* How much of what is asked for goes through: all of it, unless the script says otherwise. */
static ssize_t part(size_t size, int why) {
    switch (take()) {
    case 1: return refuse(EINTR);
    case 2: return refuse(why);
    case 3: return size > 0;
    case 4: return (ssize_t)((size + 1) / 2);
    default: return (ssize_t)size;
    }
}

/* The environment */

static char *make_value(size_t longest) {
    uint8_t kind = take();
    if (kind == 0) return NULL;
    bool typed = kind < 0xf0;
    size_t size = typed ? kind - 1u : (kind == 0xff ? longest : LENGTH[kind % 7]) + take() % 64 - 32;
    char *made = malloc(size + 1); /* of its very size, so that a byte too far is seen */
    MUST(made);
    memset(made, 'z', size);
    for (size_t i = 0; typed && i < size; i++) {
        uint8_t next = take();
        if (next) made[i] = (char)next;
    }
    made[size] = 0;
    return made;
}

static void make_environment(void) {
    uint8_t command = take();
    value[0] = command < 6 ? strdup(COMMAND[command]) : make_value(64);
    for (int i = 1; i < NAMES; i++) value[i] = make_value(i == ARGS ? LARGEST : 64);
    keep(&said, "podpool/1", 10);
    for (int i = 0; i < SENT; i++) keep(&said, value[i] ? value[i] : "", value[i] ? strlen(value[i]) + 1 : 1);
}

static const char *told(int name, const char *otherwise) {
    return value[name] && *value[name] ? value[name] : otherwise;
}

char *hostile_getenv(const char *name) {
    for (int i = 0; i < NAMES; i++)
        if (strcmp(NAME[i], name) == 0) return value[i];
    return NULL;
}

/* Time */

int hostile_clock_gettime(clockid_t clock, struct timespec *told_now) {
    MUST(clock == CLOCK_BOOTTIME);
    *told_now = (struct timespec){.tv_sec = now / (1000 * MS), .tv_nsec = now % (1000 * MS)};
    return 0;
}

int hostile_nanosleep(const struct timespec *wanted, struct timespec *left_over) {
    (void)left_over;
    int64_t longer = script < script_end ? take() * 4 : 500;
    now += wanted->tv_sec * 1000LL * MS + wanted->tv_nsec + longer * MS;
    return 0;
}

/* stdin, stdout and files */

ssize_t hostile_read(int fd, void *into, size_t size) {
    MUST(fd == STDIN_FILENO);
    uint8_t kind = take();
    if (kind == 1) return refuse(EINTR);
    if (kind == 2) {
        stdin_broken = true;
        return refuse(EIO);
    }
    size_t given = kind == 0 ? 0 : kind == 3 ? size : kind == 4 ? size - 1 : kind < size ? kind : size;
    if (kind == 3 || kind == 4)
        memset(into, 'x', given);
    else
        for (size_t i = 0; i < given; i++) ((uint8_t *)into)[i] = take();
    keep(&said, into, given);
    return (ssize_t)given;
}

ssize_t hostile_write(int fd, const void *bytes, size_t size) {
    MUST(fd == STDOUT_FILENO || (fd == FILE_ && open_files == 1));
    ssize_t wrote = part(size, fd == STDOUT_FILENO ? EPIPE : ENOSPC);
    if (wrote > 0) keep(fd == STDOUT_FILENO ? &printed : &written, bytes, (size_t)wrote);
    if (wrote < 0 && errno == EPIPE) stdout_broken = true;
    return wrote;
}

int hostile_close(int fd) {
    if (fd == FILE_) {
        MUST(open_files-- == 1);
        return take() == 1 ? refuse(EIO) : 0;
    }
    if (fd == DIRECTORY) {
        MUST(open_files == 0 && open_directories-- == 1);
        return 0;
    }
    MUST(fd == next_socket && open_sockets-- == 1);
    return 0;
}

/* Where a file of the plugin's may be: in its directory, not above it and not below. */
static bool hidden(int directory, const char *name) {
    MUST(directory == DIRECTORY && open_directories == 1);
    MUST(*name && !strchr(name, '/') && strlen(name) < 256);
    return *name == '.';
}

int hostile_mkdir(const char *path, mode_t mode) {
    MUST(mode == 0700);
    parent_made |= strcmp(path, "/run/podpool") == 0;
    MUST(parent_made || strcmp(path, told(7, "")) == 0); /* the directory of others is not made for them */
    return take() == 1 ? refuse(EACCES) : 0;
}

/* The agent may own the directory, or only the one above; a plugin may have died in it over its work. */
int hostile_open(const char *path, int flags) {
    MUST((flags & (O_DIRECTORY | O_NOFOLLOW)) == (O_DIRECTORY | O_NOFOLLOW) && open_directories == 0);
    MUST(strcmp(path, told(7, "/run/podpool/deletes")) == 0);
    uint8_t kind = take();
    if (kind == 1) return refuse(ENOTDIR);
    directory_owner = kind & 2 ? AGENT : ROOT, above_owner = kind & 4 ? AGENT : ROOT;
    open_directories = 1, beside_there = true;
    return DIRECTORY;
}

int hostile_openat(int directory, const char *name, int flags, mode_t mode) {
    MUST(mode == 0600 && (flags & (O_NOFOLLOW | O_CREAT | O_EXCL)) == (O_NOFOLLOW | O_CREAT | O_EXCL));
    MUST(hidden(directory, name) && open_files == 0 && !beside_there);
    if (take() == 1) return refuse(EACCES);
    written.size = 0;
    open_files = 1, beside_there = true, file_owner = ROOT;
    return FILE_;
}

int hostile_fstat(int fd, struct stat *found) {
    MUST(fd == DIRECTORY && open_directories == 1);
    not_given = take() == 1;
    found->st_uid = directory_owner;
    return not_given ? refuse(EIO) : 0;
}

int hostile_fstatat(int directory, const char *name, struct stat *found, int flags) {
    MUST(directory == DIRECTORY && open_directories == 1 && strcmp(name, "..") == 0 && flags == 0);
    not_given = take() == 1;
    found->st_uid = above_owner;
    return not_given ? refuse(EACCES) : 0;
}

/* What is root's goes to the owner of what it is in, and to nobody else. */
int hostile_fchown(int fd, uid_t owner, gid_t group) {
    MUST(group == (gid_t)-1 && (fd == FILE_ ? open_files == 1 : fd == DIRECTORY && directory_owner == ROOT));
    MUST(owner == (fd == FILE_ ? directory_owner : above_owner));
    if (take() == 1) {
        not_given = true;
        return refuse(EPERM);
    }
    *(fd == FILE_ ? &file_owner : &directory_owner) = owner;
    return 0;
}

int hostile_renameat(int from_directory, const char *from, int to_directory, const char *to) {
    MUST(hidden(from_directory, from) && !hidden(to_directory, to) && open_files == 0 && beside_there);
    MUST(not_given || (file_owner == directory_owner && (directory_owner != ROOT || above_owner == ROOT)));
    if (take() == 1) return refuse(EIO);
    beside_there = false, left_there = true;
    return 0;
}

int hostile_unlinkat(int directory, const char *name, int flags) {
    MUST(hidden(directory, name) && flags == 0);
    beside_there = false;
    return 0;
}

pid_t hostile_getpid(void) { return PID; }

/* The agent */

int hostile_socket(int family, int type, int protocol) {
    MUST(family == AF_UNIX && (type & SOCK_STREAM) && (type & SOCK_CLOEXEC) && (type & SOCK_NONBLOCK) && protocol == 0);
    MUST(open_sockets == 0);
    if (take() == 1) return refuse(EMFILE);
    open_sockets = 1;
    next_socket = next_socket < FILE_ - 1 ? next_socket + 1 : SOCKET;
    sent.size = answered.size = 0;
    return next_socket;
}

int hostile_connect(int fd, const struct sockaddr *address, socklen_t size) {
    static const int WHY[] = {ENOENT, ECONNREFUSED, EAGAIN, EINTR, EACCES, EPROTOTYPE};
    const struct sockaddr_un *unix_address = (const struct sockaddr_un *)address;
    MUST(fd == next_socket && size == sizeof *unix_address && unix_address->sun_family == AF_UNIX);
    MUST(strcmp(unix_address->sun_path, told(6, "/run/podpool/agent.sock")) == 0);
    asked = true;
    uint8_t kind = take();
    return kind < sizeof WHY / sizeof *WHY ? refuse(WHY[kind]) : 0;
}

int hostile_poll(struct pollfd *polled, nfds_t count, int milliseconds) {
    MUST(count == 1 && polled->fd == next_socket && milliseconds > 0 && milliseconds <= LONGEST_MS);
    switch (take()) {
    case 0: now += (int64_t)milliseconds * MS; return 0;
    case 1: now += take() * (int64_t)milliseconds * MS / 256; return refuse(EINTR);
    case 2: return refuse(ENOMEM);
    case 3: now += take() * (int64_t)milliseconds * MS / 256; break;
    default: break;
    }
    polled->revents = polled->events;
    return 1;
}

ssize_t hostile_recv(int fd, void *into, size_t size, int flags) {
    MUST(fd == next_socket && open_sockets == 1 && flags == MSG_DONTWAIT && size > 0);
    uint8_t kind = take();
    if (kind == 0) return 0;
    if (kind <= 3) return refuse(kind == 1 ? EINTR : kind == 2 ? EAGAIN : ECONNRESET);
    if (kind == 4 && size == 4) { /* a length about the largest */
        uint32_t length = htonl(LARGEST + take() % 8 - 4u);
        memcpy(into, &length, 4);
        keep(&answered, into, 4);
        return 4;
    }
    size_t given = kind == 4 ? size : kind == 5 ? size - (size > 1) : kind - 5u < size ? kind - 5u : size;
    if (kind <= 5)
        memset(into, 'y', given);
    else
        for (size_t i = 0; i < given; i++) ((uint8_t *)into)[i] = take();
    keep(&answered, into, given);
    return (ssize_t)given;
}

ssize_t hostile_send(int fd, const void *bytes, size_t size, int flags) {
    MUST(fd == next_socket && open_sockets == 1 && flags == (MSG_DONTWAIT | MSG_NOSIGNAL) && size > 0);
    ssize_t wrote = take() == 5 ? refuse(EAGAIN) : part(size, EPIPE);
    if (wrote > 0) keep(&sent, bytes, (size_t)wrote);
    return wrote;
}

/* The judgement */

/* Whether what the agent said last is one whole answer, and no more than the plugin may read of it. */
static bool whole_answer(void) {
    if (answered.size < 4) return false;
    uint32_t size;
    memcpy(&size, answered.at, 4);
    size = ntohl(size);
    if (size < 1 || size > LARGEST) {
        MUST(answered.size == 4); /* it reads on for nobody */
        return false;
    }
    MUST(answered.size <= 4 + size);
    return answered.size == 4 + size;
}

static void judge_sent(void) {
    uint32_t head = htonl((uint32_t)said.size);
    MUST(sent.size <= 4 + said.size);
    MUST(memcmp(sent.at, &head, sent.size < 4 ? sent.size : 4) == 0);
    if (sent.size > 4) MUST(equal(sent.at + 4, said.at, sent.size - 4));
    if (answered.size > 0) MUST(sent.size == 4 + said.size);
}

static void judge_error(int code) {
    static const char START[] = "{\"cniVersion\":\"1.1.0\",\"code\":";
    MUST(code == 1 && printed.size > sizeof START && printed.size < 512);
    MUST(memcmp(printed.at, START, sizeof START - 1) == 0 && memcmp(printed.at + printed.size - 3, "\"}\n", 3) == 0);
}

static void judge(int code) {
    const char *command = told(0, "");
    bool refused = stdin_broken || said.size > LARGEST;
    MUST(now <= (int64_t)LONGEST_MS * MS);
    MUST(open_sockets == 0 && open_files == 0 && open_directories == 0 && !beside_there);
    if (!*command || strcmp(command, "VERSION") == 0) MUST(!asked);
    if (refused) MUST(!asked && !left_there);
    judge_sent();
    if (left_there) {
        MUST(code == 0 && printed.size == 0 && strcmp(command, "DEL") == 0 && same(&written, said.at, said.size));
        return;
    }
    if (stdout_broken) return;
    if (!refused && asked && whole_answer()) {
        MUST(code == answered.at[4] && same(&printed, answered.at + 5, answered.size - 5));
    } else if (strcmp(command, "VERSION") == 0) {
        MUST(code == 0 && printed.size > 0);
    } else {
        judge_error(code);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    script = bytes, script_end = bytes + size;
    said.size = sent.size = answered.size = printed.size = written.size = 0;
    now = open_sockets = open_files = open_directories = 0, next_socket = SOCKET;
    parent_made = beside_there = not_given = stdin_broken = stdout_broken = left_there = asked = false;
    make_environment();
    judge(plugin_main());
    for (int i = 0; i < NAMES; i++) free(value[i]);
    return 0;
}
