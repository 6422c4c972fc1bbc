/* Starts one Pod on each of many nodes at once: a CNI plugin for each of its networks, one after the other, as Multus does.
 *
 * pods COMMAND NODES NETWORKS SECONDS PREFIX CONFIGS DOORS PROGRAM: network N has its configuration in CONFIGS/N.conf and
 * the interface netN; node M is node-M, and its agent's door is DOORS/node-M.sock. Everything else comes from our
 * environment. Prints for each plugin that succeeded the nanoseconds from our start to its exit; after SECONDS those who
 * still run are killed. A plugin that fails is started again, as runtimes do. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 10000, MOST_VARIABLES = 64, LONGEST = 600 };
extern char **environ;
static pid_t running[MOST];
static int done[MOST];
static volatile sig_atomic_t late;

static int64_t now(void) {
    struct timespec read;
    clock_gettime(CLOCK_MONOTONIC, &read);
    return (int64_t)read.tv_sec * 1000000000 + read.tv_nsec;
}

static void ring(int signal) {
    (void)signal;
    late = 1;
}

static void start(int node, int network, char **words) {
    char lines[7][LONGEST], config[LONGEST];
    char *variables[MOST_VARIABLES + 8], *program[] = {words[8], NULL};
    int count = 0;
    while (environ[count] && count < MOST_VARIABLES) variables[count] = environ[count], count++;
    snprintf(lines[0], LONGEST, "CNI_COMMAND=%s", words[1]);
    snprintf(lines[1], LONGEST, "CNI_CONTAINERID=%s%d", words[5], node);
    snprintf(lines[2], LONGEST, "CNI_IFNAME=net%d", network);
    snprintf(lines[3], LONGEST, "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=bench;K8S_POD_NAME=%s%d", words[5], node);
    snprintf(lines[4], LONGEST, "CNI_NETNS=/run/netns/%s%d", words[5], node);
    snprintf(lines[5], LONGEST, "NODENAME=node-%04d", node);
    snprintf(lines[6], LONGEST, "PODPOOL_SOCKET=%s/node-%04d.sock", words[7], node);
    snprintf(config, LONGEST, "%s/%d.conf", words[6], network);
    for (int each = 0; each < 7; each++) variables[count++] = lines[each];
    variables[count] = NULL;
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, config, O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&running[node], words[8], &files, NULL, program, variables)) exit(2);
    posix_spawn_file_actions_destroy(&files);
}

int main(int count, char **words) {
    if (count != 9 || atoi(words[2]) > MOST) return 2;
    int nodes = atoi(words[2]), networks = atoi(words[3]), left = nodes, status;
    struct sigaction bell = {.sa_handler = ring}; /* without SA_RESTART: it ends the waiting */
    sigaction(SIGALRM, &bell, NULL);
    alarm((unsigned)atoi(words[4]));
    int64_t begun = now();
    for (int node = 0; node < nodes; node++) start(node, 0, words);
    while (left && !late) {
        pid_t ended = wait(&status);
        if (ended < 0) continue;
        int node = 0;
        while (node < nodes && running[node] != ended) node++;
        if (node == nodes) continue;
        running[node] = 0;
        if (status == 0) printf("%lld\n", (long long)(now() - begun)), done[node]++;
        if (done[node] < networks) start(node, done[node], words);
        else left--;
    }
    for (int node = 0; node < nodes; node++)
        if (running[node]) kill(running[node], SIGKILL);
    while (wait(&status) > 0 || errno == EINTR) continue;
    return 0;
}
