/* The two programs of the evaluation: subtasks dealt out on request, or evenly before the start.
 *
 *   subtasks dynamic|static < points      each line of points: two numbers, the program's parameters
 *
 * dynamic: the first rank hands out groups of subtasks to the others as they ask; parameters: subtasks in a group, size.
 * static:  every rank has its share from the start; they exchange borders four times; parameters: subtasks, size.
 *
 * A subtask takes memory and reads it at random places, `size` thousand times. Threads are OpenMP's. For each line of the
 * input the first rank writes: parameters, seconds. Nobody spins while it waits: the nodes are shares of one machine.
 */
#include <mpi.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUBTASKS = 128, MEMORY = 1 << 18, INPUT = 8192, BORDER = 65536, ROUNDS = 4, WORK = 1, RESULT = 2, STOP = 3 };

static volatile uint64_t sink;

static void quietly(MPI_Request *request, MPI_Status *status)
{
    struct timespec nap = {0, 200000};
    int done = 0;
    while (MPI_Test(request, &done, status), !done)
        nanosleep(&nap, NULL);
}

static void together(void)
{
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    quietly(&request, MPI_STATUS_IGNORE);
}

static void subtask(long size, uint64_t seed)
{
    uint32_t *memory = malloc(MEMORY);
    uint64_t x = seed * 2654435761u + 88172645463325252u, sum = 0;
    memset(memory, (int)seed & 255, MEMORY);
    for (long i = 0; i < size * 1000; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        sum += memory[x % (MEMORY / sizeof *memory)];
    }
    sink = sum;
    free(memory);
}

static void work(long first, long count, long size)
{
#pragma omp parallel for schedule(dynamic, 1)
    for (long i = first; i < first + count; i++)
        subtask(size, (uint64_t)i + 1);
}

static void master(long group, int workers)
{
    long next = 0;
    char *data = calloc((size_t)group, INPUT);
    while (workers > 0) {
        MPI_Request request;
        MPI_Status status;
        MPI_Irecv(data, (int)(group * INPUT), MPI_BYTE, MPI_ANY_SOURCE, RESULT, MPI_COMM_WORLD, &request);
        quietly(&request, &status);
        long count = SUBTASKS - next < group ? SUBTASKS - next : group;
        int tag = count > 0 ? WORK : STOP;
        MPI_Isend(data, (int)(count * INPUT), MPI_BYTE, status.MPI_SOURCE, tag, MPI_COMM_WORLD, &request);
        quietly(&request, MPI_STATUS_IGNORE);
        next += count;
        workers -= tag == STOP;
    }
    free(data);
}

static void worker(long group, long size)
{
    char *data = calloc((size_t)group, INPUT);
    int bytes = 0;
    for (;;) {
        MPI_Request request;
        MPI_Status status;
        MPI_Isend(data, bytes, MPI_BYTE, 0, RESULT, MPI_COMM_WORLD, &request);
        quietly(&request, MPI_STATUS_IGNORE);
        MPI_Irecv(data, (int)(group * INPUT), MPI_BYTE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
        quietly(&request, &status);
        if (status.MPI_TAG == STOP)
            break;
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        work(0, bytes / INPUT, size);
    }
    free(data);
}

static void even(long count, long size, int rank, int ranks)
{
    char *out = calloc(1, BORDER), *in = calloc(1, BORDER);
    long mine = count / ranks + (rank < count % ranks);
    for (int round = 0; round < ROUNDS; round++) {
        long part = mine / ROUNDS + (round < mine % ROUNDS);
        MPI_Request requests[2];
        work(rank * count, part, size);
        for (int i = 1; i < ranks; i++) { /* every border is of interest to everybody */
            MPI_Irecv(in, BORDER, MPI_BYTE, (rank + i) % ranks, WORK, MPI_COMM_WORLD, &requests[0]);
            MPI_Isend(out, BORDER, MPI_BYTE, (rank + ranks - i) % ranks, WORK, MPI_COMM_WORLD, &requests[1]);
            quietly(&requests[0], MPI_STATUS_IGNORE);
            quietly(&requests[1], MPI_STATUS_IGNORE);
        }
    }
    free(out);
    free(in);
}

int main(int count, char **words)
{
    int rank, ranks, dynamic = count > 1 && !strcmp(words[1], "dynamic");
    long point[2];
    char line[256];
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    work(0, omp_get_max_threads(), 1);
    for (;;) {
        MPI_Request request;
        point[0] = point[1] = 0;
        if (rank == 0 && fgets(line, sizeof line, stdin))
            sscanf(line, "%ld %ld", &point[0], &point[1]);
        MPI_Ibcast(point, 2, MPI_LONG, 0, MPI_COMM_WORLD, &request);
        quietly(&request, MPI_STATUS_IGNORE);
        if (point[0] < 1)
            break;
        together();
        double begun = MPI_Wtime();
        if (!dynamic)
            even(point[0], point[1], rank, ranks);
        else if (rank == 0)
            master(point[0], ranks - 1);
        else
            worker(point[0], point[1]);
        together();
        if (rank == 0)
            printf("%ld %ld %.4f\n", point[0], point[1], MPI_Wtime() - begun), fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
