# One image for web, worker, beat, watcher and the migration step: they differ in the command alone.
FROM python:3.13-slim AS build
WORKDIR /app
COPY requirements/base.txt requirements/base.txt
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --disable-pip-version-check --only-binary :all: \
       --require-hashes -r requirements/base.txt
COPY manage.py ./
COPY dev/__init__.py dev/messages.py dev/
COPY locale locale
COPY static static
COPY templates templates
COPY portal portal
COPY tenants tenants
COPY gpu gpu
COPY worker worker
RUN /venv/bin/python -m dev.messages compile && rm -r dev
# The settings of production ask for values; nothing of these stays in the image.
RUN PORTAL_ENV=production SECRET_KEY=for-this-step-only ALLOWED_HOSTS=localhost \
    DATABASE_URL=postgres://localhost/none REDIS_URL=redis://localhost/0 \
    /venv/bin/python manage.py collectstatic --no-input --verbosity 0
RUN /venv/bin/python -m compileall -q /app

FROM python:3.13-slim
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PORTAL_ENV=production DATA_DIR=/tmp/portal
COPY --from=build /venv /venv
COPY --from=build /app /app
WORKDIR /app
# A number, so that Kubernetes can see that it is not root.
USER 10001:10001
EXPOSE 8000
CMD ["gunicorn", "portal.wsgi", "--config", "python:portal.gunicorn_conf", "--bind", "0.0.0.0:8000", \
     "--workers", "2", "--threads", "8", "--worker-tmp-dir", "/dev/shm"]
