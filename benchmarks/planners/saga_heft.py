"""SAGA's HEFT on a graph from standard input; runs in an environment that has anrg-saga and nothing of Tradewind."""

import json
import sys
import time

from saga import Network, TaskGraph
from saga.schedulers import HeftScheduler

given = json.load(sys.stdin)
network = Network.create(
    [tuple(node) for node in given["nodes"]],
    [(a[0], b[0], 1.0) for a in given["nodes"] for b in given["nodes"] if a[0] < b[0]],
)
graph = TaskGraph.create([tuple(task) for task in given["tasks"]], [(a, b, 0.0) for a, b in given["edges"]])
begin = time.process_time()
schedule = HeftScheduler().schedule(network, graph)
print(json.dumps({"makespan": schedule.makespan, "seconds": time.process_time() - begin}))
