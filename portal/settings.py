"""Settings of the portal, read from the environment.

PORTAL_ENV is `production` (the default), `demo` or `test`. Production has no default for a secret or an
address: what is missing ends the start with a sentence that names the variable.
"""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from urllib.parse import urlsplit

import django_stubs_ext
import environ
from django.core.exceptions import ImproperlyConfigured
from django.utils.csp import CSP
from django.utils.translation import gettext_lazy as _

from portal import logs

# Generic admin and manager classes can be subscripted at run time, too.
django_stubs_ext.monkeypatch()

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.Env()

PORTAL_ENV: str = env.str("PORTAL_ENV", default="production")
if PORTAL_ENV not in ("production", "demo", "test"):
    raise ImproperlyConfigured(f"PORTAL_ENV is {PORTAL_ENV!r}; use production, demo or test.")
PRODUCTION = PORTAL_ENV == "production"


def secret(name: str, default: str | None = None, *, optional: bool = False) -> str:
    """Read the secret `name` from NAME_FILE or NAME; `default` counts only outside production.

    Raises ImproperlyConfigured when its file cannot be read, or, unless it is `optional`, when it is set nowhere.
    """
    path = env.str(f"{name}_FILE", default="")
    if path:
        try:
            value = Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ImproperlyConfigured(f"{name}_FILE cannot be read: {error}") from error
    else:
        value = env.str(name, default="")
    if not value and default is not None and not PRODUCTION:
        value = default
    if not value and not optional:
        raise ImproperlyConfigured(f"Set {name} or {name}_FILE.")
    return value


def url(name: str, default: str, schemes: tuple[str, ...]) -> str:
    """Read the address `name` and check its scheme; `default` counts only outside production."""
    value = secret(name, default)
    if urlsplit(value).scheme not in schemes:
        raise ImproperlyConfigured(f"{name} must begin with one of {', '.join(s + '://' for s in schemes)}.")
    return value


DEBUG: bool = env.bool("DEBUG", default=False)
SECRET_KEY = secret("SECRET_KEY", default="not-a-secret-for-tests-and-demo-only-0123456789abcdefghijklmnop")
ALLOWED_HOSTS: list[str] = env.list(
    "ALLOWED_HOSTS", default=[] if PRODUCTION else ["127.0.0.1", "localhost", "testserver"]
)
CSRF_TRUSTED_ORIGINS: list[str] = env.list("CSRF_TRUSTED_ORIGINS", default=[])
TRUSTED_PROXIES: int = env.int("TRUSTED_PROXIES", default=0)
DATA_DIR = Path(env.str("DATA_DIR", default=str(BASE_DIR / ".data")))

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.humanize",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_htmx",
    "axes",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "tenants",
    "gpu",
]

