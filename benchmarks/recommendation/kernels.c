/* Kernels in the kind of the NAS Parallel Benchmarks: what they compute is real, and small enough for a shared machine.
 *
 *   kernels is|cg|mg|ft      one process on each node, a power of two of them
 *
 * is: integer sort, keys go to the process of their bucket (all to all, much data once a round).
 * cg: conjugate gradients for a banded matrix; the vector is gathered by everybody (all gather, and sums, each step).
 * mg: V-cycles of a one-dimensional multigrid in blocks (borders of neighbours on every level: many small messages).
 * ft: a transpose of a square of numbers between two passes over its rows (all to all, all of the data each round).
 *
 * The first process writes: kernel, processes, seconds, a number that is the same for any number of processes. Nobody spins
 * while it waits: the nodes are shares of one machine.
 */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int rank, ranks;

static void quietly(int count, MPI_Request *requests)
{
    struct timespec nap = {0, 200000};
    int done = 0;
    while (MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE), !done)
        nanosleep(&nap, NULL);
}

static double sum(double own)
{
    double all;
    MPI_Request request;
    MPI_Iallreduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    quietly(1, &request);
    return all;
}

static double integer_sort(void)
{
    enum { KEYS = 1 << 18, RANGE = 1 << 16, ROUNDS = 4 };
    int own = KEYS / ranks, each = RANGE / ranks;
    uint32_t *keys = malloc(sizeof *keys * own), *sent = malloc(sizeof *sent * own), *got = malloc(sizeof *got * KEYS);
    int *out = malloc(sizeof *out * ranks), *in = malloc(sizeof *in * ranks);
    int *from = malloc(sizeof *from * (ranks + 1)), *to = malloc(sizeof *to * (ranks + 1));
    uint32_t *counts = malloc(sizeof *counts * RANGE);
    double checked = 0;
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request request;
        for (int i = 0; i < own; i++) {
            uint64_t x = (uint64_t)(rank * own + i) * 2654435761u + (uint64_t)round * 40503u;
            x ^= x >> 15, x *= 0x2c1b3c6du, x ^= x >> 12;
            keys[i] = (uint32_t)(x % RANGE);
        }
        memset(out, 0, sizeof *out * ranks);
        for (int i = 0; i < own; i++)
            out[keys[i] / each]++;
        MPI_Ialltoall(out, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD, &request);
        quietly(1, &request);
        from[0] = to[0] = 0;
        for (int i = 0; i < ranks; i++)
            from[i + 1] = from[i] + out[i], to[i + 1] = to[i] + in[i];
        memset(out, 0, sizeof *out * ranks);
        for (int i = 0; i < own; i++) {
            int bucket = keys[i] / each;
            sent[from[bucket] + out[bucket]++] = keys[i];
        }
        MPI_Ialltoallv(sent, out, from, MPI_UINT32_T, got, in, to, MPI_UINT32_T, MPI_COMM_WORLD, &request);
        quietly(1, &request);
        memset(counts, 0, sizeof *counts * RANGE);
        for (int i = 0; i < to[ranks]; i++)
            counts[got[i]]++;
        double part = 0;
        for (int key = rank * each; key < (rank + 1) * each; key++)
            part += (double)counts[key] * counts[key] * (key % 7 + 1);
        checked += sum(part);
    }
    return checked;
}

static double conjugate_gradients(void)
{
    enum { SIZE = 1 << 14, BAND = 24, STEPS = 25 };
    int own = SIZE / ranks, first = rank * own;
    double *x = calloc(own, sizeof *x), *r = malloc(sizeof *r * own), *p = malloc(sizeof *p * own);
    double *q = malloc(sizeof *q * own), *all = malloc(sizeof *all * SIZE);
    double rho = 0;
    for (int i = 0; i < own; i++)
        r[i] = p[i] = 1.0 + 0.001 * ((first + i) % 17), rho += r[i] * r[i];
    rho = sum(rho);
    for (int step = 0; step < STEPS; step++) {
        MPI_Request request;
        MPI_Iallgather(p, own, MPI_DOUBLE, all, own, MPI_DOUBLE, MPI_COMM_WORLD, &request);
        quietly(1, &request);
        double pq = 0;
        for (int i = 0; i < own; i++) {
            int row = first + i;
            double value = 60.0 * all[row];
            for (int k = 1; k <= BAND; k++) { /* far columns, so that everybody needs the whole vector */
                value -= all[(row + k * 337) % SIZE] / k;
                value -= all[(row + SIZE - k * 337) % SIZE] / k;
            }
            q[i] = value;
            pq += p[i] * q[i];
        }
        double alpha = rho / sum(pq), next = 0;
        for (int i = 0; i < own; i++)
            x[i] += alpha * p[i], r[i] -= alpha * q[i], next += r[i] * r[i];
        next = sum(next);
        for (int i = 0; i < own; i++)
            p[i] = r[i] + next / rho * p[i];
        rho = next;
    }
    double total = 0;
    for (int i = 0; i < own; i++)
        total += x[i];
    return sum(total);
}

