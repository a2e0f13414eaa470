#!/usr/bin/env bash
# Builds the product, the rivals and the engines, then runs a study: see perf/README.md.
# PERF_BUILD names what is built (default: all of "product rivals engines"); `PERF_BUILD= perf/compare.sh`
# measures what is there.
set -euo pipefail
cd "$(dirname "$0")/.."

for part in ${PERF_BUILD-product rivals engines}; do
    case $part in
    product) cargo build --release --locked >&2 ;;
    engines) cargo build --release --locked --manifest-path perf/engines/Cargo.toml >&2 ;;
    rivals)
        mkdir -p perf/build
        for program in launch fastserver sseserver floorclient refsender; do
            case $program in
            floorclient) libraries=-luring ;;
            refsender) libraries=-lm ;;
            *) libraries= ;;
            esac
            "${CC:-cc}" -O2 -Wall -Wextra -o "perf/build/$program" "perf/rivals/$program.c" $libraries
        done
        ;;
    *) echo "PERF_BUILD: no part '$part'; there are product, rivals, engines" >&2 && exit 2 ;;
    esac
done
PYTHONPATH=perf PYTHONDONTWRITEBYTECODE=1 exec python3 -m harness "$@"
