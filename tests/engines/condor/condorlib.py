"""Programs that behave like HTCondor's: they keep a pool in a folder and really run the jobs, as processes.

No package has HTCondor's daemons. A job has a starter, a process of its own, which does what schedd, shadow, startd and
starter do together: it waits for a slot, transfers files, runs the job, limits, holds, evicts or removes it, and writes
the event log. Every program first sees to jobs whose starter was killed, as the schedd does when a machine is lost.

Only the standard library is used, and little of it: the programs have to start quickly.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

IDLE, RUNNING, REMOVED, COMPLETED, HELD = 1, 2, 3, 4, 5
CONFIG: dict[str, Any] = {
    "slots": 6,
    "no_match": "",  # what the negotiator says of each job, and gives none a machine
    "down": False,  # the schedd does not answer
    "deny": False,  # it does not let us
    "slow": {},  # program -> seconds before it does anything
    "hang": {},  # program -> seconds after it has done its work, before it says so
    "max_jobs": None,  # MAX_JOBS_PER_OWNER
    "images": ["debian:12"],
    "transfer": "",  # "input" or "output": that transfer fails
    "memory": True,  # machines enforce the memory that jobs have asked for
    "events": True,  # event logs are written
    "garbage": False,  # condor_q says something else
    "chirp": True,  # machines have condor_chirp
}

Job = dict[str, Any]


class Pool:
    """A pool that lives in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("jobs", "history", "slots", "execute"):
            (folder / name).mkdir(exist_ok=True)

    @property
    def config(self) -> dict[str, Any]:
        try:
            return {**CONFIG, **json.loads((self.folder / "config.json").read_text())}
        except (OSError, ValueError):
            return CONFIG

    @contextmanager
    def alone(self) -> Iterator[None]:
        with (self.folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def file(self, name: str) -> Path:
        return self.folder / "jobs" / f"{name}.json"

    def load(self, name: str) -> Job | None:
        try:
            found: Job = json.loads(self.file(name).read_text())
        except (OSError, ValueError):
            return None
        return found

    def save(self, job: Job) -> None:
        part = self.file(job["name"]).with_suffix(".part")
        part.write_text(json.dumps(job))
        part.replace(self.file(job["name"]))

    def jobs(self, where: str = "jobs") -> list[Job]:
        files = (self.folder / where).glob("*.json")
        found = []
        for file in sorted(files, key=lambda f: [int(n) for n in f.stem.split(".")]):
            try:
                found.append(json.loads(file.read_text()))
            except (OSError, ValueError):
                continue
        return found

    def set_state(self, job: Job, state: int, **changes: Any) -> None:
        job["ad"].update(JobStatus=state, EnteredCurrentStatus=int(time.time()), **changes)
        self.save(job)

    def leave(self, job: Job) -> None:
        """The job goes to the history."""
        (self.folder / "history" / f"{job['name']}.json").write_text(json.dumps(job))
        self.file(job["name"]).unlink(missing_ok=True)

    def event(self, job: Job, number: int, words: str, *lines: str) -> None:
        if not self.config["events"]:
            return
        cluster, process = job["name"].split(".")
        when = time.strftime("%Y-%m-%d %H:%M:%S")
        text = f"{number:03d} ({int(cluster):03d}.{int(process):03d}.000) {when} {words}\n"
        text += "".join(f"\t{line}\n" for line in lines) + "...\n"
        try:
            with Path(job["log"]).open("a") as file:
                file.write(text)
        except OSError:
            pass

    def tick(self) -> None:
        """What the schedd does about jobs whose machine was lost."""
        for job in self.jobs():
            if job["ad"]["JobStatus"] not in (IDLE, RUNNING) or alive(job["starter"]):
                continue
            kill_family(job)
            if job["ad"]["JobStatus"] == RUNNING:
                self.event(job, 22, "Job disconnected, attempting to reconnect")
                self.event(job, 24, "Job reconnection failed", "Job not found at execution machine")
                self.set_state(job, IDLE)
            if evaluate(job["periodic_remove"], job["ad"]):
                self.remove(job, "The job attribute PeriodicRemove expression evaluated to TRUE")
            else:
                spawn(self, job)

    def remove(self, job: Job, reason: str) -> None:
        self.event(job, 9, "Job was aborted.", reason)
        job["ad"]["RemoveReason"] = reason
        self.set_state(job, REMOVED)
        self.leave(job)

    def hold(self, job: Job, reason: str, code: int, subcode: int = 0) -> None:
        self.event(job, 12, "Job was held.", reason, f"Code {code} Subcode {subcode}")
        self.set_state(job, HELD, HoldReason=reason, HoldReasonCode=code, HoldReasonSubCode=subcode)


# -- processes -------------------------------------------------------------------------------------------------------


def ticks(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text()
    return int(text.rpartition(")")[2].split()[19])


def alive(who: list[int] | None) -> bool:
    if not who:
        return False
    try:
        text = Path(f"/proc/{who[0]}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return int(text[19]) == who[1] and text[0] != "Z"


def family(job: Job) -> list[int]:
    """The processes of a job: they have its tag in their environment."""
    tag = f"_CONDOR_TAG={job['tag']}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if tag in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def kill_family(job: Job) -> None:
    for _ in range(100):
        members = family(job)
        if not members:
            return
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def resident(job: Job) -> int:
    total = 0
    for pid in family(job):
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            continue
    return total


# -- expressions -----------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r'\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_][\w.]*)|'
    r"(?P<sign>=\?=|=!=|==|!=|<=|>=|&&|\|\||[()<>!+*/-]))"
)


class Undefined:
    """The value that is neither true nor false."""

    def __bool__(self) -> bool:
        return False

    def _no(self, other: object) -> bool:
        return False

    __lt__ = __le__ = __gt__ = __ge__ = _no

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Undefined)

    __hash__ = None  # type: ignore[assignment]


def python_of(expression: str) -> str:
    signs = {"&&": " and ", "||": " or ", "=?=": "==", "=!=": "!=", "!": " not "}
    words, place = [], 0
    expression = expression.strip()
    while place < len(expression):
        found = _TOKEN.match(expression, place)
        if not found:
            raise SyntaxError(expression[place:])
        place = found.end()
        if found["text"]:
            words.append(repr(json.loads(found["text"])))
        elif found["number"]:
            words.append(found["number"])
        elif found["name"]:
            name = found["name"].lower()
            known = {"true": "True", "false": "False", "undefined": "undefined", "time": "time"}
            words.append(known.get(name, f"look({name!r})"))
        else:
            words.append(signs.get(found["sign"], found["sign"]))
    return "".join(words)


def evaluate(expression: str, ad: dict[str, Any]) -> bool:
    if not expression:
        return False
    low = {name.lower(): value for name, value in ad.items()}
    undefined = Undefined()
    names = {"look": lambda name: low.get(name, undefined), "undefined": undefined, "time": time.time}
    return bool(eval(python_of(expression), {"__builtins__": {}}, names))


# -- the submit description ------------------------------------------------------------------------------------------


class SubmitError(Exception):
    """What condor_submit complains of."""


def expand(value: str) -> str:
    return re.sub(r"\$\((\w+)\)", lambda m: "$" if m[1].upper() == "DOLLAR" else "", value)


def arguments_of(value: str) -> list[str]:
    """The new syntax: in double quotes; in it, two of them are one, and single quotes keep blanks."""
    if len(value) < 2 or value[0] != '"' or value[-1] != '"':
        return value.split()
    inner = value[1:-1]
    if '"' in inner.replace('""', ""):
        raise SubmitError("ERROR: Failed to parse arguments: Illegal unescaped double-quote")
    inner = inner.replace('""', '"')
    words: list[str] = []
    word, inside, started, place = "", False, False, 0
    while place < len(inner):
        c = inner[place]
        if c == "'":
            if inside and inner[place + 1 : place + 2] == "'":
                word += "'"
                place += 1
            else:
                inside, started = not inside, True
        elif c in " \t" and not inside:
            if word or started:
                words.append(word)
            word, started = "", False
        else:
            word += c
            started = True
        place += 1
    if inside:
        raise SubmitError("ERROR: Failed to parse arguments: Unbalanced quote starting here")
    return [*words, word] if word or started else words


def parse(text: str) -> list[dict[str, str]]:
    """The commands that hold at each queue statement."""
    found: list[dict[str, str]] = []
    commands: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.lower() == "queue":
            found.append(dict(commands))
            continue
        name, sign, value = line.partition("=")
        if not sign or not re.fullmatch(r"\+?[\w.]+", name.strip()):
            raise SubmitError(f"ERROR: Failed to parse command file (line {number}).")
        commands[name.strip().lower() if not name.startswith("+") else name.strip()] = expand(value.strip())
    if not found:
        raise SubmitError("ERROR: no 'queue' statement")
    return found


def job_of(commands: dict[str, str], name: str) -> Job:
    ad: dict[str, Any] = {}
    for key, value in commands.items():
        if key.startswith("+"):
            ad[key[1:]] = json.loads(value) if value[:1] in '"tf' else float(value) if "." in value else int(value)
    for key in ("requirements", "periodic_remove", "periodic_hold"):
        try:
            compile(python_of(commands.get(key, "true")), key, "eval")
        except (SyntaxError, ValueError) as error:
            raise SubmitError(f"ERROR: Parse error in expression: {key} = {commands[key]} ({error})") from None
    place = Path(commands["initialdir"])
    if not place.is_dir():
        raise SubmitError(f"ERROR: No such directory: {place}")
    inputs = [each.strip() for each in commands.get("transfer_input_files", "").split(",") if each.strip()]
    for each in inputs:
        if not (place / each).exists():
            raise SubmitError(f'ERROR: Can\'t open "{place / each}" with flags 00 (No such file or directory)')
    cluster, process = (int(part) for part in name.split("."))
    now = int(time.time())
    ad.update(
        ClusterId=cluster, ProcId=process, JobStatus=IDLE, QDate=now, EnteredCurrentStatus=now, NumJobStarts=0,
        RequestCpus=int(commands.get("request_cpus", 1)), RequestMemory=int(commands.get("request_memory", 128)),
    )  # fmt: skip
    docker = commands.get("universe") == "docker"
    if docker and not commands.get("docker_image"):
        raise SubmitError("ERROR: docker jobs require a docker_image")
    return {
        "name": name,
        "tag": f"{name}-{time.time_ns()}",
        "starter": None,
        "ad": ad,
        "argv": [commands["executable"], *arguments_of(commands.get("arguments", ""))],
        "iwd": str(place),
        "log": str(place / commands["log"]),
        "out": str(place / commands["output"]),
        "err": str(place / commands["error"]),
        "transfer": commands.get("should_transfer_files", "YES").upper() == "YES",
        "inputs": inputs,
        "outputs": [each.strip() for each in commands.get("transfer_output_files", "").split(",") if each.strip()],
        "requirements": commands.get("requirements", "true"),
        "periodic_remove": commands.get("periodic_remove", ""),
        "periodic_hold": commands.get("periodic_hold", ""),
        "hold_reason": commands.get("periodic_hold_reason", "").strip('"'),
        "vacate": max(0.5, float(commands.get("job_max_vacate_time", 0))),
        "longest": float(commands.get("allowed_execute_duration", 0)) or None,
        "image": commands.get("docker_image") if docker else None,
    }


# -- the starter -----------------------------------------------------------------------------------------------------


def spawn(pool: Pool, job: Job) -> None:
    """Give a job a starter, a process that nobody waits for; the caller holds the lock of the pool."""
    child = os.fork()
    if child:
        job["starter"] = [child, ticks(child)]
        pool.save(job)
        return
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        os.closerange(3, 256)
        Starter(pool, job["name"]).run()
    finally:
        os._exit(0)


class Starter:
    """Sees one job through."""

    def __init__(self, pool: Pool, name: str) -> None:
        self.pool, self.name = pool, name
        self.slot: Any = None

    def order(self, what: str) -> bool:
        """True once, when somebody has ordered something."""
        mark = self.pool.folder / "jobs" / f"{self.name}.{what}"
        if mark.exists():
            mark.unlink(missing_ok=True)
            return True
        return False

    def run(self) -> None:
        pool = self.pool
        while True:
            with pool.alone():
                job = pool.load(self.name)
                if job is None:
                    return None
                if self.order("rm"):
                    return pool.remove(job, "via condor_rm (by user test)")
                if evaluate(job["periodic_remove"], job["ad"]):
                    return pool.remove(job, "The job attribute PeriodicRemove expression evaluated to TRUE")
                if refusal := pool.config["no_match"]:
                    job["ad"].update(LastRejMatchReason=refusal, LastRejMatchTime=int(time.time()))
                    pool.save(job)
            if not refusal and evaluate(job["requirements"], job["ad"]) and self.take_slot():
                return self.go(job)
            time.sleep(0.02)

    def take_slot(self) -> bool:
        for number in range(self.pool.config["slots"]):
            file = (self.pool.folder / "slots" / str(number)).open("a")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                continue
            self.slot = file
            return True
        return False

    def hold(self, job: Job, reason: str, code: int, subcode: int = 0) -> None:
        with self.pool.alone():
            self.pool.hold(job, reason, code, subcode)

    def go(self, job: Job) -> None:
        """Run it."""
        import shutil  # it takes a while, and most programs do not need it

        pool, config = self.pool, self.pool.config
        where = "slot1@machine"
        scratch = pool.folder / "execute" / f"dir_{os.getpid()}"
        if job["image"] is not None and job["image"] not in config["images"]:
            return self.hold(job, f"Error from {where}: Cannot start container: invalid image name: {job['image']}", 35)
        if job["transfer"]:
            scratch.mkdir()
            try:
                if config["transfer"] == "input":
                    raise OSError(2, "No such file or directory")
                for each in job["inputs"]:
                    shutil.copy2(Path(job["iwd"]) / each, scratch / each)
            except OSError as error:
                why = f"Transfer input files failure at the access point: {error.strerror}"
                return self.hold(job, f"Error from {where}: {why}", 13, error.errno or 0)
        elif not Path(job["iwd"]).is_dir():
            return self.hold(job, f"Cannot access initial working directory {job['iwd']}: No such file", 14, 2)
        out = scratch / "_condor_stdout" if job["transfer"] else Path(job["out"])
        err = scratch / "_condor_stderr" if job["transfer"] else Path(job["err"])
        with pool.alone():
            job["ad"]["NumJobStarts"] += 1
            pool.set_state(job, RUNNING, JobCurrentStartExecutingDate=int(time.time()))
            child = os.fork()
            if child == 0:
                self.become(job, scratch if job["transfer"] else Path(job["iwd"]), out, err)
            pool.event(job, 1, "Job executing on host: <127.0.0.1:9618>", f"SlotName: {where}")
        self.watch(job, child, scratch)
        shutil.rmtree(scratch, ignore_errors=True)
        return None

    def become(self, job: Job, place: Path, out: Path, err: Path) -> None:
        try:
            os.setsid()
            os.chdir(place)
            cpus = sorted(os.sched_getaffinity(0))[: job["ad"]["RequestCpus"]]
            os.sched_setaffinity(0, cpus)  # ASSIGN_CPU_AFFINITY
            for fd, file in ((1, out), (2, err)):
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), fd)
            os.closerange(3, 256)
            pool_config = self.pool.config
            environment = {"_CONDOR_TAG": job["tag"], "_CONDOR_SCRATCH_DIR": str(place), "PATH": os.environ["PATH"]}
            if job["ad"].get("WantIOProxy") and pool_config["chirp"]:  # its LIBEXEC, and where the shadow is
                environment["PATH"] += f":{bin_of(self.pool)}"
                environment["_TEST_IWD"] = job["iwd"]
            os.execve(job["argv"][0], job["argv"], environment)
        finally:
            os._exit(125)

    def watch(self, job: Job, child: int, scratch: Path) -> None:
        pool, began = self.pool, time.monotonic()
        most = 0
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                kill_family(job)
                return self.ended(job, status, most, scratch)
            used = resident(job)
            most = max(most, used)
            job["ad"]["MemoryUsage"] = -(-most // 2**20)
            over = job["longest"] is not None and time.monotonic() > began + job["longest"]
            orders = {what: self.order(what) for what in ("rm", "evict", "hold")}
            then = self.verdict(job, used, over=over)
            soft = then is None and (orders["rm"] or orders["evict"])
            if orders["hold"]:
                then = then or partial(pool.hold, job, "via condor_hold (by user test)", 1)
            elif orders["rm"]:
                then = then or partial(pool.remove, job, "via condor_rm (by user test)")
            elif orders["evict"]:
                then = then or partial(self.evicted, job)
            if then is not None:
                return self.stop(job, child, then, soft=soft)
            time.sleep(0.02)

    def verdict(self, job: Job, used: int, *, over: bool) -> Callable[[], None] | None:
        """What the pool does about a job of its own accord, or None."""
        pool, limit = self.pool, job["ad"]["RequestMemory"] * 2**20
        if pool.config["memory"] and used > limit:
            words = f"Job has gone over cgroup memory limit of {limit // 2**20} megabytes. Last measured usage: "
            words += f"{used // 2**20} megabytes.  Consider resubmitting with a higher request_memory."
            return partial(pool.hold, job, f"Error from slot1@machine: {words}", 34)
        if evaluate(job["periodic_hold"], job["ad"]):
            return partial(pool.hold, job, job["hold_reason"], 3)
        if over:
            words = f"The job exceeded allowed execute duration of {job['longest']:g}"
            return partial(pool.hold, job, words, 47)
        if evaluate(job["periodic_remove"], job["ad"]):
            words = "The job attribute PeriodicRemove expression evaluated to TRUE"
            return partial(pool.remove, job, words)
        return None

    def stop(self, job: Job, child: int, then: Callable[[], None], *, soft: bool = False) -> None:
        if soft:
            os.kill(child, signal.SIGTERM)
            until = time.monotonic() + job["vacate"]
            while time.monotonic() < until:
                if os.waitpid(child, os.WNOHANG)[0]:
                    break
                time.sleep(0.02)
        kill_family(job)
        with self.pool.alone():
            then()

    def evicted(self, job: Job) -> None:
        self.pool.event(job, 4, "Job was evicted.", "(0) CPU times", "(0) Job was not checkpointed.")
        job["starter"] = None
        self.pool.set_state(job, IDLE)
        self.slot.close()
        spawn(self.pool, job)

    def ended(self, job: Job, status: int, most: int, scratch: Path) -> None:
        import shutil

        pool = self.pool
        with pool.alone():
            if job["transfer"]:
                try:
                    if pool.config["transfer"] == "output":
                        raise OSError(28, "No space left on device")
                    for each in job["outputs"]:
                        shutil.copy2(scratch / each, Path(job["iwd"]) / each)
                    shutil.copyfile(scratch / "_condor_stdout", job["out"])
                    shutil.copyfile(scratch / "_condor_stderr", job["err"])
                except OSError as error:
                    why = f"Transfer output files failure at the execution point: {error.strerror}"
                    return pool.hold(job, f"Error from slot1@machine: {why}", 12, error.errno or 0)
            by_signal = os.WIFSIGNALED(status)
            job["ad"].update(ExitBySignal=by_signal, CompletionDate=int(time.time()))
            if by_signal:
                job["ad"]["ExitSignal"] = os.WTERMSIG(status)
                how = f"(0) Abnormal termination (signal {os.WTERMSIG(status)})"
            else:
                job["ad"]["ExitCode"] = os.WEXITSTATUS(status)
                how = f"(1) Normal termination (return value {os.WEXITSTATUS(status)})"
            usage = "Usr 0 00:00:00, Sys 0 00:00:00  -  Total Remote Usage"
            memory = f"   Memory (MB)          :  {most // 2**20:8d} {job['ad']['RequestMemory']:8d}       128"
            if pool.config["events"]:
                size = (
                    f"{most // 2**20}  -  MemoryUsage of job (MB)",
                    f"{most // 1024}  -  ResidentSetSize of job (KB)",
                )
                pool.event(job, 6, f"Image size of job updated: {most // 1024}", *size)
                pool.event(job, 5, "Job terminated.", how, f"\t{usage}", "0  -  Run Bytes Sent By Job", memory)
            pool.set_state(job, COMPLETED)
            pool.leave(job)
            return None


# -- the programs ----------------------------------------------------------------------------------------------------


def fail(words: str) -> int:
    print(words, file=sys.stderr)
    return 1


def condor_submit(pool: Pool, words: list[str]) -> int:
    assert words[0] == "-terse"
    with pool.alone():
        number = int((pool.folder / "next").read_text()) if (pool.folder / "next").exists() else 1
        try:
            given = parse(Path(words[1]).read_text())
            jobs = [job_of(commands, f"{number}.{i}") for i, commands in enumerate(given)]
        except SubmitError as error:
            return fail(str(error))
        most = pool.config["max_jobs"]
        if most is not None and len(pool.jobs()) + len(jobs) > most:
            return fail("ERROR: Failed to create proc\nNumber of submitted jobs would exceed MAX_JOBS_PER_OWNER")
        (pool.folder / "next").write_text(str(number + 1))
        (pool.folder / "submits").open("a").write(f"{number} {len(jobs)}\n")
        for job in jobs:  # one transaction, as it were
            pool.save(job)
            pool.event(job, 0, "Job submitted from host: <127.0.0.1:9618?addrs=127.0.0.1-9618&alias=vm>")
        for job in jobs:
            spawn(pool, job)
    time.sleep(pool.config["hang"].get("condor_submit", 0))
    print(f"{number}.0 - {number}.{len(jobs) - 1}")
    return 0


def options(words: list[str]) -> dict[str, str]:
    found, left = {}, list(words)
    while left:
        name = left.pop(0)
        found[name] = "" if name in ("-json",) else left.pop(0)
    return found


def listed(pool: Pool, words: list[str], where: str) -> int:
    given = options(words)
    names = given["-attributes"].split(",")
    try:
        jobs = [job for job in pool.jobs(where) if evaluate(given.get("-constraint", "true"), job["ad"])]
    except SyntaxError as error:
        return fail(f"Error: could not parse constraint: {error}")
    if where == "history":
        jobs = jobs[::-1][: int(given.get("-limit", 10_000))]
    if jobs:
        ads = [{name: job["ad"][name] for name in names if name in job["ad"]} for job in jobs]
        print("[\n" + "\n,\n".join(json.dumps(ad) for ad in ads) + "\n]")
    return 0


def condor_q(pool: Pool, words: list[str]) -> int:
    if pool.config["garbage"]:
        print("-- Schedd: vm : <127.0.0.1>")
        return 0
    return listed(pool, words, "jobs")


def condor_history(pool: Pool, words: list[str]) -> int:
    return listed(pool, words, "history")


def condor_rm(pool: Pool, words: list[str]) -> int:
    given = options(words)
    with pool.alone():
        jobs = [job for job in pool.jobs() if evaluate(given["-constraint"], job["ad"])]
        for job in jobs:
            if job["ad"]["JobStatus"] in (IDLE, RUNNING):
                (pool.folder / "jobs" / f"{job['name']}.rm").touch()
            else:
                pool.remove(job, "via condor_rm (by user test)")
    if not jobs:
        return fail(f"Couldn't find/remove all jobs matching constraint ({given['-constraint']})")
    print(f"Jobs matching constraint ({given['-constraint']}) have been marked for removal")
    return 0


def bin_of(pool: Pool) -> Path:
    """A folder with condor_chirp only: jobs see no other program."""
    place = pool.folder / "libexec"
    if not place.exists():
        place.mkdir(exist_ok=True)
        with suppress(FileExistsError):
            (place / "condor_chirp").symlink_to(pool.folder.parent / "bin" / "condor_chirp")
    return place


def condor_chirp(pool: Pool, words: list[str]) -> int:
    """Put a file of the job into its folder at the access point; the words of the real one."""
    import shutil

    if words[:1] != ["put"] or len(words) != 3:
        return fail("Usage: condor_chirp put LocalFileName RemoteFileName")
    shutil.copyfile(words[1], Path(os.environ["_TEST_IWD"]) / words[2])
    return 0


def main(folder: str, program: str) -> int:
    """Run one of the programs."""
    pool = Pool(Path(folder))
    with (pool.folder / "calls").open("a") as calls:
        calls.write(f"{program}\n")
    config = pool.config
    time.sleep(config["slow"].get(program, 0))
    if program == "condor_chirp":
        return condor_chirp(pool, sys.argv[1:])
    if config["down"]:
        if program == "condor_submit":
            return fail("\nERROR: Can't find address of local schedd")
        return fail("-- Failed to fetch ads from: <127.0.0.1:9618?addrs=127.0.0.1-9618&alias=vm> : vm")
    if config["deny"] and program != "condor_history":
        return fail("ERROR: AUTHENTICATE:1003:Failed to authenticate with any method")
    if program != "condor_history":
        with pool.alone():
            pool.tick()
    done: int = globals()[program](pool, sys.argv[1:])
    return done
