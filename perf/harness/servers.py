"""The servers of a study: started for one run, pinned, counted, ended by their own pid.

Each listens on 127.0.0.1 only and dies with this process: a spinning server that outlives a study
spoils every later measurement on the machine.
"""
import ctypes
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request

from .arrivals import read_pairs

PERF = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(PERF, 'build')
RIVALS = os.path.join(PERF, 'rivals')

START_LIMIT_S = 5
PR_SET_PDEATHSIG = 1
PAGE_FIELDS = ('requests', 'connections', 'first_recv_ns', 'last_recv_ns', 'chunks', 'pace_slips',
               'send_faults', 'recorded', 'events')    # struct page in rivals/common.h
ENTRY_BYTES = 16            # struct arrival in rivals/fastserver.c, struct truth in sseserver.c

_libc = ctypes.CDLL(None)


class Server:
    """One started server. `counts()` is what it has seen so far; use it as a context manager."""

    def __init__(self, name, port, core, life_s):
        self.name, self.port, self.core, self.life_s = name, port, core, life_s
        self.folder = tempfile.TemporaryDirectory(prefix='perf-', dir=shared_memory())
        self.page = os.path.join(self.folder.name, 'page')
        self.process = None

    def __enter__(self):
        refuse_taken_port(self.port)
        with open(os.path.join(self.folder.name, 'stderr'), 'wb') as err:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL,
                                            stdout=err, stderr=err, preexec_fn=self._in_child)
        try:
            self._wait_until_it_accepts()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()

    def _in_child(self):
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.sched_setaffinity(0, {self.core})

    def _wait_until_it_accepts(self):
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                with open(os.path.join(self.folder.name, 'stderr')) as err:
                    raise SystemExit(f'{self.name} ended with {self.process.returncode}: '
                                     f'{err.read().strip()}')
            try:
                socket.create_connection(('127.0.0.1', self.port), 0.2).close()
                return
            except OSError:
                time.sleep(0.01)
        raise SystemExit(f'{self.name} does not listen on port {self.port}')

    def counts(self):
        with open(self.page, 'rb') as page:
            words = struct.unpack(f'<{len(PAGE_FIELDS)}Q', page.read(8 * len(PAGE_FIELDS)))
        return dict(zip(PAGE_FIELDS, words))

    def cpu_s(self):
        return cpu_s_of(self.process.pid)


def cpu_s_of(pid):
    """CPU seconds of all threads of a process, from the scheduler's clock in ns."""
    total = 0
    for task in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{task}/schedstat') as stat:
            total += int(stat.read().split()[0])
    return total / 1e9


class Fast(Server):
    """rivals/fastserver.c, spinning."""
    body_bytes = 100

    def command(self):
        return [os.path.join(BUILD, 'fastserver'), '-s', '-S', self.page, '-p', str(self.port),
                '-b', str(self.body_bytes), '-t', str(self.life_s)]


class Fast700(Fast):
    body_bytes = 700


class Recorder(Fast):
    """The fast endpoint, writing down when each `every`-th request came."""

    def __init__(self, port, core, life_s, entries, every=1):
        super().__init__('recorder', port, core, life_s)
        self.record = os.path.join(self.folder.name, 'record')
        self.entries, self.every = entries, every

    def command(self):
        return [*super().command(), '-r', self.record, '-n', str(self.entries),
                '-k', str(self.every)]

    def arrivals(self):
        """The entries so far: (kernel stamps, instants after recv) in ns."""
        with open(self.record, 'rb') as record:
            return read_pairs(record.read(self.counts()['recorded'] * ENTRY_BYTES))


class Streams(Server):
    """rivals/sseserver.c, with these flags of its pace; `has_truth`: it writes its instants down."""

    def __init__(self, port, core, life_s, flags, has_truth):
        super().__init__('sseserver', port, core, life_s)
        self.record = os.path.join(self.folder.name, 'truth')
        self.flags, self.has_truth = flags, has_truth

    def command(self):
        return [os.path.join(BUILD, 'sseserver'), '-S', self.page, '-p', str(self.port),
                '-t', str(self.life_s), *self.flags,
                *(['-T', self.record] if self.has_truth else [])]

    def truth(self):
        """The entries so far: (instants in ns, words of serial and chunk); see struct truth."""
        if not self.has_truth:
            return [], []
        with open(self.record, 'rb') as record:
            return read_pairs(record.read(self.counts()['recorded'] * ENTRY_BYTES))


class Nginx(Server):
    """nginx with `return 200`, one process, which counts with stub_status."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.questions = 0

    def command(self):
        conf = os.path.join(self.folder.name, 'nginx.conf')
        with open(os.path.join(RIVALS, 'nginx.conf')) as template, open(conf, 'w') as out:
            out.write(template.read().replace('PORT', str(self.port)))
        return [find_nginx(), '-p', self.folder.name, '-e', 'stderr', '-c', conf]

    def counts(self):
        url = f'http://127.0.0.1:{self.port}/count'
        with urllib.request.urlopen(url, timeout=5) as answer:
            requests = int(re.search(r'requests\s+\d+ \d+ (\d+)', answer.read().decode())[1])
        self.questions += 1         # stub_status counts the question, too
        return dict.fromkeys(PAGE_FIELDS, 0) | {'requests': requests - self.questions}


SERVERS = {'fast': Fast, 'fast700': Fast700, 'nginx': Nginx}


def find_nginx():
    return shutil.which('nginx') or shutil.which('nginx', path='/usr/sbin:/usr/local/sbin')


def shared_memory():
    """Where the counter pages lie: in memory, so that no disk write falls into a run."""
    return '/dev/shm' if os.access('/dev/shm', os.W_OK) else None


def refuse_taken_port(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(('127.0.0.1', port))
        except OSError as error:
            raise SystemExit(f'port {port} is taken ({error}); choose others with --port') from None
