# syntax=docker/dockerfile:1
#
#   docker build -t echomq-pool .
#   docker run --rm -e REDIS_URL=redis://redis:6379/0 -v ./app:/app -v ./pool.toml:/etc/echomq-pool/pool.toml echomq-pool
#
# Your own image: FROM this one, copy your package to /app (it is on the path) and a pool.toml to
# /etc/echomq-pool/, install what your jobs need with pip.

FROM python:3.11-slim AS build
WORKDIR /src
RUN apt-get update \
 && apt-get install --yes --no-install-recommends binutils \
 && python -m venv /opt/echomq-pool
COPY pyproject.toml README.md LICENSE ./
COPY echomq_pool ./echomq_pool
COPY lua ./lua
COPY config ./config
# tzdata (the package) carries the time zones: the slim image has none.
RUN /opt/echomq-pool/bin/pip install --no-cache-dir --disable-pip-version-check ".[uvloop,titles]" \
 && /opt/echomq-pool/bin/pip uninstall --yes --quiet pip setuptools \
 && find /opt/echomq-pool -name tests -type d -prune -exec rm -rf {} + \
 && find /opt/echomq-pool -name '*.so' -exec strip --strip-unneeded {} +

FROM python:3.11-slim
COPY --from=build /opt/echomq-pool /opt/echomq-pool
RUN useradd --uid 10001 --no-create-home --home-dir /app --shell /usr/sbin/nologin pool \
 && mkdir -p /app /etc/echomq-pool /run/echomq-pool \
 && chown pool /app /run/echomq-pool
COPY config/container.toml /etc/echomq-pool/pool.toml
ENV PATH=/opt/echomq-pool/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONUNBUFFERED=1 \
    ECHOMQ_CONFIG=/etc/echomq-pool/pool.toml
WORKDIR /app
USER pool
# The pool reaps, forwards and drains as PID 1; no init is needed in front of it.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 CMD ["echomq-pool", "health"]
EXPOSE 8080
ENTRYPOINT ["echomq-pool"]
CMD ["--config", "/etc/echomq-pool/pool.toml"]