static void borders(double *row, int own)
{
    MPI_Request requests[4];
    int left = rank ? rank - 1 : MPI_PROC_NULL, right = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    row[0] = row[own + 1] = 0;
    MPI_Irecv(row, 1, MPI_DOUBLE, left, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(row + own + 1, 1, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(row + own, 1, MPI_DOUBLE, right, 0, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(row + 1, 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &requests[3]);
    quietly(4, requests);
}

static void smooth(double *u, const double *f, int own, double *kept, int times)
{
    for (int time = 0; time < times; time++) {
        borders(u, own);
        for (int i = 1; i <= own; i++)
            kept[i] = u[i] + 0.6667 * (0.5 * (u[i - 1] + u[i + 1] + f[i]) - u[i]);
        memcpy(u + 1, kept + 1, sizeof *u * own);
    }
}

static void cycle(double *u, double *f, int own, int level)
{
    double *kept = malloc(sizeof *kept * (own + 2));
    smooth(u, f, own, kept, 2);
    if (level > 0) {
        int half = own / 2;
        double *e = calloc(half + 2, sizeof *e), *g = malloc(sizeof *g * (half + 2));
        borders(u, own);
        for (int i = 1; i <= own; i++)
            kept[i] = f[i] - (2.0 * u[i] - u[i - 1] - u[i + 1]);
        for (int i = 1; i <= half; i++)
            g[i] = 2.0 * (kept[2 * i - 1] + kept[2 * i]);
        cycle(e, g, half, level - 1);
        for (int i = 1; i <= own; i++)
            u[i] += 0.5 * e[(i + 1) / 2];
        free(e);
        free(g);
    }
    smooth(u, f, own, kept, 2);
    free(kept);
}

static double multigrid(void)
{
    enum { SIZE = 1 << 19, LEVELS = 12, CYCLES = 3 };
    int own = SIZE / ranks;
    double *u = calloc(own + 2, sizeof *u), *f = malloc(sizeof *f * (own + 2));
    for (int i = 1; i <= own; i++)
        f[i] = sin(0.001 * (rank * own + i));
    for (int i = 0; i < CYCLES; i++)
        cycle(u, f, own, LEVELS);
    double total = 0;
    for (int i = 1; i <= own; i++)
        total += u[i] * u[i];
    return sum(total);
}

static double transposed(void)
{
    enum { SIDE = 512, ROUNDS = 4 };
    int own = SIDE / ranks;
    double *a = malloc(sizeof *a * own * SIDE), *b = malloc(sizeof *b * own * SIDE), *c = malloc(sizeof *c * own * SIDE);
    for (int i = 0; i < own * SIDE; i++)
        a[i] = (double)((rank * own * SIDE + i) % 1013);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request request;
        for (int i = 0; i < own; i++) /* a pass over each row: differences at all distances that are powers of two */
            for (int step = 1; step < SIDE; step *= 2)
                for (int j = 0; j < SIDE; j++)
                    c[i * SIDE + j] = 0.5 * (a[i * SIDE + j] + a[i * SIDE + (j ^ step)]), a[i * SIDE + j] = c[i * SIDE + j];
        for (int to = 0; to < ranks; to++)
            for (int i = 0; i < own; i++)
                for (int j = 0; j < own; j++)
                    b[(to * own + j) * own + i] = a[i * SIDE + to * own + j];
        MPI_Ialltoall(b, own * own, MPI_DOUBLE, c, own * own, MPI_DOUBLE, MPI_COMM_WORLD, &request);
        quietly(1, &request);
        for (int from = 0; from < ranks; from++)
            for (int j = 0; j < own; j++)
                for (int i = 0; i < own; i++)
                    a[j * SIDE + from * own + i] = c[(from * own + j) * own + i];
    }
    double total = 0;
    for (int i = 0; i < own; i++)
        for (int j = 0; j < SIDE; j++)
            total += a[i * SIDE + j] * (1 + (rank * own + i) % 5 + j % 3);
    return sum(total);
}

int main(int count, char **words)
{
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    struct {
        const char *name;
        double (*run)(void);
    } kernels[] = {{"is", integer_sort}, {"cg", conjugate_gradients}, {"mg", multigrid}, {"ft", transposed}};
    for (int i = 0; i < 4; i++)
        if (count > 1 && !strcmp(words[1], kernels[i].name)) {
            (void)kernels[i].run(); /* connections are made, memory is there */
            double begun = MPI_Wtime(), checked = kernels[i].run();
            if (!rank)
                printf("%s %d %.4f %.9g\n", kernels[i].name, ranks, MPI_Wtime() - begun, checked);
        }
    MPI_Finalize();
    return 0;
}
