// A plan in SimGrid: every task an execution on its host, waiting for its parents and for the task before it there.
// Reads lines that run.py writes, and prints makespan, seconds of building and seconds of running.
#include <simgrid/s4u.hpp>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

int main(int argc, char** argv)
{
  sg4::Engine engine(&argc, argv);
  std::ifstream in(argv[1]);
  size_t tasks, hosts, edges;
  in >> tasks >> hosts >> edges;
  std::vector<double> speed(hosts), work(tasks);
  std::vector<size_t> where(tasks), from(edges), to(edges);
  for (auto& each : speed)
    in >> each;
  for (size_t task = 0; task < tasks; task++)
    in >> where[task] >> work[task];
  for (size_t edge = 0; edge < edges; edge++)
    in >> from[edge] >> to[edge];

  auto begin = std::chrono::steady_clock::now();
  auto* zone = sg4::create_full_zone("zone");
  std::vector<sg4::Host*> machines;
  for (size_t host = 0; host < hosts; host++)
    machines.push_back(zone->create_host("host-" + std::to_string(host), speed[host] * 1e9));
  zone->seal();
  std::vector<sg4::ExecPtr> executions;
  for (size_t task = 0; task < tasks; task++)
    executions.push_back(sg4::Exec::init()->set_name(std::to_string(task))->set_flops_amount(work[task] * 1e9));
  for (size_t edge = 0; edge < edges; edge++)
    executions[from[edge]]->add_successor(executions[to[edge]]);
  for (size_t task = 0; task < tasks; task++)
    executions[task]->set_host(machines[where[task]]);
  for (auto& each : executions)
    each->vetoable_start();
  auto built = std::chrono::steady_clock::now();
  engine.run();
  auto end = std::chrono::steady_clock::now();
  std::printf("%.9f %.9f %.9f\n", sg4::Engine::get_clock(), std::chrono::duration<double>(built - begin).count(),
              std::chrono::duration<double>(end - built).count());
  return 0;
}
