#!/usr/bin/env python3
"""Runs llama.cpp's HTTP server on 127.0.0.1 until SIGTERM, SIGINT, or the end of its parent.

    serve.py MODEL.gguf PORT

Four answers at a time, one compute thread, the page /metrics. Prints a line when it listens.
Needs xllamacpp.
"""
import ctypes
import signal
import sys

import xllamacpp

PR_SET_PDEATHSIG = 1
ENDS = {signal.SIGTERM, signal.SIGINT}


def settings(model, port):
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {'tiny'}        # else it is called by its path
    params.hostnames = ['127.0.0.1']
    params.port = port
    params.n_ctx = 8192         # shared by the slots: 2048 tokens a request
    params.n_parallel = 4
    params.cpuparams.n_threads = 1
    params.warmup = False
    params.endpoint_metrics = True
    return params


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    # Before the server starts its threads, which inherit it: so only `sigwait` sees these signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
    server = xllamacpp.Server(settings(sys.argv[1], int(sys.argv[2])))
    print('listening on', server.listening_address, flush=True)
    signal.sigwait(ENDS)


if __name__ == '__main__':
    main()
