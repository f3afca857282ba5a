/* Writes down how long a file was when it was synced: "<bytes> <path>" to the file that TERN_SYNCED names.
 * Preloaded under a server, it tells which bytes a loss of power leaves for sure. What is written while the sync runs does not
 * count, so the length is taken before. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int synced(const char *name, int fd) {
    int (*sync)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    struct stat before;
    char link[64], path[4096], line[4200];
    int known = fstat(fd, &before) == 0;
    int result = sync(fd);
    const char *journal = getenv("TERN_SYNCED");
    if (result != 0 || !known || !journal || !S_ISREG(before.st_mode)) return result;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return result;
    path[length] = 0;
    int size = snprintf(line, sizeof line, "%lld %s\n", (long long)before.st_size, path);
    int out = open(journal, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (out >= 0) {
        if (write(out, line, (size_t)size) != size) abort();
        close(out);
    }
    return result;
}

int fsync(int fd) { return synced("fsync", fd); }
int fdatasync(int fd) { return synced("fdatasync", fd); }
