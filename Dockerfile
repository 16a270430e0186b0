# Stepmark's launcher, made by `make install` from requirements.lock. To build and run it: docs/how-to/one_gpu_machine.md.
# MaxText's and NeMo's environments are made by the first run that needs them, in the volume $STEPMARK_HOME.

# MaxText needs Python 3.12 or 3.13. Pin the image by its digest to build the same image next year.
ARG BASE=docker.io/library/python:3.12-slim-bookworm
FROM ${BASE}

# python3.11, in addition to the image's own, and its headers: NeMo's CPU build needs them. g++: PyTorch compiles kernels
# with it. Add further packages here, such as slurm-client.
ARG PACKAGES="g++ make python3.11 python3.11-dev"
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ${PACKAGES} \
    && rm -rf /var/lib/apt/lists/*

COPY . /opt/stepmark
RUN PIP_NO_CACHE_DIR=1 make -C /opt/stepmark install

# Any user may write here: `docker run --user "$(id -u):$(id -g)"` makes files in mounted folders yours.
# uv links environments to its cache, so both are in one volume. USER names those who have no name in the image.
RUN install -d -m 1777 /stepmark /work /work/results
ENV HOME=/stepmark STEPMARK_HOME=/stepmark UV_CACHE_DIR=/stepmark/uv USER=stepmark \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /work
USER 1000:1000

ENTRYPOINT ["/opt/stepmark/.venv/bin/stepmark"]
CMD ["--help"]