MIDDLEWARE = [
    "portal.request_id.RequestIdMiddleware",
    "portal.health.ProbeMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "portal.middleware.SignedOutMiddleware",
    "portal.middleware.NoNulMiddleware",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "portal.urls"
WSGI_APPLICATION = "portal.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

DATABASES = {
    "default": {
        **environ.Env.db_url_config(
            url("DATABASE_URL", "postgres://postgres@127.0.0.1:5432/portal", ("postgres", "postgresql"))
        ),
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {"connect_timeout": 5, "application_name": "gpu-portal"},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = url("REDIS_URL", "redis://127.0.0.1:6379/0", ("redis", "rediss", "unix"))
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "portal",
        "OPTIONS": {"socket_connect_timeout": 1, "socket_timeout": 1},
    }
}

AUTH_USER_MODEL = "tenants.User"
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
if PORTAL_ENV == "test":  # the real one costs half a second a user
    PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "login"
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = 0.25  # hours
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_IPWARE_PROXY_COUNT = TRUSTED_PROXIES
AXES_LOCKOUT_TEMPLATE = "registration/locked.html"

SESSION_COOKIE_AGE = 60 * 60 * 12
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = LANGUAGE_COOKIE_SECURE = PRODUCTION
LANGUAGE_COOKIE_SAMESITE = "Lax"
SECURE_SSL_REDIRECT = PRODUCTION and env.bool("SECURE_SSL_REDIRECT", default=True)
SECURE_HSTS_SECONDS = 31536000 if PRODUCTION else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = PRODUCTION
SECURE_REFERRER_POLICY = "same-origin"
if TRUSTED_PROXIES:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
CSRF_FAILURE_VIEW = "portal.errors.csrf_failure"
X_FRAME_OPTIONS = "DENY"
SECURE_CSP = {
    "default-src": [CSP.SELF],
    "img-src": [CSP.SELF, "data:"],
    "object-src": [CSP.NONE],
    "base-uri": [CSP.NONE],
    "form-action": [CSP.SELF],
    "frame-ancestors": [CSP.NONE],
}

LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English")), ("de", _("German"))]
LOCALE_PATHS = [BASE_DIR / "locale"]
USE_I18N = USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if PRODUCTION
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
WHITENOISE_USE_FINDERS = not PRODUCTION

DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024
DATA_UPLOAD_MAX_NUMBER_FIELDS = 500

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["gpu.api.authentication.TokenAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["gpu.api.parsing.StrictJSONParser"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "gpu.api.parsing.Negotiation",
    "DEFAULT_THROTTLE_CLASSES": ["gpu.api.throttling.AnonThrottle", "gpu.api.throttling.TokenThrottle"],
    "DEFAULT_THROTTLE_RATES": {
        "anon": env.str("API_RATE_ANON", default="60/min"),
        "token": env.str("API_RATE_TOKEN", default="600/min"),
    },
    "DEFAULT_SCHEMA_CLASS": "gpu.api.schema.AutoSchema",
    "EXCEPTION_HANDLER": "gpu.api.problems.exception_handler",
    "NUM_PROXIES": TRUSTED_PROXIES,
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "GPU slice portal",
    "VERSION": "1.0.0",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": ["gpu.api.schema.add_errors"],
    "SCHEMA_PATH_PREFIX": r"/api/v1",
    "SERVE_PUBLIC": True,
}

# The cluster. KUBECONFIG empty means the account of the pod the portal runs in.
KUBECONFIG: str = env.str("KUBECONFIG", default="")
KUBE_CONTEXT: str = env.str("KUBE_CONTEXT", default="")
CLUSTER_CONNECT_TIMEOUT: float = env.float("CLUSTER_CONNECT_TIMEOUT", default=3.0)
CLUSTER_READ_TIMEOUT: float = env.float("CLUSTER_READ_TIMEOUT", default=15.0)
# Facts older than this many seconds are said to be old, in colour and words (ux.md, ground rules).
STALE_AFTER_S = 30

# The image of the Job that pulls a model: a Python 3.9 or newer, nothing else.
PULL_IMAGE: str = env.str("PULL_IMAGE", default="python:3.12-slim")

# A task may run PROVISION_HARD_LIMIT seconds; the broker hands it out again only after BROKER_VISIBILITY_TIMEOUT.
TASK_SOFT_LIMIT: int = env.int("TASK_SOFT_LIMIT", default=90)
TASK_HARD_LIMIT: int = env.int("TASK_HARD_LIMIT", default=120)
BROKER_VISIBILITY_TIMEOUT: int = env.int("BROKER_VISIBILITY_TIMEOUT", default=600)
SWEEP_EVERY_S: float = env.float("SWEEP_EVERY_S", default=5.0)
LOOK_AT_CLUSTERS_EVERY_S: float = env.float("LOOK_AT_CLUSTERS_EVERY_S", default=300.0)

LOG_FORMAT: str = env.str("LOG_FORMAT", default="json" if PRODUCTION else "line")
if LOG_FORMAT not in ("json", "line"):
    raise ImproperlyConfigured(f"LOG_FORMAT is {LOG_FORMAT!r}; use json or line.")
LOGGING = logs.configuration(LOG_FORMAT, env.str("LOG_LEVEL", default="INFO"))

# Who may read /metrics: whoever has the token, and these networks when they ask without a proxy between.
METRICS_TOKEN = secret("METRICS_TOKEN", optional=True)
METRICS_NETWORKS = [
    ip_network(text) for text in env.list("METRICS_NETWORKS", default=["127.0.0.0/8", "::1/128"])
]
