/* Starts a CNI plugin many times, several at once, and prints how long each took from its start to its exit.
 *
 * spawner AT_ONCE COUNT PREFIX CONFIG PROGRAM: CNI_CONTAINERID is PREFIX and a number, CNI_ARGS names a Pod like it, the
 * configuration comes from a file, everything else from our environment. Prints nanoseconds, one line for each; a plugin that fails is a line of 0.
 * In C, because a Python process takes longer to start another than a plugin lives. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 10000, MOST_VARIABLES = 64 };
extern char **environ;
static pid_t started[MOST];
static int64_t since[MOST], took[MOST];

static int64_t now(void) {
    struct timespec read;
    clock_gettime(CLOCK_MONOTONIC, &read);
    return (int64_t)read.tv_sec * 1000000000 + read.tv_nsec;
}

static void start(int number, const char *prefix, const char *config, const char *program) {
    char container[300], pod[400];
    char *variables[MOST_VARIABLES + 3], *words[] = {(char *)program, NULL};
    int count = 0;
    while (environ[count] && count < MOST_VARIABLES) variables[count] = environ[count], count++;
    snprintf(container, sizeof container, "CNI_CONTAINERID=%s%d", prefix, number);
    snprintf(pod, sizeof pod, "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=bench;K8S_POD_NAME=%s%d", prefix, number);
    variables[count++] = container, variables[count++] = pod, variables[count] = NULL;
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, config, O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    since[number] = now();
    if (posix_spawn(&started[number], program, &files, NULL, words, variables)) exit(2);
    posix_spawn_file_actions_destroy(&files);
}

static void wait_for_one(int begun) {
    int status;
    pid_t ended = wait(&status);
    int64_t at = now();
    for (int number = begun; number >= 0; number--)
        if (started[number] == ended) {
            took[number] = status == 0 ? at - since[number] : 0;
            return;
        }
}

int main(int count, char **words) {
    if (count != 6 || atoi(words[2]) > MOST) return 2;
    int at_once = atoi(words[1]), wanted = atoi(words[2]), begun = 0, ended = 0;
    while (ended < wanted) {
        if (begun < wanted && begun - ended < at_once) {
            start(begun, words[3], words[4], words[5]);
            begun++;
        } else {
            wait_for_one(begun - 1);
            ended++;
        }
    }
    for (int number = 0; number < wanted; number++) printf("%lld\n", (long long)took[number]);
    return 0;
}
